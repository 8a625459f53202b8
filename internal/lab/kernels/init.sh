#!/bin/sh
# The first process of the emulated machine: mounts what a system has, and goes on as
# /lab/run, or as the init system that /lab/init names, which has to start /lab/run.
# Package kernels makes the files in /lab.
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts
mount -t tmpfs tmp /tmp
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
mount -t cgroup2 cgroup /sys/fs/cgroup 2>/dev/null
mount -t bpf bpf /sys/fs/bpf 2>/dev/null
ln -sf /proc/self/fd /dev/fd
mkdir -p /run/netns /tmp/home
# shellcheck source=/dev/null # it is in the guest
. /lab/environment
ip link set lo up
# br_netfilter: of bridged frames; nothing else loads it
for module in br_netfilter virtio_pci virtio_blk virtio_net; do
    modprobe $module 2>/dev/null
done
hostname emulated
if [ -s /lab/init ]; then
    exec "$(cat /lab/init)"
fi
exec sh /lab/run
