# shellcheck shell=bash
# What a job with mend needs of a machine with soft-RoCE: each check says what is there, worth a note, or missing.
# They look at `netdev`, the interface, and `device`, its RDMA device or the one it would get. Needs say.sh, mend_root.
: "${mend_root:?}" "${netdev=}" "${device=}"

bad=0
fine() { printf '   ok       %-10s %s\n' "$1" "$2"; }
note() { printf '   note     %-10s %s\n' "$1" "$2"; }
lacks() { # TOPIC WHAT REMEDY
  printf '   MISSING  %-10s %s\n' "$1" "$2"
  printf '            %-10s -> %s\n' '' "$3"
  bad=1
}
all_there() { ((bad == 0)); }

sys=/sys/class/infiniband

check_software() {
  local tool package
  for tool in "rdma iproute2" "ibv_devinfo ibverbs-utils"; do
    read -r tool package <<<"$tool"
    if command -v "$tool" >/dev/null; then fine software "$tool"; else
      lacks software "the program $tool" "apt-get install $package"
    fi
  done
  if compgen -G '/usr/lib*/*/libibverbs/librxe-rdmav*.so' >/dev/null ||
    compgen -G '/usr/lib*/libibverbs/librxe-rdmav*.so' >/dev/null; then
    fine software "libibverbs has the driver of soft-RoCE"
  else
    lacks software "libibverbs' driver for soft-RoCE" "apt-get install ibverbs-providers"
  fi
}

check_module() {
  local load="modprobe rdma_rxe; for every boot: echo rdma_rxe >/etc/modules-load.d/rdma_rxe.conf"
  if [ -d /sys/module/rdma_rxe ]; then
    fine module "rdma_rxe is loaded"
  elif ! command -v modinfo >/dev/null; then
    lacks module "rdma_rxe is not loaded; without modinfo (package kmod) nobody knows whether this kernel has it" "$load"
  elif modinfo rdma_rxe >/dev/null 2>&1; then
    lacks module "rdma_rxe is not loaded" "$load"
  else
    lacks module "this kernel ($(uname -r)) has no rdma_rxe; in a container the host's kernel counts" \
      "apt-get install linux-image-amd64 and boot it, or use virtual machines: docs/soft-roce.md"
  fi
}

check_device() {
  local interfaces
  interfaces=$(ls /sys/class/net)
  if [ -z "$netdev" ]; then
    lacks device "no default route, so no interface to choose" "--netdev NAME; interfaces: ${interfaces//$'\n'/ }"
  elif [ ! -e "/sys/class/net/$netdev" ]; then
    lacks device "there is no interface $netdev" "--netdev NAME; interfaces: ${interfaces//$'\n'/ }"
  elif [ ! -e "$sys/$device" ]; then
    lacks device "$netdev has no soft-RoCE device" "rdma link add $device type rxe netdev $netdev"
  else
    fine device "$device on $netdev"
    check_port
    check_gid
    check_mtu
  fi
}

check_port() {
  local state
  state=$(<"$sys/$device/ports/1/state")
  if [ "${state#*: }" = ACTIVE ]; then fine port "$device:1 is active"; else
    lacks port "$device:1 is ${state#*: }" "ip link set $netdev up, and see to the cable"
  fi
}

# gid_kind TYPE GID: its place in the order in which mend prefers them (plugin/verbs/gid.cpp), and how a person writes it.
gid_kind() {
  local end=${2#0000:0000:0000:0000:0000:ffff:} ipv4=''
  [ "$end" = "$2" ] || ipv4=$((16#${end:0:2})).$((16#${end:2:2})).$((16#${end:5:2})).$((16#${end:7:2}))
  case $1/$ipv4/$2 in
    */0000:0000:0000:0000:0000:0000:0000:0000) echo 0 ;;
    "RoCE v2"/169.254.*) echo "2 $ipv4" ;;
    "RoCE v2"//fe[89ab]?:*) echo "2 $2" ;;
    "RoCE v2"//*) echo "3 $2" ;;
    "RoCE v2"/*) echo "4 $ipv4" ;;
    *) echo "1 $2" ;;
  esac
}

check_gid() {
  local index type gid rank text best=0 what='' remedy="ip addr add ADDRESS/BITS dev $netdev"
  for ((index = 0; index < 1024; index++)); do # nearly all are empty: no program is started for those
    [ -e "$sys/$device/ports/1/gids/$index" ] || break
    read -r gid <"$sys/$device/ports/1/gids/$index" || continue
    [ "$gid" != 0000:0000:0000:0000:0000:0000:0000:0000 ] || continue
    type=$(cat "$sys/$device/ports/1/gid_attrs/types/$index" 2>/dev/null || true)
    read -r rank text <<<"$(gid_kind "$type" "$gid")"
    if ((rank > best)); then best=$rank what="index $index, $text"; fi
  done
  case $best in
    4) fine gid "RoCE v2 with an IPv4 address: $what" ;;
    3) note gid "RoCE v2 with a global IPv6 address only: $what. Every host needs one then" ;;
    2) note gid "link-local addresses only, which no router passes on: $what. To reach further: $remedy" ;;
    1) note gid "RoCE v1 only, which no router passes on: $what" ;;
    *) lacks gid "no GID at all" "$remedy" ;;
  esac
}

# Headers of RoCE v2 take some 80 bytes of a frame; the RDMA MTU is the next power of two below the rest.
check_mtu() {
  local mtu larger="ip link set $netdev mtu 4200 (where every switch between allows it)"
  mtu=$(<"/sys/class/net/$netdev/mtu")
  if ((mtu >= 4200)); then fine mtu "$mtu bytes: RDMA MTU 4096"; else
    note mtu "$mtu bytes: RDMA MTU $((mtu >= 2200 ? 2048 : mtu >= 1100 ? 1024 : 512)). With $larger 4096"
  fi
}

check_permissions() {
  local node some=0
  for node in /dev/infiniband/uverbs*; do
    [ -e "$node" ] || continue
    some=1
    if [ -r "$node" ] && [ -w "$node" ]; then fine permission "$node"; else
      lacks permission "$node is not yours to open" \
        "apt-get install rdma-core (its udev rules), or add yourself to the group of $node"
    fi
  done
  ((some)) || lacks permission "there is no /dev/infiniband/uverbs*" \
    "it comes with a device and the module ib_uverbs (modprobe ib_uverbs); in a container: --device=/dev/infiniband"
}

# CAP_IPC_LOCK is bit 14. The kernel's RDMA wants it of the host's root: root of a user namespace (rootless containers),
# whose map of users is not the whole one, has the bit and is held to the limit all the same.
may_lock_all() {
  local name value
  grep -q ' 4294967295$' /proc/self/uid_map || return 1
  while read -r name value; do
    if [ "$name" = CapEff: ]; then
      (((16#$value >> 14) & 1)) && return 0
    fi
  done </proc/self/status
  return 1
}

# The limit is that of each process. What mend locks of its own stays below 1 GiB with hundreds of peers (mend-info size);
# the buffers of large messages come on top of it, and only the application knows how large they are: hence the note.
check_memlock() {
  local limit enough=$((1024 * 1024)) # KiB
  limit=$(ulimit -l)
  if [ "$limit" = unlimited ]; then
    fine memlock "unlimited"
  elif may_lock_all; then
    fine memlock "$limit KiB, which this user is not held to (CAP_IPC_LOCK)"
  elif ((limit >= enough)); then
    note memlock "$limit KiB may be locked per process: plenty for mend, but buffers of large messages are locked as well"
  else
    lacks memlock "$limit KiB may be locked" \
      "echo '* - memlock unlimited' >/etc/security/limits.d/rdma.conf, log in again (Slurm: LimitMEMLOCK=infinity)"
  fi
}

# firewall_verdict NETDEV: reads rules, prints what they do with RoCE v2, UDP to port 4791: open, refused CHAIN or unsure.
firewall_verdict() { awk -v netdev="$1" -f "$mend_root/configure-scripts/lib/firewall.awk"; }

# firewall_remedy RULES [KIND FAMILY TABLE CHAIN]: in front of all rules, since behind a final drop it would have no effect.
firewall_remedy() {
  local chain="${*:3}" iptables="iptables -I INPUT -p udp --dport 4791 -j ACCEPT"
  case ${2:-}/$1 in
    */*ufw-user-input*) echo "ufw allow 4791/udp" ;;
    iptables/*) echo "$iptables (and keep it, with iptables-persistent say)" ;;
    nft/*) echo "nft insert rule $chain udp dport 4791 accept (and the same in /etc/nftables.conf)" ;;
    *) echo "ufw allow 4791/udp, or $iptables, or nft insert rule FAMILY TABLE CHAIN udp dport 4791 accept" ;;
  esac
}

check_firewalld() {
  if firewall-cmd --query-port=4791/udp >/dev/null 2>&1; then fine firewall "firewalld lets UDP 4791 in"; else
    lacks firewall "firewalld is active" "firewall-cmd --add-port=4791/udp --permanent; firewall-cmd --reload"
  fi
}

check_firewall() {
  local rules='' more looked='' tools='' tool verdict rest
  if command -v firewall-cmd >/dev/null && firewall-cmd --state >/dev/null 2>&1; then
    check_firewalld
    return
  fi
  for tool in "nft list ruleset" iptables-save; do # the older kind of iptables is not among what nft lists
    command -v "${tool%% *}" >/dev/null || continue
    tools+=${tools:+, }$tool
    # shellcheck disable=SC2086
    if more=$($tool 2>/dev/null); then looked=yes rules+=$more$'\n'; fi
  done
  if [ -z "$tools" ]; then
    note firewall "cannot look: neither nft nor iptables is installed; UDP port 4791 must be let in between hosts"
  elif [ -z "$looked" ] && [ "$(id -u)" != 0 ]; then
    note firewall "only root can look; UDP port 4791 must be let in between hosts"
  elif [ -z "$looked" ]; then
    note firewall "cannot look: no answer from $tools; UDP port 4791 must be let in between hosts"
  else
    read -r verdict rest <<<"$(firewall_verdict "$netdev" <<<"$rules" || echo unsure)"
    # shellcheck disable=SC2086
    case $verdict in
      open) fine firewall "no rule refuses UDP port 4791" ;;
      refused) lacks firewall "UDP port 4791 is refused ($rest)" "$(firewall_remedy "$rules" $rest)" ;;
      *) note firewall "there are rules that may refuse UDP port 4791; if they do: $(firewall_remedy "$rules")" ;;
    esac
  fi
}
