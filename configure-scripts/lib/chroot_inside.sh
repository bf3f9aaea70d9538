# shellcheck shell=bash
# The first process of the name spaces that chroot.sh makes: mounts what a command needs, runs it, and reaps what it leaves.
# usage: chroot_inside.sh ROOT TREE CACHE DIRECTORY [NAME=VALUE...] COMMAND...   CACHE may be empty
set -euo pipefail
root=$1 tree=$2 cache=$3 directory=$4
shift 4

there() { # KIND SOURCE TARGET [OPTIONS]
  mkdir -p "$root$3"
  mount -t "$1" ${4:+-o "$4"} "$2" "$root$3"
}
# The tree is taken, with what is mounted in it, before anything is mounted in the root, which may lie in the tree: else the
# command would find the host's /dev once more in the tree's build/chroot, and its `rm -rf build` would empty the host's.
# It is put in its place last, because that may lie in what is hidden: /tmp, /dev/shm.
mkdir -p "$root/mnt"
mount --rbind "$tree" "$root/mnt"
there proc proc /proc
there tmpfs tmpfs /tmp mode=1777
for shared in /dev /sys; do
  mkdir -p "$root$shared"
  mount --rbind "$shared" "$root$shared"
done
there tmpfs tmpfs /dev/shm mode=1777
mkdir -p "$root$tree"
mount --move "$root/mnt" "$root$tree"
if [ -n "$cache" ]; then
  mkdir -p "$root$cache"
  mount --bind "$cache" "$root$cache"
fi
for file in /etc/resolv.conf /etc/hosts; do
  [ ! -e "$file" ] || { rm -f "$root$file" && cp -L "$file" "$root$file"; }
done

status=0
chroot "$root" /usr/bin/env -i -C "$directory" HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
  "$@" || status=$?
exit "$status"
