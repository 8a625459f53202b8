package apply

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/testnet"
	"sluice/internal/program"
	"sluice/internal/system/kernel/conntrack"
)

// TestCut has connections that the new policy allows, refuses, and forwards.
func TestCut(t *testing.T) {
	testnet.Require(t, testnet.Nftables)
	net := testnet.New(t)
	host, client := net.Unnamed("host"), net.Unnamed("client")
	net.Join(testnet.End{In: host, Device: "eth0", Addresses: []string{"10.0.0.1/24"}}, testnet.End{In: client, Device: "eth0", Addresses: []string{"10.0.0.2/24"}})
	host.ServeTCP("10.0.0.1:7000", "10.0.0.1:7001")
	l := &lab{t, host, t.TempDir()}
	l.must(command{Op: "apply", Policy: "a"})
	open := func(port uint16) *testnet.Conn {
		t.Helper()
		r, conn := client.OpenTCP(testnet.TCPTry{To: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port)})
		if conn == nil {
			t.Fatalf("port %d: %s", port, r)
		}
		t.Cleanup(conn.Close)
		return conn
	}
	kept, refused := open(7000), open(7001)
	// Without cut, what is open lives on by its state.
	l.must(command{Op: "apply", Policy: "b"})
	if r := refused.Exchange("still there?", 0); r.Outcome != testnet.Answered {
		t.Fatalf("an open flow ended without cut: %s", r)
	}
	if out := l.must(command{Op: "apply", Policy: "b", Cut: true}); !strings.Contains(out, "cut 1") {
		t.Errorf("cut: %s", out)
	}
	if r := kept.Exchange("still there?", 0); r.Outcome != testnet.Answered {
		t.Errorf("a flow that the policy allows was cut: %s", r)
	}
	if r := refused.Exchange("still there?", 500*time.Millisecond); r.Outcome == testnet.Answered {
		t.Errorf("a flow that the policy refuses was not cut: %s", r)
	}
}

// TestBansEndUntrackedConnections: a ban ends the host's own connections with who is
// banned, though nobody tracks them, and no others.
func TestBansEndUntrackedConnections(t *testing.T) {
	l, _, outside := router(t, false)
	far := connect(t, l.ns, outside, "192.0.2.2:6001", "192.0.2.2:6001").server
	connect(t, l.ns, outside, "[2001:db8::2]:6002", "[2001:db8::2]:6002")
	p := &program.Program{
		Sets:   []program.Set{{ID: "bad", Key: []program.Field{program.Source}, Addresses: addrset.FromPrefixes(netip.MustParsePrefix("192.0.2.2/32"))}},
		Chains: []program.Chain{{Rules: []program.Rule{{Stage: program.StageBanFlows, Comment: "bad", Match: []program.Condition{{Field: program.Source, Set: "bad"}}}}}},
	}
	var out *EndedFlows
	err := l.ns.Do(func() (err error) {
		out, err = endedFlows(p)
		return err
	})
	want := &EndedFlows{Count: 1, First: []LiveFlow{{Protocol: "tcp", From: far.LocalAddr().String(), To: far.RemoteAddr().String(), Cut: true, By: "bad"}}}
	if diff := cmp.Diff(want, out); diff != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	p.OverBans = ranges("192.0.2.0/28")
	if err := l.ns.Do(func() (err error) {
		out, err = endedFlows(p)
		return err
	}); out != nil || err != nil || !bannedFlows(p).IsEmpty() {
		t.Errorf("of whom is let in over bans: %v, %v, %v", out, bannedFlows(p), err)
	}
}

// TestTimesAddUp: what is in no part of an apply is the rest of it.
func TestTimesAddUp(t *testing.T) {
	times := Times{Read: 1, Fill: 2, Switch: 4, Check: 8}
	times.end(time.Now().Add(-time.Hour))
	if rest := times.Total - 15; math.Abs(times.Rest-rest) > 1e-6 {
		t.Errorf("the rest is %v, want %v", times.Rest, rest)
	}
}

func TestFirstPacket(t *testing.T) {
	a := netip.MustParseAddr
	local := map[netip.Addr]bool{a("203.0.113.1"): true}
	tuple := func(from string, fromPort uint16, to string, toPort uint16) conntrack.Tuple {
		return conntrack.Tuple{Source: a(from), SourcePort: fromPort, Destination: a(to), DestinationPort: toPort}
	}
	tests := []struct {
		name            string
		original, reply conntrack.Tuple
		way             string
		to              string
		dnat            bool
	}{
		{"in", tuple("192.0.2.1", 4000, "203.0.113.1", 22), tuple("203.0.113.1", 22, "192.0.2.1", 4000), "input", "203.0.113.1:22", false},
		{"out", tuple("203.0.113.1", 4000, "192.0.2.1", 22), tuple("192.0.2.1", 22, "203.0.113.1", 4000), "output", "192.0.2.1:22", false},
		{"through", tuple("192.0.2.1", 4000, "198.51.100.1", 22), tuple("198.51.100.1", 22, "192.0.2.1", 4000), "forward", "198.51.100.1:22", false},
		{"published", tuple("192.0.2.1", 4000, "203.0.113.1", 8080), tuple("10.0.0.5", 80, "192.0.2.1", 4000), "forward", "10.0.0.5:80", true},
		{"masqueraded", tuple("10.0.0.5", 4000, "192.0.2.1", 80), tuple("192.0.2.1", 80, "203.0.113.1", 4000), "forward", "192.0.2.1:80", false},
	}
	for _, test := range tests {
		p, way := firstPacket(conntrack.Entry{Family: 4, Protocol: 6, Original: test.original, Reply: test.reply}, local)
		if to := netip.AddrPortFrom(p.Destination, p.Port).String(); string(way) != test.way || to != test.to || p.DNAT != test.dnat {
			t.Errorf("%s: %s to %s, dnat %v", test.name, way, to, p.DNAT)
		}
	}
}

// TestOthersChangeTheRuleset applies while another tool makes one transaction
// after the other.
func TestOthersChangeTheRuleset(t *testing.T) {
	l := newLab(t)
	l.ns.Nft("add table ip other")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() {
		n := 0
		for ctx.Err() == nil {
			if _, err := l.ns.RunInput("add chain ip other c; delete chain ip other c", "nft", "-f", "-"); err == nil {
				n++
			}
		}
		ended <- n
	}()
	for i := range 10 {
		policy := []string{"a", "b"}[i%2]
		if out, err := l.run(command{Op: "apply", Policy: policy}); err != nil {
			t.Errorf("apply %d: %v %s", i, err, out)
		}
	}
	stop()
	if n := <-ended; n == 0 {
		t.Error("the other tool never got a turn")
	}
	l.wantHolds("b")
	if text := l.ns.MustRun("nft", "list", "tables"); !strings.Contains(text, "table ip other") {
		t.Errorf("the other tool's table is gone: %s", text)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "c"})
	l.must(command{Op: "apply", Policy: "a", Confirm: time.Hour})
	for i := range keep + 5 {
		l.must(command{Op: "apply", Policy: []string{"a", "b"}[(i+1)%2], Confirm: time.Hour})
	}
	st := store{dir: l.dir}
	numbers, err := st.numbers()
	if err != nil {
		t.Fatal(err)
	}
	// The confirmed one is the oldest, and stays.
	if len(numbers) != keep+1 || numbers[0] != 1 {
		t.Errorf("kept: %v", numbers)
	}
	l.must(command{Op: "rollback", N: -1})
	l.wantHolds("c")
	blobs := map[string]bool{}
	for _, n := range numbers {
		g, err := st.generation(n)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{g.Artifact, g.Program, g.Files[0].Blob} {
			blobs[id] = true
			if _, err := st.blob(id); err != nil {
				t.Errorf("generation %d: %v", n, err)
			}
		}
	}
	if len(blobs) != 9 {
		t.Errorf("%d blobs for three policies: %s", len(blobs), fmt.Sprint(blobs))
	}
}
