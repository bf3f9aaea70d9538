# shellcheck shell=bash
# Which packages are missing, and their installation. The list with the reasons is configure-scripts/packages.
# Needs say.sh, and mend_root: the root of the checkout.
: "${mend_root:?}"

# For apt-get: a mirror or a proxy that is slow or drops a connection is asked again.
packages_patience=(-o Acquire::Retries=5 -o Acquire::http::Timeout=60)

packages_why() { awk -v p="$1" '$2 == p { $1 = ""; $2 = ""; sub(/^ +/, ""); print }' "$mend_root/configure-scripts/packages"; }

# packages_missing GROUP...: the packages of these groups that dpkg does not have installed.
packages_missing() {
  local group package
  for group in "$@"; do
    while read -r package; do
      [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
    done < <(awk -v g="$group" '$1 == g { print $2 }' "$mend_root/configure-scripts/packages")
  done
}

# Prints how to become root ("" for root itself), or fails when there is no way that needs no person.
packages_root_command() {
  if [ "$(id -u)" = 0 ]; then
    return 0
  elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
    echo sudo
  else
    return 1
  fi
}

packages_list() {
  local package
  for package in "$@"; do
    printf '   %-20s %s\n' "$package" "$(packages_why "$package")"
  done
}

packages_install() { # ROOT_COMMAND PACKAGE...: once, with lists of now
  local log=$mend_root/build/logs/apt.log root_command=$1
  # The lock time-out waits for an apt that runs already (a machine's first minutes) instead of failing.
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "${packages_patience[@]}")
  # shellcheck disable=SC2086
  say_run "$log" $root_command "${apt[@]}" update &&
    say_run "$log" $root_command "${apt[@]}" install -y --no-install-recommends "${@:2}"
}

# packages_ensure INSTALL GROUP...: INSTALL is yes or no (--no-install).
packages_ensure() {
  local install=$1 root_command missing
  shift
  if ! command -v dpkg-query >/dev/null; then
    say "This is not a Debian system: nothing is installed. CMake will name what it does not find; Debian calls it:"
    mapfile -t missing < <(awk -v groups=" $* " 'index(groups, " " $1 " ") { print $2 }' "$mend_root/configure-scripts/packages")
    packages_list "${missing[@]}"
    return 0
  fi
  mapfile -t missing < <(packages_missing "$@")
  if ((${#missing[@]} == 0)); then
    say "everything is installed already"
    return 0
  fi
  say "missing, and what for:"
  packages_list "${missing[@]}"
  if [ "$install" = no ]; then
    say_error "--no-install was given and ${#missing[@]} packages are missing. To install them:"
    say_error "  apt-get install --no-install-recommends ${missing[*]}"
    exit 3
  fi
  if ! root_command=$(packages_root_command); then
    say_error "installing needs root, and there is no sudo that works without a person. As root:"
    say_error "  apt-get install --no-install-recommends ${missing[*]}"
    exit 3
  fi
  say "installing ${#missing[@]} packages with ${root_command:+$root_command }apt-get"
  packages_install "$root_command" "${missing[@]}" || {
    say "once more: a mirror that is being updated has lists and packages that do not match"
    packages_install "$root_command" "${missing[@]}"
  } || die "the packages could not be installed"
}

# packages_try INSTALL WHAT GROUP...: the same, but goes on without them, and says what that costs.
packages_try() {
  local install=$1 what=$2
  shift 2
  (packages_ensure "$install" "$@") || say "SKIPPED for want of these packages: $what"
}
