package measure_test

import (
	"net/netip"
	"strings"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/testnet"
)

const seed = 1

func lab(t *testing.T, create func(*testnet.Net, string) (*measure.Lab, error), net *testnet.Net, label, rules string) *measure.Lab {
	t.Helper()
	l, err := create(net, label)
	if err != nil {
		t.Fatal(err)
	}
	if rules != "" {
		if err := l.Nft(rules); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func source(t *testing.T, traffic measure.Traffic) *measure.Source {
	t.Helper()
	s, err := measure.Load(traffic)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// Every kind of frame arrives with the addresses, ports and checksums that it
// should have: the kernel itself checks them, and rules count them.
func TestFramesAreWhatTheTrafficSays(t *testing.T) {
	measure.Require(t)
	net := testnet.New(t)
	for name, f := range map[string]addrset.Family{"IPv4": addrset.IPv4, "IPv6": addrset.IPv6} {
		word := "ip"
		if f == addrset.IPv6 {
			word = "ip6"
		}
		odd := measure.ByAddress(addrset.All(), f, 1000, seed)
		to := measure.Target(f, 53)
		for kind, tc := range map[string]struct {
			traffic measure.Traffic
			match   string
		}{
			"UDP":     {measure.UDP(odd, to), "udp dport 53 udp sport 40000"},
			"SYN":     {measure.TCP("S", odd, to), "tcp dport 53 tcp flags == syn"},
			"ACK":     {measure.TCP("A", odd, to), "tcp dport 53 tcp flags == ack"},
			"one UDP": {measure.UDP(odd[:1], to), "udp dport 53 " + word + " saddr " + odd[0].String()},
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				// a broken checksum makes a packet invalid, once conntrack looks
				l := lab(t, measure.NewLab, net, "frames", `table inet t { chain c { type filter hook input priority 0;
					ct state != new drop; `+word+` daddr `+to.Addr().String()+` `+tc.match+` accept; drop; }; }`)
				l.Namespace.Sysctl("net.netfilter.nf_conntrack_checksum", "1")
				l.Namespace.Sysctl("net.netfilter.nf_conntrack_tcp_loose", "1")
				run, err := l.Inject(t.Context(), source(t, tc.traffic), 2000)
				if err != nil {
					t.Fatal(err)
				}
				if run.Packets != 2048 || run.Survived != run.Packets || run.Time <= 0 {
					t.Errorf("got %+v, want 2048 packets, all of them surviving", run)
				}
			})
		}
	}
}

// Addresses and ports come in the order of the flows, each as often as any other.
func TestFlowsAreCycledOver(t *testing.T) {
	measure.Require(t)
	net := testnet.New(t)
	var flows []measure.Flow
	for i := range 100 {
		flows = append(flows, measure.Flow{
			From: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), uint16(1000+i)),
			To:   netip.AddrPortFrom(measure.Target(addrset.IPv4, 0).Addr(), uint16(2000+i)),
		})
	}
	s := source(t, measure.Traffic{Flows: flows})
	l := lab(t, measure.NewLab, net, "cycle", `table ip t { chain c { type filter hook input priority 0;
		ip saddr . udp sport . udp dport { 192.0.2.0 . 1000 . 2000, 192.0.2.7 . 1007 . 2007, 192.0.2.99 . 1099 . 2099 } accept; drop; }; }`)
	// 64 packets: the flows 0 to 63, then 64 to 99 and 0 to 27, then 28 to 91
	for i, want := range []int{2, 3, 0} {
		run, err := l.Inject(t.Context(), s, 64)
		if err != nil {
			t.Fatal(err)
		}
		if run.Survived != want || run.First != i*64%100 {
			t.Errorf("injection %d: got %+v, want %d survivors from flow %d on", i, run, want, i*64%100)
		}
	}
}

func TestCompareCountsVerdicts(t *testing.T) {
	measure.Require(t)
	net := testnet.New(t)
	half := netip.MustParsePrefix("0.0.0.0/1")
	bare := lab(t, measure.NewLab, net, "bare", "")
	rules := lab(t, measure.NewLab, net, "rules", `table ip t { chain c { type filter hook input priority 0; ip saddr 0.0.0.0/1 drop; }; }`)
	drawn := measure.ByAddress(addrset.All(), addrset.IPv4, 1000, seed)
	s := source(t, measure.UDP(drawn, measure.Target(addrset.IPv4, 9)))
	upper := func(i int) bool { return !half.Contains(drawn[i]) }
	plan := measure.Plan{Rounds: 3, Packets: 1280}
	result, err := measure.Compare(t.Context(), plan, []measure.Cell{
		{Name: "bare", Lab: bare, Source: s, Survives: measure.All},
		{Name: "rules", Lab: rules, Source: s, Survives: upper},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(result.NS("bare")) != 3 || len(result.NS("rules")) != 3 || result.NS("rules").Estimate().Low <= 0 {
		t.Errorf("got %v", result)
	}

	_, err = measure.Compare(t.Context(), plan, []measure.Cell{{Name: "wrong", Lab: rules, Source: s, Survives: measure.All}})
	if err == nil || !strings.Contains(err.Error(), "survived where") {
		t.Errorf("verdicts other than expected gave %v", err)
	}
}
