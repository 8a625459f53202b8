package testnet

import (
	"errors"
	"maps"
	"net/netip"
	"testing"
	"time"
)

// Every packet that a flood says it has sent is counted, each under its own counter;
// neither end of the wire has to ask for the other.
func TestFloodIsCounted(t *testing.T) {
	Require(t, Nftables)
	n := New(t)
	host, client := n.Unnamed("host"), n.Unnamed("client")
	_, from := n.Wire(
		End{In: host, Device: "h0", Addresses: []string{"192.0.2.1/24", "2001:db8:1::1/64"}},
		End{In: client, Device: "c0", Addresses: []string{"192.0.2.2/24", "2001:db8:1::2/64"}},
	)
	host.Nft(`table inet watch {
	counter one { }
	counter two { }
	counter asked { }
	chain first {
		type filter hook prerouting priority -450;
		udp dport 1 counter name one
		udp dport 2 counter name two
		icmpv6 type nd-neighbor-solicit counter name asked
	}
}
`)
	to := func(port uint16) func() error {
		p := UDP(netip.MustParseAddrPort("192.0.2.2:4000"), netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port), 'x')
		return func() error { return from.Send(p) }
	}
	stop := Flood(8, time.Millisecond, to(1), to(2))
	time.Sleep(20 * time.Millisecond)
	sent, err := stop()
	if err != nil || sent[0] < 4 || sent[0] != sent[1] {
		t.Fatalf("sent %d: %v", sent, err)
	}
	if r := client.TryTCP(TCPTry{To: netip.MustParseAddrPort("[2001:db8:1::1]:9")}); r.Outcome != Reset {
		t.Errorf("nothing listens there: %s", r)
	}
	want := map[string]uint64{"one": sent[0], "two": sent[1], "asked": 0}
	for deadline := time.Now().Add(enough); ; time.Sleep(time.Millisecond) { // some may be under way
		got, err := host.Counters("inet watch")
		if err != nil {
			t.Fatal(err)
		}
		if maps.Equal(got, want) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("counted %v, want %v", got, want)
		}
	}
	host.Nft("table inet empty { }")
	if got, err := host.Counters("inet empty"); err == nil {
		t.Errorf("a table without counters gives %v", got)
	}
}

func TestFloodEndsWithAFailure(t *testing.T) {
	fifth := errors.New("the fifth fails")
	failed := make(chan bool)
	n := 0
	stop := Flood(2, 0, func() error {
		if n++; n == 5 {
			close(failed)
			return fifth
		}
		return nil
	})
	<-failed
	if sent, err := stop(); !errors.Is(err, fifth) || sent[0] != 4 {
		t.Errorf("sent %d: %v", sent, err)
	}
	if sent, err := Flood(1, 0)(); err != nil || len(sent) != 0 {
		t.Errorf("nothing to send: %d: %v", sent, err)
	}
}
