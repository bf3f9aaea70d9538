# shellcheck shell=bash
# Roots of other Debian suites: made, filled with packages, and commands run in them. Needs say.sh, packages.sh, and
# mend_root: the root of the checkout.
#
# Whatever mounts or starts something does so in a mount and a process name space of its own. The kernel ends both when their
# first process ends, and that one is killed when its starter dies, however it dies.
: "${mend_root:?}"

chroot_directory=${MEND_CHROOT_DIR:-$mend_root/build/chroot}
chroot_mirror=${MEND_CHROOT_MIRROR:-http://deb.debian.org/debian}

# Where no root can be made, which is nobody's fault: status 125.
chroot_impossible() {
  say_error "$*"
  exit 125
}

# What needs the mirror has failed: 125 if that does not answer, else 1.
chroot_failed() { # SUITE WHAT
  chroot_answers "$1" || chroot_impossible "$2: $chroot_mirror does not answer, or has no suite $1"
  die "$2"
}
chroot_answers() { # SUITE
  local got=$chroot_directory/$1.InRelease
  "${chroot_fetch[@]}" "$chroot_mirror/dists/$1/InRelease" "$got" >/dev/null 2>&1 && rm -f "$got"
}
chroot_fetch=(/usr/lib/apt/apt-helper -o Acquire::Retries=2 download-file)

# Before a command: name spaces of its own. unshare ignores signals while it waits, but dies with this script, and its child
# with it. So it must be this script's own child, not that of a subshell.
chroot_isolated=(setpriv --pdeathsig KILL unshare --mount --propagation private --pid --fork --kill-child=KILL)

chroot_possible() { # SUITE
  local tool missing=()
  [ "$(id -u)" = 0 ] || chroot_impossible "this needs root: it makes a Debian $1 and mounts file systems in it"
  for tool in debootstrap unshare setpriv flock dpkg-query apt-config "${chroot_fetch[0]}"; do
    command -v "$tool" >/dev/null || missing+=("$tool")
  done
  ((${#missing[@]} == 0)) || chroot_impossible "missing here: ${missing[*]} (of Debian's debootstrap, util-linux, dpkg and apt)"
  unshare --mount --pid --fork true 2>/dev/null ||
    chroot_impossible "this root may not mount: mount and process name spaces are refused (a container without CAP_SYS_ADMIN?)"
  [ -e "/usr/share/debootstrap/scripts/$1" ] || die "debootstrap knows no suite \"$1\""
}

chroot_missing() { # SUITE GROUP...: packages of the groups that this root lacks
  local root=$chroot_directory/$1 group
  shift
  {
    for group in "$@"; do
      awk -v g="$group" '$1 == g { print $2 }' "$mend_root/configure-scripts/packages"
    done
    ! command -v ccache >/dev/null || echo ccache
  } | sort | comm -23 - <(dpkg-query --admindir="$root/var/lib/dpkg" -W -f='${db:Status-Status} ${Package}\n' |
    sed -n 's/^installed //p' | sort)
}

# How this machine reaches the mirror, for debootstrap and for the apt in the root, which sees neither our environment nor our
# /etc/apt. Sets chroot_proxies (NAME=VALUE, which apt minds only where its own options name no proxy) and chroot_apt_options.
chroot_network() {
  local scheme name proxy option valid=true
  # Where the mirror is a snapshot, this machine's apt has been told to take old lists.
  eval "$(apt-config shell valid Acquire::Check-Valid-Until/b)"
  chroot_apt_options=("${packages_patience[@]}" -o "Acquire::Check-Valid-Until=$valid")
  while read -r option; do
    chroot_apt_options+=(-o "$option")
  done < <(apt-config dump --no-empty --format '%f=%v%n' Acquire::http Acquire::https |
    grep -E '^Acquire::https?::Proxy(::[^=]+)?=')
  chroot_proxies=(${no_proxy:+"no_proxy=$no_proxy"})
  for scheme in http https; do
    name=${scheme}_proxy proxy=
    eval "$(apt-config shell proxy "Acquire::${scheme}::Proxy")"
    [ "$proxy" != DIRECT ] || proxy=
    proxy=${!name:-$proxy}
    [ -z "$proxy" ] || chroot_proxies+=("$name=$proxy")
  done
}

chroot_debootstrap() { # SUITE ROOT
  say_run "$chroot_directory/$1.debootstrap.log" env "${chroot_proxies[@]}" "${chroot_isolated[@]}" \
    debootstrap --variant=minbase "$1" "$2" "$chroot_mirror"
}

chroot_make() { # SUITE: an empty root, in place only when it is whole
  local suite=$1 root=$chroot_directory/$1 half=$chroot_directory/$1.half
  say "making a Debian $suite in $root"
  chroot_answers "$suite" || chroot_impossible "$chroot_mirror does not answer, or has no suite $suite"
  chroot_network
  # debootstrap knows no patience; a second time needs a clean start, or it takes up what is broken.
  chroot_debootstrap "$suite" "$half" || {
    say "debootstrap once more"
    rm -rf --one-file-system "$half"
    chroot_debootstrap "$suite" "$half"
  } || chroot_failed "$suite" "debootstrap failed"
  # A test machine can lose this root in a power cut and make it again; manuals are not read in it.
  echo force-unsafe-io >"$half/etc/dpkg/dpkg.cfg.d/mend"
  printf 'path-exclude=/usr/share/%s/*\n' doc man locale info >>"$half/etc/dpkg/dpkg.cfg.d/mend"
  mv "$half" "$root"
}

# chroot_install SUITE [PACKAGE...]: without any, what is there is brought up to date.
chroot_install() {
  local root=$chroot_directory/$1 log=$chroot_directory/$1.apt.log apt what=(install --no-install-recommends "${@:2}") failed
  if (($# > 1)); then
    say "installing $(($# - 1)) packages in it"
  else
    say "bringing $root up to date"
    what=(dist-upgrade)
  fi
  # While this file is there, the root is not to be used: dpkg may be anywhere.
  touch "$root/unfinished"
  chroot_network
  chroot_enter "$1" / DEBIAN_FRONTEND=noninteractive "${chroot_proxies[@]}" apt-get
  apt=("${chroot_entered[@]}" "${chroot_apt_options[@]}")
  chroot_apt || {
    say "$failed: once more" # a mirror that is being updated has lists and packages that do not match
    chroot_apt
  } || chroot_failed "$1" "$failed"
  "${apt[@]}" clean
  rm "$root/unfinished"
}

# For chroot_install, whose variables it uses; sets failed.
chroot_apt() {
  failed="the package lists could not be fetched"
  say_run "$log" "${apt[@]}" update -o APT::Update::Error-Mode=any || return
  failed="the packages could not be installed"
  say_run "$log" "${apt[@]}" -y "${what[@]}"
}

# chroot_lock KIND DESCRIPTOR FILE WHY: takes the lock, and says once what it waits for, and for whom.
chroot_lock() {
  flock --nonblock "$1" "$2" && return
  say "waiting: $4$(chroot_holder "$2" "$3")"
  flock "$1" "$2"
}

# Of the others that have FILE open, the oldest that none of them has started: who holds the lock or, if that one is gone, what
# it has started. (The kernel's list of locks names flock, which has ended. Numbers of processes begin anew some time.)
chroot_holder() { # DESCRIPTOR FILE
  local process stat fields others own=$1
  exec {own}>&-
  others=$(find -L /proc/[0-9]*/fd -maxdepth 1 -samefile "$2" 2>/dev/null | cut -d/ -f3 | sort -u | grep -vx "$$") || true
  process=$(for process in $others; do
    stat=$(cat "/proc/$process/stat" 2>/dev/null) || continue
    read -ra fields <<<"${stat##*) }" # from the third field on: state, parent, ..., start
    grep -qx "${fields[1]}" <<<"$others" || printf '%s %s\n' "${fields[19]}" "$process"
  done | sort -n | sed -n '1s/.* //p')
  [ -z "$process" ] || printf ' (process %s: %s)' "$process" "$(tr '\0' ' ' 2>/dev/null <"/proc/$process/cmdline")"
}

# Does something to a root when nobody works in it any more.
chroot_alone() { # SUITE COMMAND...
  local users
  exec {users}>"$chroot_directory/$1.users"
  chroot_lock --exclusive "$users" "$chroot_directory/$1.users" "commands still run in $chroot_directory/$1"
  "${@:2}"
  exec {users}>&-
}

# A root of which a part is missing must never be taken for one: so it first loses its name, all at once.
chroot_discard() { # SUITE WHY
  local root=${chroot_directory:?}/$1
  say "$2: it is made again"
  chroot_alone "$1" mv --no-target-directory "$root" "$root.half"
  rm -rf --one-file-system "$root.half"
}

# chroot_ensure INSTALL SUITE GROUP...: one at a time; who comes second finds everything there. From then on the root is in use,
# until the last process has gone that inherits the lock.
chroot_ensure() {
  local install=$1 suite=$2 root=$chroot_directory/$2 missing lock made=no
  shift 2
  mkdir -p "$chroot_directory"
  exec {lock}>"$chroot_directory/$suite.lock"
  chroot_lock --exclusive "$lock" "$chroot_directory/$suite.lock" "somebody makes $root or installs in it"
  rm -rf --one-file-system "$root.half"
  [ ! -e "$root/unfinished" ] || chroot_discard "$suite" "the last installation in $root was not finished"
  # A command inside may have emptied the tree's build/, and with it its own root.
  [ ! -d "$root" ] || [ -e "$root/var/lib/dpkg/status" ] || chroot_discard "$suite" "$root is not whole"
  if [ ! -d "$root" ]; then
    [ "$install" != no ] || die "there is no $root yet, and --no-install was given"
    chroot_make "$suite"
    made=yes
  fi
  if [ "$install" = upgrade ] && [ "$made" = no ]; then
    chroot_alone "$suite" chroot_install "$suite"
  fi
  mapfile -t missing < <(chroot_missing "$suite" "$@")
  if ((${#missing[@]})); then
    [ "$install" != no ] || die "$root lacks ${missing[*]}, and --no-install was given"
    chroot_install "$suite" "${missing[@]}"
  fi
  exec {chroot_users}>"$chroot_directory/$suite.users"
  chroot_lock --shared "$chroot_users" "$chroot_directory/$suite.users" "$root is thrown away or brought up to date"
  exec {lock}>&-
}

# chroot_enter SUITE DIRECTORY [NAME=VALUE...] COMMAND...: sets chroot_entered to what runs it there, environment clean.
chroot_enter() {
  local root=$chroot_directory/$1 directory=$2 cache=
  shift 2
  if command -v ccache >/dev/null && cache=$(ccache --get-config cache_dir) && mkdir -p "$cache"; then
    set -- "CCACHE_DIR=$cache" "$@"
  fi
  chroot_entered=("${chroot_isolated[@]}" bash "$mend_root/configure-scripts/lib/chroot_inside.sh" "$root" "$mend_root" "$cache"
    "$directory" "TERM=${TERM:-dumb}" ${CI:+"CI=$CI"} "$@")
}

chroot_run() { # SUITE COMMAND...
  local directory=$PWD
  case $directory/ in
    "$mend_root"/*) ;;
    *) directory=$mend_root ;;
  esac
  chroot_enter "$1" "$directory" "${@:2}"
  "${chroot_entered[@]}"
}
