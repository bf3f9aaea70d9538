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
  if compgen -G '/usr/lib*/*/libibverbs/librxe-rdmav*.so' >/dev/null || compgen -G '/usr/lib*/libibverbs/librxe-rdmav*.so' >/dev/null; then
    fine software "libibverbs has the driver of soft-RoCE"
  else
    lacks software "libibverbs' driver for soft-RoCE" "apt-get install ibverbs-providers"
  fi
}

check_module() {
  if [ -d /sys/module/rdma_rxe ]; then
    fine module "rdma_rxe is loaded"
  elif modinfo rdma_rxe >/dev/null 2>&1; then
    lacks module "rdma_rxe is not loaded" "modprobe rdma_rxe; for every boot: echo rdma_rxe >/etc/modules-load.d/rdma_rxe.conf"
  else
    lacks module "this kernel ($(uname -r)) has no rdma_rxe; in a container the host's kernel counts" \
      "apt-get install linux-image-amd64 and boot it, or use virtual machines: docs/soft-roce.md"
  fi
}

check_device() {
  if [ -z "$netdev" ]; then
    lacks device "no default route, so no interface to choose" "--netdev NAME; interfaces: $(ls /sys/class/net | tr '\n' ' ')"
  elif [ ! -e "/sys/class/net/$netdev" ]; then
    lacks device "there is no interface $netdev" "--netdev NAME; interfaces: $(ls /sys/class/net | tr '\n' ' ')"
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

# What mend prefers: an IPv4 address makes a routable GID, an fe80:: one reaches the same segment only.
check_gid() {
  local file type gid best='' fallback=''
  for file in "$sys/$device/ports/1/gids/"*; do # a thousand of them, nearly all empty: no program is started for one
    read -r gid <"$file" || continue
    [ "$gid" = 0000:0000:0000:0000:0000:0000:0000:0000 ] && continue
    type=$(cat "$sys/$device/ports/1/gid_attrs/types/${file##*/}" 2>/dev/null || true)
    case $type/$gid in
      "RoCE v2"/0000:0000:0000:0000:0000:ffff:*) best=${best:-"index ${file##*/}, ${gid#0000:0000:0000:0000:0000:}"} ;;
      *) fallback=${fallback:-"index ${file##*/}, $gid"} ;;
    esac
  done
  if [ -n "$best" ]; then fine gid "RoCE v2 with an IPv4 address: $best"; else
    lacks gid "no GID with an IPv4 address (${fallback:-none at all})" "ip addr add ADDRESS/BITS dev $netdev"
  fi
}

# Headers of RoCE v2 take some 80 bytes of a frame; the RDMA MTU is the next power of two below the rest.
check_mtu() {
  local mtu
  mtu=$(<"/sys/class/net/$netdev/mtu")
  if ((mtu >= 4200)); then fine mtu "$mtu bytes: RDMA MTU 4096"; else
    note mtu "$mtu bytes: RDMA MTU $((mtu >= 2200 ? 2048 : mtu >= 1100 ? 1024 : 512)). With ip link set $netdev mtu 4200 (where every switch between allows it) 4096"
  fi
}

check_permissions() {
  local node some=0
  for node in /dev/infiniband/uverbs*; do
    [ -e "$node" ] || continue
    some=1
    if [ -r "$node" ] && [ -w "$node" ]; then fine permission "$node"; else
      lacks permission "$node is not yours to open" "apt-get install rdma-core (its udev rules), or add yourself to the group of $node"
    fi
  done
  ((some)) || lacks permission "there is no /dev/infiniband/uverbs*" "modprobe ib_uverbs; in a container: --device=/dev/infiniband"
}

check_memlock() {
  local limit
  limit=$(ulimit -l)
  if [ "$limit" = unlimited ]; then
    fine memlock "unlimited"
  elif [ "$(id -u)" = 0 ]; then
    fine memlock "$limit KiB, which root is not held to"
  else
    lacks memlock "$limit KiB may be locked" \
      "echo '* - memlock unlimited' >/etc/security/limits.d/rdma.conf, log in again (Slurm: LimitMEMLOCK=infinity)"
  fi
}

# Only root can read the rules; RoCE v2 is UDP to port 4791.
check_firewall() {
  local rules=''
  if command -v firewall-cmd >/dev/null && firewall-cmd --state >/dev/null 2>&1; then
    if firewall-cmd --query-port=4791/udp >/dev/null 2>&1; then fine firewall "firewalld lets UDP 4791 in"; else
      lacks firewall "firewalld is active" "firewall-cmd --add-port=4791/udp --permanent; firewall-cmd --reload"
    fi
    return
  fi
  if command -v nft >/dev/null; then rules=$(nft list ruleset 2>/dev/null || true); fi
  if [ -z "$rules" ] && command -v iptables-save >/dev/null; then rules=$(iptables-save 2>/dev/null || true); fi
  if [ -z "$rules" ] && [ "$(id -u)" != 0 ]; then
    note firewall "only root can look; UDP port 4791 must be let in between hosts"
  elif grep -q 4791 <<<"$rules"; then
    note firewall "there are rules about port 4791; it must be let in"
  elif grep -Eq 'hook input.*policy drop|^:INPUT DROP|reject with|-j REJECT' <<<"$rules"; then
    lacks firewall "there are rules that refuse, and none for UDP port 4791" "let it in, with nft: add rule inet filter input udp dport 4791 accept"
  else
    fine firewall "no rule refuses UDP port 4791"
  fi
}
