package apply

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/conntrack"
)

// connection has both ends of a TCP connection.
type connection struct{ client, server net.Conn }

// connect opens a connection between namespaces; the server listens at a port of this
// host's choice where the address has none, and stops to listen with the test.
func connect(t *testing.T, from, to *testnet.Namespace, listen, dial string) connection {
	t.Helper()
	var listener net.Listener
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(to.Do(func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", listen)
		return err
	}))
	t.Cleanup(func() { _ = listener.Close() })
	var c connection
	must(from.Do(func() (err error) {
		c.client, err = net.DialTimeout("tcp", dial, time.Minute)
		return err
	}))
	server, err := listener.Accept()
	must(err)
	c.server = server
	t.Cleanup(func() { _ = c.client.Close(); _ = c.server.Close() })
	return c
}

// speaks sends from one end, which was idle, and says whether the other one gets it.
func speaks(from, to net.Conn, within time.Duration) bool {
	if _, err := from.Write([]byte("still there?")); err != nil {
		return false
	}
	_ = to.SetReadDeadline(time.Now().Add(within))
	defer func() { _ = to.SetReadDeadline(time.Time{}) }()
	got := make([]byte, 12)
	_, err := io.ReadFull(to, got)
	return err == nil
}

// copies sends more than any window holds, both ways at once.
func (c connection) copies() error {
	data := make([]byte, 4<<20)
	_, _ = rand.Read(data)
	errs := make(chan error, 4)
	for _, way := range [][2]net.Conn{{c.client, c.server}, {c.server, c.client}} {
		go func() {
			_, err := way[0].Write(data)
			errs <- err
		}()
		go func() {
			_ = way[1].SetReadDeadline(time.Now().Add(time.Minute))
			_, err := io.ReadFull(way[1], make([]byte, len(data)))
			errs <- err
		}()
	}
	var failure error
	for range cap(errs) {
		if err := <-errs; err != nil {
			failure = err
		}
	}
	return failure
}

// router joins a host to a network inside and one outside, in both families.
func router(t *testing.T, forwards bool) (l *lab, inside, outside *testnet.Namespace) {
	t.Helper()
	testnet.Require(t, testnet.Nftables)
	n := testnet.New(t)
	host, inside, outside := n.Unnamed("host"), n.Unnamed("inside"), n.Unnamed("outside")
	n.Join(testnet.End{In: host, Device: "lan0", Addresses: []string{"10.0.0.1/24", "fd00:a::1/64"}}, testnet.End{In: inside, Device: "eth0", Addresses: []string{"10.0.0.2/24", "fd00:a::2/64"}})
	n.Join(testnet.End{In: host, Device: "wan0", Addresses: []string{"192.0.2.1/24", "2001:db8::1/64"}}, testnet.End{In: outside, Device: "eth0", Addresses: []string{"192.0.2.2/24", "2001:db8::2/64"}})
	forward := "0"
	if forwards {
		forward = "1"
	}
	host.MustRun("sysctl", "-qw", "net.ipv4.ip_forward="+forward, "net.ipv6.conf.all.forwarding="+forward)
	inside.MustRun("ip", "route", "add", "default", "via", "10.0.0.1")
	inside.MustRun("ip", "route", "add", "default", "via", "fd00:a::1")
	outside.MustRun("ip", "route", "add", "default", "via", "192.0.2.1")
	outside.MustRun("ip", "route", "add", "default", "via", "2001:db8::1")
	return &lab{t, host, t.TempDir()}, inside, outside
}

func (l *lab) grace() time.Duration {
	l.t.Helper()
	var left time.Duration
	err := l.ns.Do(func() error {
		have, err := nftables.New().Read(context.Background(), true)
		if err == nil {
			left = have.(backend.Transitional).Grace()
		}
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return left
}

// TestOwnConnectionsLive: idle connections of the host itself live through its first
// policy and through the end of a bypass, though their next packet comes from outside;
// and no grace is begun for them.
func TestOwnConnectionsLive(t *testing.T) {
	l, _, outside := router(t, false)
	host := l.ns
	// Ports that no rule allows.
	own := map[string]connection{
		"IPv4, the host is the client":             connect(t, host, outside, "192.0.2.2:6001", "192.0.2.2:6001"),
		"IPv6, the host is the client":             connect(t, host, outside, "[2001:db8::2]:6002", "[2001:db8::2]:6002"),
		"IPv4, the host is the server":             connect(t, outside, host, "192.0.2.1:6003", "192.0.2.1:6003"),
		"IPv6, the host is the server":             connect(t, outside, host, "[2001:db8::1]:6004", "[2001:db8::1]:6004"),
		"IPv4 at a socket of IPv6":                 connect(t, outside, host, "[::]:6005", "192.0.2.1:6005"),
		"IPv4, the host has sent all":              connect(t, host, outside, "192.0.2.2:6006", "192.0.2.2:6006"),
		"IPv4, a service that bypasses tracking":   connect(t, outside, host, "192.0.2.1:5000", "192.0.2.1:5000"),
		"IPv6, client of the port of that service": connect(t, host, outside, "[2001:db8::2]:5000", "[2001:db8::2]:5000"),
	}
	if err := own["IPv4, the host has sent all"].client.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	far := func(name string, c connection) (from, to net.Conn) {
		if strings.Contains(name, "server") || strings.Contains(name, "service that") || strings.Contains(name, "socket of") {
			return c.client, c.server
		}
		return c.server, c.client
	}
	out := l.must(command{Op: "apply", Policy: "a bypass", Grace: time.Hour})
	if want := fmt.Sprintf("entries %d grace 0 own false", len(own)-1); !strings.Contains(out, want) {
		t.Errorf("%s, want %s", out, want)
	}
	if left := l.grace(); left != 0 {
		t.Errorf("a grace was begun: %s", left)
	}
	began := map[uint16]netip.Addr{} // port of the server to whoever began
	err := host.Do(func() error {
		entries, err := conntrack.List()
		for _, e := range entries {
			began[e.Original.DestinationPort] = e.Original.Source
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for port, by := range map[uint16]string{6001: "192.0.2.1", 6002: "2001:db8::1", 6003: "192.0.2.2", 6004: "2001:db8::2", 6005: "192.0.2.2"} {
		if began[port] != netip.MustParseAddr(by) {
			t.Errorf("the connection to port %d was begun by %s, says its entry; it was by %s", port, began[port], by)
		}
	}
	out = l.must(command{Op: "apply", Policy: "a router", Grace: time.Hour}) // the bypass ends
	if !strings.Contains(out, "entries 1 grace 0 own false") || l.grace() != 0 {
		t.Errorf("the bypass ends: %s, grace %s", out, l.grace())
	}
	for name, c := range own {
		if from, to := far(name, c); !speaks(from, to, time.Minute) {
			t.Errorf("%s: the next packet from outside is refused", name)
		}
		if !strings.Contains(name, "has sent all") {
			if err := c.copies(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	l.wantHoldsRouter()
}

// wantHoldsRouter compares as status does, and wants nothing left of a transition.
func (l *lab) wantHoldsRouter() {
	l.t.Helper()
	if s := l.status(); !s.Fine() {
		l.t.Errorf("status: %+v", s)
	}
	if text := l.ns.MustRun("nft", "list", "table", "inet", "sluice"); strings.Contains(text, "grace") {
		l.t.Errorf("something of a grace is there:\n%s", text)
	}
}

// TestForwardedGrace: connections through the host have the time that the policy gives
// to send a packet. The kernel ends it, also where the command was killed.
func TestForwardedGrace(t *testing.T) {
	for _, family := range []string{"IPv4", "IPv6"} {
		t.Run(family, func(t *testing.T) {
			l, inside, outside := router(t, true)
			to := func(port string) string {
				if family == "IPv6" {
					return "[2001:db8::2]:" + port
				}
				return "192.0.2.2:" + port
			}
			speaking, idle := connect(t, inside, outside, to("6001"), to("6001")), connect(t, inside, outside, to("6002"), to("6002"))
			out := l.must(command{Op: "apply", Policy: "a router", Grace: time.Hour})
			if !strings.Contains(out, "entries 0 grace 3600 own false") || l.grace() == 0 {
				t.Fatalf("no grace was begun: %s", out)
			}
			if s := l.status(); !s.Fine() || s.Grace == 0 {
				t.Errorf("status within the grace: %+v", s)
			}
			if text := l.must(command{Op: "verify"}); !strings.Contains(text, `"grace":3`) || !strings.Contains(text, `"proved":true`) {
				t.Errorf("verify within the grace: %s", text)
			}
			if !speaks(speaking.server, speaking.client, time.Minute) {
				t.Error("a packet from outside is refused within the grace")
			}
			l.ns.Nft("flush set inet sluice grace/tcp; add element inet sluice grace/tcp { tcp timeout 2h }") // somebody else
			if text := l.must(command{Op: "verify"}); !strings.Contains(text, `"longer"`) || strings.Contains(text, `"proved":true`) {
				t.Errorf("a grace of two hours is not told of: %s", text)
			}
			l.ns.Nft("flush set inet sluice grace/tcp") // as the kernel does when its time is over
			if s := l.status(); !s.Fine() || s.Grace != 0 {
				t.Errorf("status behind the grace: %+v", s)
			}
			if err := speaking.copies(); err != nil {
				t.Errorf("a connection that spoke within the grace ended: %v", err)
			}
			if speaks(idle.server, idle.client, time.Second) {
				t.Error("behind the grace, a packet of a connection that nobody knows passes")
			}
			if out := l.must(command{Op: "apply", Policy: "a router", Grace: time.Hour}); !strings.Contains(out, "unchanged true") {
				t.Errorf("the same again: %s", out)
			}
			l.must(command{Op: "apply", Policy: "b router", Grace: time.Hour})
			l.wantHoldsRouter()
		})
	}
}

// wentBack waits until a trial is over and its watchers are gone.
func (l *lab) wentBack() {
	l.t.Helper()
	pending := l.status().Pending
	await(l.t, "it went back", func() bool { return l.status().Pending == nil })
	if pending != nil {
		await(l.t, "the watchers end", func() bool {
			return !watches(pending.PID, pending.Token) && !watches(pending.Spare, pending.Token)
		})
	}
}

// TestGraceComesBack undoes changes to policies that give no grace, or a shorter one,
// within the grace of the policy before: the rest of it comes back, and no more.
func TestGraceComesBack(t *testing.T) {
	const whole = time.Hour
	for name, undo := range map[string]func(l *lab, grace time.Duration){
		"a change that fails": func(l *lab, grace time.Duration) {
			if out, err := l.run(command{Op: "apply", Policy: "b router", Expected: "c router", Grace: grace}); err == nil {
				l.t.Fatalf("it did not fail: %s", out)
			}
		},
		"a trial that nobody confirms": func(l *lab, grace time.Duration) {
			l.must(command{Op: "apply", Policy: "b router", Grace: grace, Confirm: 2 * time.Second})
			l.wentBack()
		},
		"a trial behind a trial": func(l *lab, grace time.Duration) {
			l.must(command{Op: "apply", Policy: "b router", Grace: grace, Confirm: time.Hour})
			l.must(command{Op: "apply", Policy: "c router", Grace: grace, Confirm: 2 * time.Second})
			l.wentBack()
		},
	} {
		for i, grace := range []time.Duration{0, time.Minute} {
			for j, family := range []string{"IPv4", "IPv6"} {
				if testing.Short() && i != j {
					continue
				}
				t.Run(fmt.Sprint(name, " to ", grace, " ", family), func(t *testing.T) {
					t.Parallel()
					l, inside, outside := router(t, true)
					to := "192.0.2.2:6001"
					if family == "IPv6" {
						to = "[2001:db8::2]:6001"
					}
					idle := connect(t, inside, outside, to, to)
					l.must(command{Op: "apply", Policy: "a router", Grace: whole})
					began := l.status().Grace
					undo(l, grace)
					if s := l.status(); !s.Fine() || s.Generation == nil || s.Generation.Number != 1 || s.Grace == 0 || s.Grace > began {
						t.Errorf("of a grace with %v s left there are %v, and status is %+v", began, s.Grace, s)
					}
					if !speaks(idle.server, idle.client, time.Minute) {
						t.Error("a connection that was idle is refused")
					}
				})
			}
		}
	}
}

// TestNoGraceAheadOfTheNetwork: at boot, rules are loaded before an interface is up, and
// no connection runs through the host that would need a grace. Behind that one is begun.
func TestNoGraceAheadOfTheNetwork(t *testing.T) {
	l, _, _ := router(t, true)
	l.must(command{Op: "apply", Policy: "a router", Grace: time.Hour})
	for _, device := range []string{"lan0", "wan0"} {
		l.ns.MustRun("ip", "link", "set", device, "down")
	}
	l.reboot()
	l.must(command{Op: "restore"})
	if left := l.grace(); left != 0 {
		t.Errorf("ahead of the network a grace was begun: %s", left)
	}
	l.wantHoldsRouter()
	l.ns.MustRun("ip", "link", "set", "wan0", "up")
	l.reboot()
	l.must(command{Op: "restore"})
	if l.grace() == 0 {
		t.Error("with an interface up, no grace was begun")
	}
}

// TestGraceOfAKilledCommand: it ends by itself.
func TestGraceOfAKilledCommand(t *testing.T) {
	l, inside, outside := router(t, true)
	trace := filepath.Join(t.TempDir(), "points")
	first := &lab{t, l.ns, t.TempDir()}
	first.must(command{Op: "apply", Policy: "a router", Grace: time.Hour, Trace: trace})
	first.must(command{Op: "remove"})
	at := pointBehind(t, trace, "after switch")
	idle := connect(t, inside, outside, "192.0.2.2:6001", "192.0.2.2:6001")
	own := connect(t, l.ns, outside, "192.0.2.2:6002", "192.0.2.2:6002")
	if _, err := l.run(command{Op: "apply", Policy: "a router", Grace: 200 * time.Millisecond, KillAt: at}); err == nil {
		t.Fatal("the command was not killed")
	}
	if text := l.ns.MustRun("nft", "list", "table", "inet", "sluice"); !strings.Contains(text, "grace/tcp") {
		t.Fatalf("the command was killed before the switch:\n%s", text)
	}
	await(t, "the grace is over", func() bool { return l.grace() == 0 })
	if speaks(idle.server, idle.client, time.Second) {
		t.Error("behind the grace, a packet of a connection that nobody knows passes")
	}
	if !speaks(own.server, own.client, time.Minute) {
		t.Error("the host's own connection has no entry")
	}
	l.must(command{Op: "settle"})
	if s := l.status(); !s.Fine() {
		t.Errorf("status: %+v", s)
	}
}

// pointBehind is the number of the first point whose name begins so, in a trace.
func pointBehind(t *testing.T, trace, name string) string {
	t.Helper()
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, name) {
			return strconv.Itoa(i + 1)
		}
	}
	t.Fatalf("no point %q in %s", name, text)
	return ""
}
