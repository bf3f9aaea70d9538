#!/bin/sh
# Runs something on this machine under another host's name (harness/hosts.py).
#   host_agent.sh HOST WORD...         as ssh does, which gives the words to a shell: mpirun starts its daemons so
#   host_agent.sh --exec HOST WORD...  a program and its arguments
set -eu
run='exec sh -c "$*"'
if [ "$1" = --exec ]; then
  run='exec "$@"'
  shift
fi
# Whoever is not root becomes root of a user namespace: only root names hosts.
user=
[ "$(id -u)" = 0 ] || user=--map-root-user
# shellcheck disable=SC2086
exec unshare --uts $user sh -c 'hostname "$1" && shift && '"$run" sh "$@"
