package apply

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"sluice/internal/lab/testnet"
	"sluice/internal/program"
	"sluice/internal/system/kernel/conntrack"
)

// Features that tunnels need.
var (
	tunDevices = testnet.Probed("tun devices", func() error {
		_ = exec.Command("modprobe", "tun").Run() // the device file is not there before, where nothing else made it
		_, err := os.Stat("/dev/net/tun")
		return err
	})
	ipsec = testnet.Probed("ESP", func() error {
		return deviceOf(append([]string{"xfrm", "state", "add", "src", "192.0.2.1", "dst", "192.0.2.2"}, espState("0x100")...))
	})
	wireGuard  = testnet.Probed("WireGuard", func() error { return deviceOf([]string{"link", "add", "wg0", "type", "wireguard"}) })
	greDevices = testnet.Probed("GRE", func() error { return deviceOf(greDevice("gre", "192.0.2.1", "192.0.2.2")) })
	vxlan      = testnet.Probed("VXLAN", func() error { return deviceOf(vxlanDevice("192.0.2.1", "192.0.2.2")) })
	ethernet   = testnet.Probed("VXLAN or GRE", func() error {
		if vxlan.Ask() != nil {
			return greDevices.Ask()
		}
		return nil
	})
)

func greDevice(kind, local, remote string) []string {
	return []string{"link", "add", "tunnel0", "type", kind, "local", local, "remote", remote}
}

func vxlanDevice(local, remote string) []string {
	return []string{"link", "add", "tunnel0", "type", "vxlan", "id", "7", "dstport", "4789", "local", local, "remote", remote}
}

func espState(spi string) []string {
	return []string{
		"proto", "esp", "spi", spi, "reqid", "1", "mode", "tunnel",
		"auth-trunc", "hmac(sha1)", "0x0123456789abcdef0123456789abcdef01234567", "96",
		"enc", "cbc(aes)", "0x0123456789abcdef0123456789abcdef",
		"flag", "af-unspec", // the inner addresses may be of another family
	}
}

// deviceOf runs ip in a namespace that goes away.
func deviceOf(args []string) error {
	n, err := testnet.Create("feature")
	if err != nil {
		return err
	}
	defer n.Close()
	return n.Try(func() { n.Unnamed("probe").MustRun("ip", args...) })
}

// openTunnel carries the packets of a tun device over UDP: "DEVICE LOCAL REMOTE",
// where no REMOTE is a server, which answers whoever spoke last.
func openTunnel(what string) error {
	words := strings.Fields(what)
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR, 0)
	if err != nil {
		return err
	}
	request, err := unix.NewIfreq(words[0])
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return err
	}
	device := os.NewFile(uintptr(fd), "tun")
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(words[1])))
	if err != nil {
		return err
	}
	peers := make(chan netip.AddrPort, 1)
	if len(words) > 2 {
		peers <- netip.MustParseAddrPort(words[2])
	}
	failed := make(chan error, 2)
	go func() {
		packet := make([]byte, 1<<16)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(packet)
			if err != nil {
				continue // a host that nobody listens at says so
			}
			select {
			case <-peers:
			default:
			}
			peers <- from
			if _, err := device.Write(packet[:n]); err != nil && !errors.Is(err, unix.EIO) {
				failed <- err
			}
		}
	}()
	go func() {
		packet := make([]byte, 1<<16)
		for {
			n, err := device.Read(packet)
			if err != nil {
				failed <- err
				return
			}
			select {
			case to := <-peers:
				peers <- to
				_, _ = conn.WriteToUDPAddrPort(packet[:n], to)
			default:
			}
		}
	}()
	return <-failed
}

// tunnel is one kind of tunnel between a host and a client.
type tunnel struct {
	name   string
	needs  []testnet.Feature
	outer  string // what has to be let in: "PROTOCOL" or "PROTOCOL/PORT"
	family string // of the outer packets, where it has one alone
	inner6 bool   // the inner addresses are of IPv6
	spoke  bool   // the first policy meets a tunnel whose other end only a connection table knows
	// open makes the tunnel's device "tun0" with the inner address in both.
	open func(l *tunnelLab)
}

type tunnelLab struct {
	*lab
	client        *testnet.Namespace
	here, there   string // outer addresses
	six           bool
	inner, theirs string
}

func (l *tunnelLab) device(in *testnet.Namespace, inner string) { l.address(in, "tun0", inner) }

// address waits for a device, and gives it an address.
func (l *tunnelLab) address(in *testnet.Namespace, device, inner string) {
	await(l.t, "the tunnel's device is there", func() bool { _, err := in.Links().LinkByName(device); return err == nil })
	length := "/24"
	if netip.MustParseAddr(inner).Is6() {
		length = "/64"
	}
	in.MustRun("ip", "link", "set", device, "up")
	in.Address(device, inner+length)
}

func (l *tunnelLab) at(address string, port int) string {
	return net.JoinHostPort(address, fmt.Sprint(port))
}

var tunnels = []tunnel{
	{
		name: "tun", needs: []testnet.Feature{tunDevices}, outer: "17/1194", spoke: true,
		open: func(l *tunnelLab) {
			l.ns.Start("/usr/bin/env", l.childArgs(command{Op: "tunnel", What: "tun0 " + l.at(l.here, 1194)})...)
			(&lab{l.t, l.client, l.dir}).startTunnel("tun0 " + l.at(l.there, 40000) + " " + l.at(l.here, 1194))
			l.device(l.ns, l.inner)
			l.device(l.client, l.theirs)
		},
	},
	{
		name: "wireguard", needs: []testnet.Feature{wireGuard}, outer: "17/51820",
		open: func(l *tunnelLab) {
			keys := [2]wgtypes.Key{}
			for i := range keys {
				var err error
				if keys[i], err = wgtypes.GeneratePrivateKey(); err != nil {
					l.t.Fatal(err)
				}
			}
			l.wireGuard(l.ns, keys[0], 51820, keys[1].PublicKey(), l.theirs, "")
			l.wireGuard(l.client, keys[1], 40000, keys[0].PublicKey(), l.inner, l.at(l.here, 51820))
			l.device(l.ns, l.inner)
			l.device(l.client, l.theirs)
		},
	},
	{name: "ipsec", needs: []testnet.Feature{ipsec}, outer: "50", open: func(l *tunnelLab) { l.ipsec() }},
	{
		name: "gre", needs: []testnet.Feature{greDevices}, outer: "47",
		open: func(l *tunnelLab) {
			kind := "gre"
			if l.six {
				kind = "ip6gre"
			}
			for _, side := range l.sides() {
				side.in.MustRun("ip", greDevice(kind, side.here, side.there)...)
				side.in.MustRun("ip", "link", "set", "tunnel0", "name", "tun0")
				l.device(side.in, side.inside)
			}
		},
	},
	{
		name: "in a bridge", needs: []testnet.Feature{ethernet}, outer: "17/4789 47",
		open: func(l *tunnelLab) {
			for _, side := range l.sides() {
				switch {
				case vxlan.Ask() == nil:
					side.in.MustRun("ip", vxlanDevice(side.here, side.there)...)
				case l.six:
					side.in.MustRun("ip", greDevice("ip6gretap", side.here, side.there)...)
				default:
					side.in.MustRun("ip", greDevice("gretap", side.here, side.there)...)
				}
				side.in.MustRun("ip", "link", "add", "tun0", "type", "bridge")
				side.in.MustRun("ip", "link", "set", "tunnel0", "up", "master", "tun0")
				l.device(side.in, side.inside)
			}
		},
	},
}

// side is one end of a tunnel.
type side struct {
	in                          *testnet.Namespace
	here, there, inside, theirs string
}

func (l *tunnelLab) sides() []side {
	return []side{{l.ns, l.here, l.there, l.inner, l.theirs}, {l.client, l.there, l.here, l.theirs, l.inner}}
}

func (l *lab) startTunnel(what string) {
	l.ns.Start("/usr/bin/env", l.childArgs(command{Op: "tunnel", What: what})...)
}

func (l *tunnelLab) wireGuard(in *testnet.Namespace, key wgtypes.Key, port int, peer wgtypes.Key, inside, endpoint string) {
	l.t.Helper()
	in.MustRun("ip", "link", "add", "tun0", "type", "wireguard")
	err := in.Do(func() error {
		c, err := wgctrl.New()
		if err != nil {
			return err
		}
		defer c.Close()
		p := wgtypes.PeerConfig{PublicKey: peer, AllowedIPs: []net.IPNet{{IP: net.ParseIP(inside), Mask: net.CIDRMask(32, 32)}}}
		if endpoint != "" {
			p.Endpoint = net.UDPAddrFromAddrPort(netip.MustParseAddrPort(endpoint))
		}
		return c.ConfigureDevice("tun0", wgtypes.Config{PrivateKey: &key, ListenPort: &port, Peers: []wgtypes.PeerConfig{p}})
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

// states are the keys of both ways.
func (l *tunnelLab) states(at side, more []string) {
	for spi, ends := range map[string][2]string{"0x100": {l.here, l.there}, "0x200": {l.there, l.here}} {
		at.in.MustRun("ip", slices.Concat([]string{"xfrm", "state", "add", "src", ends[0], "dst", ends[1]}, espState(spi), more)...)
	}
}

// ipsec makes states and policies in tunnel mode between the inner addresses, which
// are on loopback; no device is made. More is of the states.
func (l *tunnelLab) ipsec(more ...string) {
	for _, side := range l.sides() {
		side.in.MustRun("ip", "address", "add", side.inside+"/32", "dev", "lo")
		side.in.MustRun("ip", "route", "add", side.theirs+"/32", "dev", "eth0", "src", side.inside)
		l.states(side, more)
		policy := func(from, to, outerFrom, outerTo, dir string) {
			side.in.MustRun("ip", "xfrm", "policy", "add", "src", from, "dst", to, "dir", dir,
				"tmpl", "src", outerFrom, "dst", outerTo, "proto", "esp", "reqid", "1", "mode", "tunnel")
		}
		policy(side.inside, side.theirs, side.here, side.there, "out")
		policy(side.theirs, side.inside, side.there, side.here, "in")
	}
}

func newTunnelLab(t *testing.T, kind tunnel, six bool) *tunnelLab {
	t.Helper()
	testnet.Require(t, append(kind.needs, testnet.Nftables)...)
	t.Setenv("SSH_CONNECTION", "")
	n := testnet.New(t)
	l := &tunnelLab{lab: &lab{t, n.Unnamed("host"), t.TempDir()}, client: n.Unnamed("client"), six: six, inner: "10.8.0.1", theirs: "10.8.0.2"}
	l.here, l.there = "192.0.2.1", "192.0.2.2"
	if six {
		l.here, l.there = "2001:db8::1", "2001:db8::2"
	}
	if kind.inner6 {
		l.inner, l.theirs = "2001:db8:8::1", "2001:db8:8::2"
	}
	n.Join(testnet.End{In: l.ns, Device: "eth0", Addresses: []string{"192.0.2.1/24", "2001:db8::1/64"}},
		testnet.End{In: l.client, Device: "eth0", Addresses: []string{"192.0.2.2/24", "2001:db8::2/64"}})
	kind.open(l)
	l.ns.ServeTCP(l.at(l.inner, 22))
	return l
}

// login is an ssh session through the tunnel.
func (l *tunnelLab) login() *testnet.Conn {
	l.t.Helper()
	var conn *testnet.Conn
	await(l.t, "somebody logs in through the tunnel", func() bool {
		_, conn = l.client.OpenTCP(testnet.TCPTry{To: netip.MustParseAddrPort(l.at(l.inner, 22)), Patience: time.Second})
		return conn != nil
	})
	l.t.Cleanup(conn.Close)
	return conn
}

func (l *tunnelLab) lives(conn *testnet.Conn) bool {
	return conn.Exchange("still there?", testnet.Patience).Outcome == testnet.Answered
}

// marked gives the entries of the outer flow a mark, and says how many entries of
// it have none: those were made since.
const oldMark = 77

func (l *tunnelLab) outerEntries() (marked, other int) {
	l.t.Helper()
	err := l.ns.Do(func() error {
		list, err := conntrack.List()
		for _, e := range list {
			switch a := netip.MustParseAddr(l.there); {
			case e.Original.Source != a && e.Original.Destination != a:
			case e.Mark == oldMark:
				marked++
			default:
				other++
			}
		}
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return marked, other
}

// TestGuardFollowsTunnels: somebody is logged in through a tunnel whose own packets
// the policy refuses when no state is left of them.
func TestGuardFollowsTunnels(t *testing.T) {
	for i, kind := range append(tunnels, otherTunnels...) {
		for j, family := range []string{"IPv4", "IPv6"} {
			if kind.family != "" && kind.family != family || kind.family == "" && testing.Short() && i%2 != j {
				continue
			}
			t.Run(kind.name+" over "+family, func(t *testing.T) {
				l := newTunnelLab(t, kind, family == "IPv6")
				conn := l.login()
				if !l.lives(conn) {
					t.Fatal("the session does not work at all")
				}
				out, err := l.run(command{Op: "apply", Policy: "a ssh", Described: true})
				if want := "this policy locks out " + l.theirs + ", who is logged in through "; kind.spoke {
					if err == nil || !strings.Contains(out, want) && !strings.Contains(out, "cannot determine whether this policy locks out "+l.theirs) {
						t.Errorf("without the tunnel's packets: %v: %s", err, out)
					}
				} else if err == nil || !strings.Contains(out, want) || !strings.Contains(out, "nothing changed") {
					t.Errorf("without the tunnel's packets: %v: %s", err, out)
				}
				l.wantHolds("")

				// All that is needed: it is on trial, and the tunnel starts again.
				open := "a ssh " + kind.outer
				l.must(command{Op: "apply", Policy: open, Described: true})
				if !l.lives(conn) {
					t.Fatal("the session ended by a policy that lets the tunnel in")
				}
				l.ns.MustRun("nft", "add table inet marks; add chain inet marks in { type filter hook input priority 300; }; add rule inet marks in ct mark set 77")
				if !l.lives(conn) {
					t.Fatal("the session ended")
				}
				l.ns.MustRun("nft", "delete table inet marks")
				if marked, _ := l.outerEntries(); marked == 0 {
					t.Fatal("no entry of the outer flow is marked")
				}
				l.must(command{Op: "apply", Policy: "b ssh " + kind.outer, Described: true, Confirm: time.Hour})
				if marked, _ := l.outerEntries(); marked != 0 {
					t.Errorf("%d entries of the outer flow outlive the switch", marked)
				}
				if !l.lives(conn) {
					t.Error("the session ended by a policy that lets the tunnel in as new")
				}
				l.must(command{Op: "confirm"})

				// Forced, the trial shows what it comes to.
				if out, err := l.run(command{Op: "apply", Policy: "c ssh", Described: true, Confirm: time.Hour}); err == nil || !strings.Contains(out, "this policy locks out "+l.theirs+", who is logged in through ") {
					t.Errorf("on trial, without the tunnel's packets: %v: %s", err, out)
				}
				out = l.must(command{Op: "apply", Policy: "c ssh", Described: true, Confirm: time.Hour, Force: true})
				if !strings.Contains(out, "who is logged in through") {
					t.Errorf("forced: %s", out)
				}
				if r := conn.Exchange("still there?", time.Second); r.Outcome == testnet.Answered {
					t.Error("the tunnel lives on by its state, so a confirmation through it would prove nothing")
				}
				l.must(command{Op: "rollback", N: Before})
				if !l.lives(conn) {
					t.Error("the session is not back after the roll-back")
				}
			})
		}
	}
}

// TestBanOfATunnel: the address that a tunnel comes from cannot be banned while
// somebody is logged in through it.
func TestBanOfATunnel(t *testing.T) {
	for _, family := range []string{"IPv4", "IPv6"} {
		t.Run(family, func(t *testing.T) {
			l := newTunnelLab(t, tunnels[0], family == "IPv6")
			l.must(command{Op: "apply", Policy: "a ssh 17/1194 bans"})
			conn := l.login()
			if out := l.must(command{Op: "ban", What: l.there, Described: true}); !strings.Contains(out, "banned 0") || !strings.Contains(out, "tun0 comes from "+l.there+", and 10.8.0.2 is logged in through it now") {
				t.Errorf("banned: %s", out)
			}
			if !l.lives(conn) {
				t.Error("the session ended")
			}
		})
	}
}

// tunnelRules are what names of policies add: "ssh" lets ssh in, and what the
// neighbours need of ICMPv6; "17/1194" and "50" protocols and ports.
func tunnelRules(words []string) (rules []program.Rule) {
	accept := func(text string, match ...program.Condition) {
		rules = append(rules, program.Rule{Match: match, Actions: []program.Action{program.Accept}, Origin: program.Origin{File: "tunnel.yaml", Line: len(rules) + 10, Text: text}})
	}
	number := func(f program.Field, n uint64) program.Condition {
		return program.Condition{Field: f, Numbers: []program.NumberRange{{From: n, To: n}}}
	}
	for _, w := range words {
		var protocol, port uint64
		switch n, _ := fmt.Sscanf(w, "%d/%d", &protocol, &port); {
		case w == "ssh":
			accept("allow ssh", number(program.Protocol, 6), number(program.Port, 22))
			accept("neighbours", number(program.Protocol, 58))
		case n == 2:
			accept("allow "+w, number(program.Protocol, protocol), number(program.Port, port))
		case n == 1:
			accept("allow proto/"+w, number(program.Protocol, protocol))
		}
	}
	return rules
}
