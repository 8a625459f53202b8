package estimate_test

import (
	"fmt"
	"math"
	"net/netip"
	"testing"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/base/addrset"
	"sluice/internal/program"
	"sluice/internal/prove/estimate"
)

func number(f program.Field, n uint64) program.Condition {
	return program.Condition{Field: f, Numbers: []program.NumberRange{{From: n, To: n}}}
}

// server accepts established flows and ten ports, and refuses the rest. What
// comes first is before all of that.
func server(first ...program.Rule) *program.Program {
	p := &program.Program{
		Hooks:  []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Drop, Chain: "input"}},
		Chains: []program.Chain{{Name: "input", Rules: first}},
	}
	c := &p.Chains[0]
	c.Rules = append(c.Rules, program.Rule{Match: []program.Condition{{Field: program.State, Names: []string{"established"}}}, Actions: []program.Action{program.Accept}})
	for port := range uint64(10) {
		id := fmt.Sprint("port_", port)
		p.Counters = append(p.Counters, program.Counter{Name: id})
		c.Rules = append(c.Rules, program.Rule{
			ID: id, Match: []program.Condition{number(program.Protocol, 6), number(program.Port, 1000+port)},
			Actions: []program.Action{program.Count{Counter: id}, program.Accept},
		})
	}
	return p
}

func prices(t *testing.T, p *program.Program) backend.Prices {
	t.Helper()
	pricer, is := nftables.New().(backend.Pricer)
	if !is {
		t.Fatal("the backend has no prices")
	}
	return pricer.Prices(p)
}

func classes(t *testing.T, p *program.Program, mix []estimate.Class) map[string]estimate.Cost {
	t.Helper()
	out := map[string]estimate.Cost{}
	for _, c := range estimate.Classes(prices(t, p), p, mix) {
		out[c.Class] = c
	}
	return out
}

func TestClasses(t *testing.T) {
	p := server()
	mix := estimate.MixOf(p, nil)
	got := classes(t, p, mix)
	total := 0.0
	for _, c := range got {
		total += c.Share
	}
	if math.Abs(total-1) > 1e-9 {
		t.Errorf("the shares are %v together", total)
	}
	if _, has := got["banned"]; has {
		t.Error("packets are banned by a program that bans nobody")
	}
	if in, refused := got["established, in"], got["refused"]; in.NS <= 0 || refused.NS < 5*in.NS {
		t.Errorf("an established packet pays %.0f ns at the first rule, one that ten rules refuse %.0f", in.NS, refused.NS)
	}
	if out := got["established, out"]; out.NS != 0 {
		t.Errorf("a packet that leaves pays %.0f ns without a chain", out.NS)
	}

	// A rule before all others costs every packet that enters the chain.
	slower := classes(t, server(program.Rule{Match: []program.Condition{number(program.Mark, 7)}, Actions: []program.Action{program.Drop}}), mix)
	for _, name := range []string{"established, in", "new, allowed", "refused"} {
		if slower[name].NS <= got[name].NS {
			t.Errorf("%s: %.0f ns with one more rule, %.0f without", name, slower[name].NS, got[name].NS)
		}
	}
}

// With a profile, packets that begin flows are of the rules that were hit.
func TestProfile(t *testing.T) {
	p := server()
	even := classes(t, p, estimate.MixOf(p, nil))["new, allowed"]
	first := classes(t, p, estimate.MixOf(p, map[string]uint64{"port_0": 1000, "port_9": 1}))["new, allowed"]
	last := classes(t, p, estimate.MixOf(p, map[string]uint64{"port_0": 1, "port_9": 1000}))["new, allowed"]
	if first.NS >= even.NS || even.NS >= last.NS {
		t.Errorf("%.0f ns where the first rule was hit, %.0f evenly, %.0f where the last was", first.NS, even.NS, last.NS)
	}
	if math.Abs(first.Share-even.Share) > 1e-9 {
		t.Errorf("a profile changes how many packets begin a flow: %v, %v", even.Share, first.Share)
	}
}

// What commands fill is asked by nobody while it is empty.
func TestCommandsCostNothing(t *testing.T) {
	p := server()
	mix := estimate.MixOf(p, nil)
	asking := server(program.Rule{Match: []program.Condition{{Field: program.Source, Set: "command"}}, Actions: []program.Action{program.Drop}})
	asking.Sets = []program.Set{{ID: "command", Key: []program.Field{program.Source}, Life: program.Dynamic, Commands: true}}
	if a, b := classes(t, p, mix)["refused"], classes(t, asking, mix)["refused"]; a.NS != b.NS {
		t.Errorf("%.0f ns, and %.0f with a set that commands fill", a.NS, b.NS)
	}
}

// Packets that are not banned are from whoever is not: a ban of one's address costs them no more
// than a ban of another's, and leaves them their class.
func TestMixIsOfWhoIsNotBanned(t *testing.T) {
	banning := func(prefixes ...string) *program.Program {
		p := server()
		var of []netip.Prefix
		for _, prefix := range prefixes {
			of = append(of, netip.MustParsePrefix(prefix))
		}
		p.Sets = []program.Set{{ID: "banned", Key: []program.Field{program.Source}, Addresses: addrset.FromPrefixes(of...)}}
		p.Hooks = append(p.Hooks, program.Hook{Kind: program.Prerouting, Phase: program.Raw, Default: program.Accept, Chain: "raw"})
		p.Chains = append(p.Chains, program.Chain{Name: "raw", Rules: []program.Rule{{
			Match:   []program.Condition{{Field: program.Source, Set: "banned"}},
			Actions: []program.Action{program.Drop},
		}}})
		return p
	}
	for _, prefixes := range [][2][]string{
		{{"203.0.112.0/24"}, {"203.0.113.0/24"}},
		{{"203.0.112.0/24", "192.0.3.0/24", "198.20.0.0/15"}, {"203.0.113.0/24", "192.0.2.0/24", "198.18.0.0/15"}},
	} {
		others, own := banning(prefixes[0]...), banning(prefixes[1]...)
		want := classes(t, others, estimate.MixOf(others, nil))
		for name, got := range classes(t, own, estimate.MixOf(own, nil)) {
			if got != want[name] {
				t.Errorf("%v is banned: %+v, and %+v where %v is", prefixes[1], got, want[name], prefixes[0])
			}
		}
	}

	// Who may do all is not who is refused.
	p := banning("203.0.112.0/24")
	p.Chains[0].Rules = append(p.Chains[0].Rules, program.Rule{ID: "friends", Match: []program.Condition{{Field: program.Source, Set: "friends"}}, Actions: []program.Action{program.Accept}})
	p.Sets = append(p.Sets, program.Set{ID: "friends", Key: []program.Field{program.Source}, Addresses: addrset.FromPrefixes(netip.MustParsePrefix("203.0.113.0/24"))})
	if _, has := classes(t, p, estimate.MixOf(p, nil))["refused"]; !has {
		t.Error("nobody is refused where 203.0.113.0/24 may do all")
	}
}
