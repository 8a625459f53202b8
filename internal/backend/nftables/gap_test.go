package nftables

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/testseed"
	"sluice/internal/lab/testnet"
	"sluice/internal/program"
)

// watchTable counts what comes in before the program's chains and what they
// let through, in a table of its own.
const watchTable = `
table inet watch {
	counter before { }
	counter behind { }
	chain pre { type filter hook prerouting priority -400; udp dport 53 counter name "before"; }
	chain in { type filter hook input priority 400; udp dport 53 counter name "behind"; }
}`

// watched is a host that counts what comes, and the end of its wire where that is sent.
func watched(t *testing.T) (host *testnet.Namespace, from *testnet.Port) {
	t.Helper()
	requireNftables(t)
	n := testnet.New(t)
	host, client := n.Unnamed("host"), n.Unnamed("client")
	_, from = n.Join(
		testnet.End{In: host, Device: "h0", Addresses: []string{"192.0.2.1/24"}},
		testnet.End{In: client, Device: "c0", Addresses: []string{"192.0.2.2/24"}},
	)
	host.Nft(watchTable)
	return host, from
}

// TestNoGap floods a host with packets that every one of its policies allows,
// and changes from each to each: the first load, another default, other rules,
// removal. Nothing may be lost, though the kernel changes the policy of a chain
// a moment after its rules.
func TestNoGap(t *testing.T) {
	host, from := watched(t)
	k := kernel{host}
	policy := func(byDefault program.Verdict, match ...program.Condition) *artifact {
		rules := []program.Rule{{Match: append(match, protocolIs(17)), Actions: actions{program.Accept}}}
		for range 200 { // long enough for a moment between the rules and the policy
			rules = append(rules, program.Rule{Match: conditions{addressesOf(program.Source, "203.0.113.9"), namesOf(program.State, "new")}, Actions: actions{program.Drop}})
		}
		return mustLower(t, &program.Program{
			Owner:  "sluice",
			Hooks:  []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: byDefault, Chain: "input"}},
			Chains: []program.Chain{{Name: "input", Rules: rules}},
			Sets: []program.Set{
				{ID: "known", Key: []program.Field{program.Source}, Life: program.Static, Addresses: addrset.MustParse("192.0.2.0/25", "198.51.100.0-198.51.100.77")},
			},
		})
	}
	open := mustLower(t, &program.Program{
		Owner:  "sluice",
		Hooks:  []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Accept, Chain: "input"}},
		Chains: []program.Chain{{Name: "input", Rules: []program.Rule{{Match: conditions{addressesOf(program.Source, "203.0.113.9")}, Actions: actions{program.Drop}}}}},
	})
	other := mustLower(t, &program.Program{
		Owner:  "sluice",
		Hooks:  []program.Hook{{Kind: program.Forward, Phase: program.Filter, Default: program.Drop, Chain: "forward"}},
		Chains: []program.Chain{{Name: "forward", Rules: []program.Rule{{Actions: actions{program.Accept}}}}},
	})
	closed := policy(program.Drop)
	packet := testnet.UDP(netip.MustParseAddrPort("192.0.2.2:4000"), netip.MustParseAddrPort("192.0.2.1:53"), 'x')
	all := uint64(0)
	for round := range testseed.Rounds(1, 3) {
		for i, to := range []*artifact{closed, policy(program.Drop, setOn(program.Source, "known")), open, closed, other, closed, nil} {
			stop := from.Flood(packet)
			time.Sleep(2 * time.Millisecond)
			k.load(t, New(), to)
			sent, err := stop()
			if err != nil || sent == 0 {
				t.Fatalf("sent %d: %v", sent, err)
			}
			all += sent
			wantPassed(t, k, fmt.Sprintf("round %d, change %d", round, i), all, all)
		}
	}
}

// wantPassed waits until all packets that were sent have come, and as many of them have
// gone behind the chains as is said: what is under way arrives late.
func wantPassed(t *testing.T, k kernel, what string, sent, through uint64) {
	t.Helper()
	want := map[string]uint64{"before": sent, "behind": through}
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		have, err := k.Counters("inet watch")
		if err != nil {
			t.Fatal(err)
		}
		if maps.Equal(have, want) {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%s: packets counted %v, want %v", what, have, want)
		}
	}
}
