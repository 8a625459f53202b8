package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/engine"
	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/drops"
	"sluice/internal/system/kernel/netns"
)

var seesDrops = testnet.Probed("packets that are dropped (BTF)", func() error {
	w, err := drops.Watch(1)
	if err == nil {
		w.Close()
	}
	return err
})

const dropsEnough = time.Minute

// watching shows what is dropped in a namespace, until found says of a packet that it is
// the one; then it gives it, and what was counted.
func watching(t *testing.T, in *testnet.Namespace, c engine.DropChoice, send func() error, found func(engine.Dropped) bool) (engine.Dropped, *engine.DropCounts) {
	t.Helper()
	h, err := engine.NewHost(t.TempDir(), "", "test")
	if err != nil {
		t.Fatal(err)
	}
	h.Warn = func(text string) { t.Error(text) }
	if h.Netns, err = netns.Open(in.Path()); err != nil {
		t.Fatal(err)
	}
	defer h.Netns.Close()
	ctx, stop := context.WithTimeout(t.Context(), dropsEnough)
	defer stop()
	type ended struct {
		counts *engine.DropCounts
		err    error
	}
	seen, end := make(chan engine.Dropped, 4096), make(chan ended, 1)
	go func() {
		counts, err := h.Drops(ctx, c, func(d engine.Dropped) { seen <- d }, func(engine.DropCounts) {})
		end <- ended{counts, err}
	}()
	var last []engine.Dropped
	for again := time.NewTicker(50 * time.Millisecond); ; {
		select {
		case d := <-seen:
			if last = append(last, d); found(d) {
				stop()
				e := <-end
				if e.err != nil {
					t.Fatal(e.err)
				}
				return d, e.counts
			}
		case <-again.C:
			if err := send(); err != nil {
				t.Fatal(err)
			}
		case e := <-end:
			text, _ := json.MarshalIndent(last, "", " ")
			t.Fatalf("not seen: %s %v %v", text, e.counts, e.err)
		}
	}
}

func udpTo(in *testnet.Namespace, to string) func() error {
	return func() error {
		return in.Do(func() error {
			c, err := net.Dial("udp", to)
			if err != nil {
				return err
			}
			defer c.Close()
			_, _ = c.Write([]byte("hello")) // a rule may refuse it
			return nil
		})
	}
}

// TestDropReasons has the kernel drop packets in many ways, each with its reason, function,
// hook and packet.
func TestDropReasons(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Namespaces, testnet.Nftables, seesDrops)
	for name, tc := range map[string]struct {
		rules     string
		to        string
		reason    string
		functions []string
		hook      string
	}{
		"input":       {"hook input priority 0; udp dport 9 drop", "127.0.0.1:9", "NETFILTER_DROP", []string{"nft_do_chain", "nf_hook_slow"}, "input"},
		"input6":      {"hook input priority 0; udp dport 9 drop", "[::1]:9", "NETFILTER_DROP", []string{"nft_do_chain", "nf_hook_slow"}, "input"},
		"prerouting":  {"hook prerouting priority -300; udp dport 9 drop", "127.0.0.1:9", "NETFILTER_DROP", []string{"nft_do_chain", "nf_hook_slow"}, "prerouting"},
		"output":      {"hook output priority 0; udp dport 9 drop", "127.0.0.1:9", "NETFILTER_DROP", []string{"nft_do_chain", "nf_hook_slow"}, "output"},
		"postrouting": {"hook postrouting priority 0; udp dport 9 drop", "127.0.0.1:9", "NETFILTER_DROP", []string{"nft_do_chain", "nf_hook_slow"}, "postrouting"},
		"no socket":   {"", "127.0.0.1:9", "NO_SOCKET", []string{"__udp4_lib_rcv"}, ""},
		"no socket6":  {"", "[::1]:9", "NO_SOCKET", []string{"__udp6_lib_rcv"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := testnet.New(t).Unnamed("host")
			if tc.rules != "" {
				n.Nft("table inet t { chain c { type filter " + tc.rules + "\n }\n }")
			}
			to := netip.MustParseAddrPort(tc.to)
			d, counts := watching(t, n, engine.DropChoice{}, udpTo(n, tc.to), func(d engine.Dropped) bool { return d.Port == 9 && d.Protocol == "udp" })
			if d.Reason != tc.reason || !slices.Contains(tc.functions, d.Function) || d.Hook != tc.hook || d.Destination != to.Addr() || d.Source != to.Addr() || d.SourcePort == 0 || len(d.Callers) == 0 || d.Time.IsZero() {
				t.Errorf("%+v", d)
			}
			if tc.hook != "output" && tc.hook != "postrouting" && d.In != "lo" {
				t.Errorf("it came in by %q", d.In)
			}
			place := engine.DropPlace{Reason: d.Reason, Function: d.Function}
			if i := slices.IndexFunc(counts.Places, func(p engine.DropPlace) bool { place.Packets = p.Packets; return p == place && p.Packets > 0 }); i < 0 || counts.By != engine.ByTracepoint {
				t.Errorf("%+v", counts)
			}
		})
	}
}

// TestDropsOnTheWire has packets come from another host: forged, broken, in pieces.
func TestDropsOnTheWire(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Namespaces, testnet.Nftables, seesDrops)
	lab := testnet.New(t)
	host, peer := lab.Unnamed("host"), lab.Unnamed("peer")
	const device = "e\x1b[31m\"x" // a name that the kernel takes
	_, from := lab.Join(testnet.End{In: host, Device: device, Addresses: []string{"192.0.2.1/24", "2001:db8::1/64"}}, testnet.End{In: peer, Device: "eth0", Addresses: []string{"192.0.2.2/24", "2001:db8::2/64"}})
	host.Sysctl("net.ipv4.conf.all.rp_filter", "1")
	own, six := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	port := func(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(a, 9) }
	forged := netip.MustParseAddr("203.0.113.66")
	bad := testnet.UDP(netip.MustParseAddrPort("192.0.2.2:7"), port(own), 'x')
	bad[10] ^= 0xff // the checksum of the header
	short := testnet.UDP(netip.MustParseAddrPort("192.0.2.2:7"), port(own), 'x')[:22]
	pieces := testnet.Fragments(testnet.UDP(netip.MustParseAddrPort("192.0.2.2:7"), port(own), make([]byte, 600)...), 7, 256)
	pieces6 := testnet.Fragments(testnet.UDP(netip.MustParseAddrPort("[2001:db8::2]:7"), port(six), make([]byte, 600)...), 8, 256)
	host.Nft("table inet t { chain c { type filter hook prerouting priority -450; ip frag-off & 0x1fff != 0 drop\n frag frag-off != 0 drop\n }\n }")
	for name, tc := range map[string]struct {
		packet  []byte
		reasons []string
		is      func(engine.Dropped) bool
	}{
		"rp_filter":          {testnet.UDP(netip.AddrPortFrom(forged, 7), port(own), 'x'), []string{"IP_RPFILTER"}, func(d engine.Dropped) bool { return d.Source == forged && d.Port == 9 }},
		"checksum of IP":     {bad, []string{"IP_CSUM"}, func(d engine.Dropped) bool { return d.Reason == "IP_CSUM" && d.Port == 9 }},
		"cut off":            {short, []string{"PKT_TOO_SMALL"}, func(d engine.Dropped) bool { return d.Reason == "PKT_TOO_SMALL" }},
		"a later fragment":   {pieces[1], []string{"NETFILTER_DROP"}, func(d engine.Dropped) bool { return d.Hook == "prerouting" && d.Source.Is4() && d.Port == 0 }},
		"a later fragment 6": {pieces6[1], []string{"NETFILTER_DROP"}, func(d engine.Dropped) bool { return d.Hook == "prerouting" && d.Source.Is6() && d.Port == 0 }},
		"no protocol":        {testnet.Protocol(netip.MustParseAddr("192.0.2.2"), own, 253, 1, 2, 3), []string{"IP_NOPROTO"}, func(d engine.Dropped) bool { return d.Protocol == "proto/253" }},
	} {
		t.Run(name, func(t *testing.T) {
			d, _ := watching(t, host, engine.DropChoice{}, func() error { return from.Send(tc.packet) }, tc.is)
			if !slices.Contains(tc.reasons, d.Reason) || d.In != device {
				t.Errorf("%+v", d)
			}
		})
	}
	t.Run("chosen", func(t *testing.T) {
		send := func() error {
			return from.Send(testnet.UDP(netip.AddrPortFrom(forged, 7), port(own), 'x'), testnet.UDP(netip.MustParseAddrPort("192.0.2.2:7"), port(own), 'x'), pieces[1])
		}
		for _, c := range []struct {
			engine.DropChoice
			is func(engine.Dropped) bool
		}{
			{engine.DropChoice{Source: "203.0.113.0/24"}, func(d engine.Dropped) bool { return d.Source == forged }},
			{engine.DropChoice{Reason: "no-socket", Interface: device}, func(d engine.Dropped) bool { return d.Reason == "NO_SOCKET" }},
			{engine.DropChoice{Function: "__udp4_lib_rcv"}, func(d engine.Dropped) bool { return d.Function == "__udp4_lib_rcv" }},
		} {
			if d, counts := watching(t, host, c.DropChoice, send, func(engine.Dropped) bool { return true }); !c.is(d) || counts.Looked == 0 || counts.Packets < counts.Looked {
				t.Errorf("%+v: %+v, %+v", c.DropChoice, d, counts)
			}
		}
	})
}

// TestDropsOfListener fills the queue of a server that accepts nobody: a handshake finds no
// room at its end.
func TestDropsOfListener(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Namespaces, testnet.Nftables, seesDrops)
	lab := testnet.New(t)
	host, peer := lab.Unnamed("host"), lab.Unnamed("peer")
	lab.Join(testnet.End{In: host, Device: "eth0", Addresses: []string{"192.0.2.1/24"}}, testnet.End{In: peer, Device: "eth0", Addresses: []string{"192.0.2.2/24"}})
	fd := -1
	if err := host.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Port: 9}), unix.Listen(fd, 1))
	}); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var clients []net.Conn
	connect := func() {
		t.Helper()
		if err := peer.Do(func() error {
			c, err := net.Dial("tcp", "192.0.2.1:9")
			if err == nil {
				t.Cleanup(func() { _ = c.Close() })
				clients = append(clients, c)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	connect() // one of two places
	peer.Nft("table inet t { chain c { type filter hook output priority 0; tcp dport 9 tcp flags & (syn | psh | ack) == ack drop\n }\n }")
	connect() // whose handshake is not over
	peer.Nft("delete table inet t")
	connect() // the other place
	d, _ := watching(t, host, engine.DropChoice{}, func() error {
		for _, c := range clients {
			_, _ = c.Write([]byte("x")) // until it is reset
		}
		return nil
	}, func(d engine.Dropped) bool { return d.Port == 9 && strings.Contains(d.Flags, "ack") })
	if d.Function != "tcp_v4_rcv" || d.Reason != "TCP_LISTEN_OVERFLOW" && namesOverflow() || d.In != "eth0" || d.Hook != "" || d.Source.String() != "192.0.2.2" {
		t.Errorf("%+v", d)
	}
}

// namesOverflow says whether the kernel has a name for it.
func namesOverflow() bool {
	w, err := drops.Watch(1)
	if err != nil {
		return false
	}
	defer w.Close()
	return slices.Contains(w.Reasons(), "TCP_LISTEN_OVERFLOW")
}

// TestDropsOfOthers shows nothing of another namespace.
func TestDropsOfOthers(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Namespaces, seesDrops)
	lab := testnet.New(t)
	own, other := lab.Unnamed("own"), lab.Unnamed("other")
	sent := 0
	_, counts := watching(t, own, engine.DropChoice{}, func() error {
		if sent++; sent < 10 {
			return udpTo(other, "127.0.0.1:11")()
		}
		return udpTo(own, "127.0.0.1:12")()
	}, func(d engine.Dropped) bool {
		if d.Port == 11 {
			t.Errorf("of another: %+v", d)
		}
		return d.Port == 12
	})
	if len(counts.Places) != 1 || counts.Looked == 0 || counts.Looked > counts.Packets {
		t.Errorf("%+v", counts)
	}
}

// TestNoDrops says so, and an empty list is one.
func TestNoDrops(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Namespaces, seesDrops)
	n := testnet.New(t).Unnamed("host")
	h, err := engine.NewHost(t.TempDir(), "", "test")
	if err != nil {
		t.Fatal(err)
	}
	if h.Netns, err = netns.Open(n.Path()); err != nil {
		t.Fatal(err)
	}
	defer h.Netns.Close()
	counts, err := h.Drops(t.Context(), engine.DropChoice{Function: "none", Seconds: 0.1}, nil, nil)
	if text, _ := json.Marshal(counts); err != nil || !strings.Contains(string(text), `"packets":0,"places":[],"looked-at":0`) {
		t.Errorf("%s %v", text, err)
	}
}

// TestDropChoice refuses what is not a choice.
func TestDropChoice(t *testing.T) {
	t.Parallel()
	testnet.Require(t, seesDrops)
	h, err := engine.NewHost(t.TempDir(), "", "test")
	if err != nil {
		t.Fatal(err)
	}
	for text, c := range map[string]engine.DropChoice{
		`did you mean "NO_SOCKET"?`: {Reason: "no-sockt"},
		"--src: ":                   {Source: "nowhere", Called: map[string]string{"source": "--src"}},
	} {
		if _, err := h.Drops(t.Context(), c, nil, nil); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
