#!/bin/sh
# A host of its own for one page: a copy of this machine's files that is thrown away (overlayfs), systemd as
# process 1, and a network of two: eth0 of the host, 192.0.2.10 and 2001:db8::10, and "outside", which has
# the addresses of clients and is the host's router. Run in namespaces of its own:
#
#   unshare -m -n -u sh host.sh FOLDER FILES CGROUP
#
# FOLDER is empty, FILES are laid over the copy, CGROUP is the name of a control group to make.
set -eu
folder=$1 files=$2 group=$3
mount --make-rprivate /
mount -t tmpfs none "$folder"
cd "$folder"
mkdir up work root cgroup netns
cp -a "$files/." up/
chmod 755 up
mount -t overlay none -o "lowerdir=/,upperdir=$folder/up,workdir=$folder/work" root
mount -t cgroup2 none cgroup
mkdir -p "cgroup/$group"
echo $$ >"cgroup/$group/cgroup.procs"

mount -t tmpfs none root/run
mount -t tmpfs none root/tmp
mount -t tmpfs none /run/netns 2>/dev/null || { mkdir -p /run/netns && mount -t tmpfs none /run/netns; }
ip netns add outside
touch root/run/outside
mount --bind /run/netns/outside root/run/outside
hostname web
ip link set lo up
ip link add eth0 type veth peer name eth0 netns outside
ip link set eth0 up
ip address add 192.0.2.10/24 dev eth0
ip address add 2001:db8::10/64 dev eth0 nodad
ip -n outside link set lo up
ip -n outside link set eth0 up
ip -n outside address add 192.0.2.1/24 dev eth0
ip -n outside address add 2001:db8::1/64 dev eth0 nodad
for client in 203.0.113.7 203.0.113.30 198.51.100.7 8.8.8.8; do ip -n outside address add $client/32 dev lo; done
ip -n outside address add 2001:db8:77::7/128 dev lo
ip route add default via 192.0.2.1
ip route add default via 2001:db8::1

exec unshare --cgroup --pid --fork --kill-child sh -euc '
cd root
mount -t proc none proc
mount -t sysfs none sys
mount -t cgroup2 none sys/fs/cgroup
mount --rbind /dev dev
mkdir -p run/old
pivot_root . run/old
umount -l run/old
exec env -i container=page PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . /lib/systemd/systemd --unit=basic.target --log-target=null --show-status=no
'
