package doctor_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/safchain/ethtool"

	"sluice/internal/lab/testnet"
)

// quota has a busy program with a socket of the host in a control group that may use so many
// microseconds of 100,000; "-1": all.
func (b *broken) quota(most string) {
	b.t.Helper()
	groups, name, period := "/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", ""
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil { // version 2
		groups, name, period = "/sys/fs/cgroup", "cpu.max", " 100000"
		if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+cpu"), 0); err != nil {
			testnet.Lacks(b.t, "quotas of processor time", err)
		}
		most = strings.Replace(most, "-1", "max", 1)
	}
	group, err := os.MkdirTemp(groups, "sl-doctor-")
	if err != nil {
		testnet.Lacks(b.t, "quotas of processor time", err)
	}
	b.t.Cleanup(func() {
		for os.Remove(group) != nil { // as soon as what was in there has ended
			time.Sleep(time.Millisecond)
		}
	})
	p := b.host.Start("python3", "-c", `import socket
s = socket.socket()
s.bind(("192.0.2.1", 7070)); s.listen()
while True: pass`)
	b.t.Cleanup(p.Stop)
	if err := b.client.WaitTCP(netip.AddrPortFrom(hostAddress, 7070), time.Minute); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(group, name), []byte(most+period), 0); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(p.Pid())), 0); err != nil {
		b.t.Fatal(err)
	}
}

// bridge gives the host one of two ports, whose frames pass rules or not.
func (b *broken) bridge(passes string) {
	b.t.Helper()
	b.host.MustRun("ip", "link", "add", "br0", "up", "type", "bridge")
	for _, port := range []string{"p0", "p1"} {
		b.host.MustRun("ip", "link", "add", port, "up", "master", "br0", "type", "veth", "peer", "name", "m"+port)
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		name := "net.bridge.bridge-nf-call-" + family
		if _, err := b.host.GetSysctl(name); err != nil {
			testnet.Lacks(b.t, "br_netfilter", err)
		}
		b.host.Sysctl(name, passes)
	}
}

// offload turns on or off what the host's device can spare it.
func (b *broken) offload(on bool) {
	b.t.Helper()
	if err := b.host.Do(func() error {
		driver, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer driver.Close()
		return driver.Change("eth0", map[string]bool{"tx-checksum-ip-generic": on, "tx-tcp-segmentation": on})
	}); err != nil {
		b.t.Fatal(err)
	}
}

// rules gives the host so many of input, each its own, and some before them.
func (b *broken) rules(n int, before string) {
	b.t.Helper()
	var text strings.Builder
	text.WriteString("table inet t { chain c { type filter hook input priority 0; " + before)
	for i := range n {
		fmt.Fprintf(&text, "ip saddr 198.51.%d.%d udp sport %d accept; ", i>>8, i&255, 1024+i)
	}
	b.host.Nft(text.String() + "}; }")
}

// forwarded has the host forward a connection that it tracks, by rules.
func (b *broken) forwarded(rules string) {
	b.t.Helper()
	b.host.Forward()
	b.host.MustRun("ip", "link", "add", "inner", "up", "type", "veth", "peer", "name", "machine")
	b.host.MustRun("ip", "link", "set", "machine", "up")
	b.host.Address("inner", "198.51.100.1/24")
	b.host.MustRun("ip", "neigh", "add", "198.51.100.2", "lladdr", "02:00:00:00:00:02", "dev", "inner")
	b.host.Nft("table inet t { chain p { type filter hook prerouting priority 0; ct state new accept; }; chain c { type filter hook forward priority 0; " + rules + " }; }")
	b.flood(testnet.UDP(from("192.0.2.2", 1), from("198.51.100.2", 53)))
}

// logger is a program with the name of one that writes logs.
func (b *broken) logger(script string) {
	b.t.Helper()
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		b.t.Fatal(err)
	}
	name := filepath.Join(b.t.TempDir(), "rsyslogd")
	if err := os.WriteFile(name, shell, 0o755); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(b.host.Start(name, "-c", script).Stop)
}
