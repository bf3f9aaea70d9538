# shellcheck shell=bash
# What a person reads while a script runs: numbered steps, a reason for every failure, nothing else.

say_started=$SECONDS

say_step() { printf '\n== [%3ds] %s\n' "$((SECONDS - say_started))" "$*"; }
say() { printf '   %s\n' "$*"; }
say_error() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
die() {
  say_error "$*"
  exit 1
}

# say_run LOG COMMAND...: runs quietly into LOG. On a terminal the last line is shown in place, elsewhere a line every
# 15 s proves that something happens. A failure shows the end of LOG and where the rest is.
say_run() {
  local log=$1
  shift
  mkdir -p "$(dirname "$log")"
  : >"$log"
  "$@" >"$log" 2>&1 &
  local child=$! shown=$SECONDS status=0 line
  while kill -0 "$child" 2>/dev/null; do
    sleep 0.2
    if [ -t 1 ]; then
      printf '\r   %-.100s\033[K' "$(tail -n 1 "$log" | tr -d '\r\033')"
    elif ((SECONDS - shown >= 15)); then
      shown=$SECONDS
      line=$(tail -n 1 "$log" | tr -d '\r\033' | cut -c 1-100)
      say "${line:-...}"
    fi
  done
  wait "$child" || status=$?
  [ -t 1 ] && printf '\r\033[K'
  if ((status != 0)); then
    tail -n 40 "$log" >&2
    say_error "failed with status $status: $*"
    say_error "everything it said is in $log"
  fi
  return "$status"
}
