package nftables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/lab/testnet"
	"sluice/internal/program"
)

// translatingProgram is one that rewrites packets of some families, and refuses some.
func translatingProgram(of ...int) *program.Program {
	counted := program.Count{Counter: "web"}
	p := &program.Program{
		Owner: "sluice",
		Hooks: []program.Hook{
			{Kind: program.Prerouting, Phase: program.NAT, Default: program.Accept, Chain: "prerouting_nat"},
			{Kind: program.Forward, Phase: program.Filter, Default: program.Accept, Chain: "forward"},
		},
		Sets: []program.Set{
			{ID: "office", Key: []program.Field{program.Source}, Life: program.Static, Addresses: addrset.MustParse("192.0.2.0/24", "2001:db8:c::/64")},
			{
				ID: program.DefaultRouteSet, Key: []program.Field{program.InInterface}, Life: program.Followed,
				Follow: &program.Following{}, Elements: []program.Element{{Parts: []program.Value{{Name: "wan0"}}}},
			},
		},
		Counters: []program.Counter{{Name: "web"}},
		Chains: []program.Chain{
			{Name: "prerouting_nat"},
			{Name: "forward", Rules: []program.Rule{
				{Match: conditions{namesOf(program.InInterface, program.DefaultRoute), setOn(program.Source, "office"), protocolIs(17)}, Actions: actions{program.Accept}},
				{Match: conditions{protocolIs(132)}, Actions: actions{counted, program.Drop}},
			}},
		},
	}
	for _, f := range of {
		to := map[int]string{4: "10.20.1.5", 6: "2001:db8:2::5"}[f]
		at := map[int]string{4: "192.0.2.1", 6: "2001:db8:c::1"}[f]
		p.Chains[0].Rules = append(p.Chains[0].Rules, program.Rule{
			Match: conditions{
				addressesOf(program.Destination, at), namesOf(program.InInterface, program.DefaultRoute), setOn(program.Source, "office"),
				protocolIs(6, 17), numbersOf(program.Port, exactly(80)),
			},
			Actions: actions{counted, program.DNAT{To: netip.MustParseAddr(to), Port: 8080}},
		})
	}
	return p
}

// asBefore lowers as former versions did: NAT is in the table of both families, and
// interfaces that the host decides on are looked up.
func asBefore(t *testing.T, p *program.Program) *artifact {
	t.Helper()
	all := passes
	defer func() { passes = all }()
	passes = slices.DeleteFunc(slices.Clone(all), func(p pass) bool { return p.name == "tables" })
	a := mustLower(t, p)
	if slices.ContainsFunc(a.Tree.Chains, func(c *Chain) bool { return tableFamily(c.Name) != inet }) {
		t.Fatal("this is not how it was")
	}
	for _, k := range a.Tree.Sets {
		k.Compared = false
	}
	return a
}

func wantTables(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("the tables are %v, want %v", got, want)
	}
}

// TestTables goes from programs that rewrite packets of one family to those of the other,
// of both and of none, and from what former versions loaded. Each change of the rules is
// one transaction, a flow that runs stays where it was led, and what was counted stays.
func TestTables(t *testing.T) {
	tr := newTranslation(t, nil)
	none, four, six, both := mustLower(t, translatingProgram()), mustLower(t, translatingProgram(4)), mustLower(t, translatingProgram(6)), mustLower(t, translatingProgram(4, 6))
	steps := []struct {
		name   string
		to     *artifact
		tables string
	}{
		{"none", none, "inet"},
		{"IPv4", four, "inet ip"},
		{"none behind IPv4", none, "inet"},
		{"IPv4 as before", asBefore(t, translatingProgram(4)), "inet"},
		{"upgrade", four, "inet ip"},
		{"IPv6", six, "inet ip6"},
		{"both", both, "inet ip ip6"},
		{"downgrade", asBefore(t, translatingProgram(4, 6)), "inet"},
		{"both again", both, "inet ip ip6"},
		{"nothing", nil, ""},
		{"both from nothing", both, "inet ip ip6"},
	}
	flow := testnet.UDPTry{From: netip.MustParseAddrPort("192.0.2.2:4001"), To: netip.MustParseAddrPort("192.0.2.1:80")}
	ran := false
	for _, s := range steps {
		t.Log(s.name)
		have := tr.read(t, true)
		before := have.Counters()["web"].Packets
		if s.to != nil {
			switches := 0
			for _, step := range stepsTo(t, s.to, have) {
				if step.Purpose == backend.Switch {
					switches++
				}
			}
			if switches > 1 {
				t.Errorf("%s: the rules change in %d transactions", s.name, switches)
			}
		}
		tr.load(t, New(), s.to)
		now := tr.read(t, true)
		wantTables(t, now.Families, strings.Fields(s.tables)...)
		if s.to == nil {
			continue
		}
		if d := compare(s.to.tree(), now, nil); len(d) > 0 {
			t.Errorf("%s: %s", s.name, differences(d))
		}
		if again := stepsTo(t, s.to, now); len(again) > 0 {
			t.Errorf("%s takes steps again: %v", s.name, again)
		}
		if s.to == none {
			before = 0 // the rule is gone that counted
		}
		if got := now.Counters()["web"].Packets; got != before {
			t.Errorf("%s: %d packets are counted, before %d", s.name, got, before)
		}
		if rewrites := s.to == four || s.to == both || strings.Contains(s.name, "before"); !rewrites {
			continue
		}
		if r := tr.client.TryUDP(flow); r.Outcome != testnet.Answered {
			t.Errorf("%s: the flow is not answered: %s", s.name, r)
		}
		want := before + 1
		if ran {
			want = before // it is a flow that is known
		}
		if got := tr.read(t, true).Counters()["web"].Packets; got != want {
			t.Errorf("%s: %d packets are counted, want %d", s.name, got, want)
		}
		ran = true
	}
}

// TestForeignInTables: what somebody else does in the table of one family is found and
// fixed.
func TestForeignInTables(t *testing.T) {
	a := mustLower(t, translatingProgram(4))
	none := mustLower(t, translatingProgram())
	for _, c := range []struct {
		text string
		want *artifact
		said string
	}{
		{"flush chain ip sluice ip/prerouting_nat", a, "rule ip/prerouting_nat"},
		{"add rule ip sluice ip/prerouting_nat tcp dport 22 dnat to 10.20.1.5", a, "rule ip/prerouting_nat"},
		{"add chain ip sluice forward { type filter hook forward priority 0; policy drop; }", a, "chain forward"},
		{"add chain inet sluice ip/other { type filter hook forward priority 0; policy drop; }", a, "chain ip/other"},
		{"add chain ip sluice other; add rule ip sluice other drop; add rule ip sluice ip/prerouting_nat jump other", a, "chain other"},
		{"add set ip sluice office { type ipv4_addr; }", a, "set office"},
		{"delete element ip sluice ip/host.default-route { wan0 }", a, "element host.default-route"},
		{"delete table ip sluice", a, "chain ip/prerouting_nat"},
		{"delete table inet sluice", a, "chain forward"},
		{"add table ip sluice { flags dormant; }", a, "table ip sluice"},
		{"add table ip6 sluice", a, "table ip6 sluice"},
		{"add table ip sluice", none, "table ip sluice"},
		{"add table ip sluice; add chain ip sluice x { type filter hook input priority 0; policy drop; }", none, "chain x"},
	} {
		t.Run(c.text, func(t *testing.T) {
			k := kernelHost(t)
			k.load(t, New(), c.want)
			k.Nft(c.text)
			said := k.compare(t, c.want, true)
			if !slices.ContainsFunc(said, func(d backend.Difference) bool { return d.Kind+" "+d.Name == c.said }) {
				t.Errorf("not said: %s", differences(said))
			}
			k.load(t, New(), c.want)
			k.holds(t, "not fixed", c.want)
			k.load(t, New(), nil)
			wantTables(t, k.read(t, true).Families)
		})
	}
}

// TestTogether: what cannot be there twice keeps NAT in the table of both families.
func TestTogether(t *testing.T) {
	limited := translatingProgram(4)
	limited.Chains[0].Rules[0].Actions = slices.Insert(limited.Chains[0].Rules[0].Actions, 0, program.Action(program.Limit{Name: "some", Rate: program.Rate{Packets: 5, Per: 1000}}))
	large := translatingProgram(4)
	large.Sets[0].Addresses = addrset.MustParse(manyPrefixes(small + 1)...)
	for name, p := range map[string]*program.Program{"a limit": limited, "a large set that others ask too": large} {
		t.Run(name, func(t *testing.T) {
			wantTables(t, mustLower(t, p).Tree.families(), "inet")
		})
	}
}

// TestFollowedInTables: a set that follows the host is edited in all tables at once.
func TestFollowedInTables(t *testing.T) {
	k := kernelHost(t)
	a := mustLower(t, translatingProgram(4))
	k.load(t, New(), a)
	f := New().(backend.Follower)
	sets := a.Follows()
	holds := func() (held program.Held) {
		t.Helper()
		err := k.Do(func() (err error) {
			held, err = f.Holds(t.Context(), sets[0])
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	turn := func(names []string) {
		t.Helper()
		for _, again := range []bool{false, true} {
			var turned backend.Transaction
			err := k.Do(func() (err error) {
				turned, err = f.Turned(t.Context(), a.Named())
				return err
			})
			switch {
			case err != nil:
				t.Fatal(err)
			case turned != nil && again:
				t.Errorf("rules that name %q are turned again", names)
			case turned != nil:
				k.step(t, backend.Step{Transaction: turned})
			}
		}
	}
	follow := func(names ...string) {
		t.Helper()
		from, to := map[string]program.Held{sets[0].ID: holds()}, map[string]program.Held{sets[0].ID: {Names: names}}
		if edit := f.Follow(sets, from, to); edit != nil {
			k.step(t, backend.Step{Transaction: edit})
		}
		if got := holds().Names; !slices.Equal(got, names) {
			t.Errorf("it holds %q, want %q", got, names)
		}
		turn(names)
		k.holds(t, fmt.Sprintf("followed %q", names), a.Holding(to).(*artifact))
	}
	if len(sets) != 1 || len(sets[0].Sets) != 2 {
		t.Fatalf("it follows %+v", sets)
	}
	follow("wan1")
	k.Nft("add element ip sluice ip/host.default-route { wan7 }")
	if got := holds(); len(got.Names) > 0 {
		t.Errorf("sets that differ hold %q", got.Names)
	}
	follow("wan1")
	follow("wan1", "wan2")
	follow("wan2")
	follow("w*") // a wildcard in a rule
	follow("lo") // asked by its number
	follow("wan3")
	if have := k.read(t, true); have.Tree.comparedRoute() != "wan3" {
		t.Errorf("rules compare %q, want wan3", have.Tree.comparedRoute())
	}
}

// TestBesideTables: what returns if a policy is not confirmed stays, with its table; once
// that is over, the table goes without a change of the rules.
func TestBesideTables(t *testing.T) {
	k := kernelHost(t)
	four, none := mustLower(t, translatingProgram(4)), mustLower(t, translatingProgram())
	k.load(t, New(), four)
	trial := none.Beside(four).(*artifact)
	k.load(t, New(), trial)
	wantTables(t, k.read(t, true).Families, "inet", "ip")
	k.holds(t, "on trial", trial)
	for _, s := range stepsTo(t, four, k.read(t, true)) {
		if s.Purpose == backend.Fill && s.Name != "definitions" {
			t.Errorf("going back fills: %s", s.Text())
		}
	}
	last := stepsTo(t, none, k.read(t, true))
	if len(last) != 1 || last[0].Purpose != backend.Sweep || !strings.Contains(last[0].Text(), "delete table ip sluice") {
		t.Errorf("steps behind the trial: %v", last)
	}
	k.load(t, New(), none)
	k.holds(t, "behind the trial", none)
}

// TestIdleFamily: packets of a family that nothing is done to meet no chain of NAT.
func TestIdleFamily(t *testing.T) {
	p := translatingProgram(4)
	p.Chains[0].Rules = []program.Rule{
		{Match: conditions{addressesOf(program.Destination, "192.0.2.1")}, Actions: actions{program.Goto{Chain: "web"}}},
		{Match: conditions{namesOf(program.InInterface, "lo")}, Actions: actions{program.Accept}},
	}
	p.Chains = append(p.Chains, program.Chain{Name: "web", Rules: []program.Rule{
		{Match: conditions{protocolIs(6), numbersOf(program.Port, exactly(80))}, Actions: actions{program.Redirect{Port: 8080}}},
	}})
	wantTables(t, mustLower(t, p).Tree.families(), "inet", "ip")
}
