#!/bin/sh
# The first process of the emulated machine: mounts what a system has, runs
# /lab/command with its output on the second serial port, and writes its status and
# the results onto the disk. Package kernellab makes the files in /lab.
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
for module in br_netfilter virtio_pci virtio_blk; do
    modprobe $module 2>/dev/null
done
hostname emulated
stty -F /dev/ttyS1 raw -echo

status=126
if cd "$(cat /lab/directory)"; then
    setsid sh /lab/command </dev/null >/dev/ttyS1 2>&1
    status=$?
fi
cd /
echo $status >/lab/status
: >/lab/end # the last file of the archive: what lacks it was cut off
found=
while read -r file; do
    [ ! -e "/$file" ] || found="$found $file"
done </lab/results
# shellcheck disable=SC2086 # a list of names
tar -c -f /dev/vda lab/status $found lab/end
sync
poweroff -f
