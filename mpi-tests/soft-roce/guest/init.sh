#!/bin/bash
# PID 1 of a guest: mounts, names and numbers its networks, puts a soft-RoCE device on each rail, then runs commands until
# it is told to stop. The kernel's command line says which guest this is: mend.host=a|b mend.guests=N mend.rails=N.
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 TERM=dumb
here=$(cd "$(dirname "$0")" && pwd)
host='' guests=1 rails=1
for word in $(</proc/cmdline); do
  case $word in
    mend.host=*) host=${word#*=} ;;
    mend.guests=*) guests=${word#*=} ;;
    mend.rails=*) rails=${word#*=} ;;
  esac
done
number=1
[ "$host" = b ] && number=2

# rename_net NETWORK NAME: the interface of that network, known by its address, gets this name.
rename_net() {
  local interface
  for interface in /sys/class/net/*; do
    if [ "$(<"$interface/address")" = "$(printf '52:54:00:4d:%02x:%02x' "$1" "$number")" ]; then
      ip link set "${interface##*/}" name "$2"
      return
    fi
  done
  echo "mend-rig: there is no network $1"
}

mkdir -p /dev/shm /dev/pts /out
mount -t tmpfs tmpfs /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /run
mount -t 9p -o trans=virtio,version=9p2000.L,msize=1048576 out /out || echo "mend-rig: /out does not mount"
hostname "$host"
printf '127.0.0.1 localhost\n198.18.9.1 a\n198.18.9.2 b\n' >/etc/hosts
ip link set lo up
for module in virtio_net rdma_rxe ib_uverbs rdma_ucm; do
  modprobe "$module" || echo "mend-rig: no module $module"
done

rename_net 0 mgmt
ip addr add "198.18.9.$number/24" dev mgmt
ip link set mgmt up
for ((rail = 0; rail < rails; rail++)); do
  rename_net $((rail + 1)) "rail$rail"
  ip addr add "198.18.1$rail.$number/24" dev "rail$rail"
  ip link set "rail$rail" mtu 4200 up # room for an RDMA MTU of 4096 and its headers
  rdma link add "rxe$rail" type rxe netdev "rail$rail" || echo "mend-rig: no rxe$rail"
done

ulimit -l unlimited
[ "$guests" -gt 1 ] && network=198.18.9.$number
python3 -B "$here/agent.py" "$host" "${network:-}"
sync
echo o >/proc/sysrq-trigger # power off
sleep 60
