package nftables

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// twoPolicies are two programs that differ in everything that steps are about.
func twoPolicies(t *testing.T) (one, other *artifact) {
	t.Helper()
	office := addrset.MustParse("203.0.113.0/24", "203.0.114.7", "2001:db8:77::/48")
	base := func(hookDefault program.Verdict, banned, served addrset.Set, ports []program.NumberRange) *program.Program {
		return &program.Program{
			Owner: "sluice",
			Hooks: []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: hookDefault, Chain: "input"}},
			Chains: []program.Chain{{Name: "input", Rules: []program.Rule{
				{ID: "ban", Match: conditions{setOn(program.Source, "banned")}, Actions: actions{program.Count{Counter: "ban"}, program.Drop}},
				{ID: "web", Match: conditions{protocolIs(6), numbersOf(program.Port, ports), setOn(program.Source, "served")}, Actions: actions{program.Count{Counter: "web"}, program.Accept}},
				{ID: "ssh", Match: conditions{protocolIs(6), numbersOf(program.Port, exactly(22)), addressesOf(program.Source, "203.0.113.0/24")}, Actions: actions{
					program.Limit{Name: "ssh", Rate: perSecond(uint64(len(ports)), 5), Per: program.PerSource, Table: "sources"}, program.Accept,
				}},
			}}},
			Counters: []program.Counter{{Name: "ban"}, {Name: "web"}},
			Sets: []program.Set{
				{ID: "banned", Key: []program.Field{program.Source}, Life: program.Living, Counters: true, Addresses: banned},
				{ID: "served", Key: []program.Field{program.Source}, Life: program.Static, Addresses: served},
				{ID: "sources", Key: []program.Field{program.Source}, Life: program.Dynamic, Size: 128, Timeout: 60_000},
			},
		}
	}
	a := base(program.Drop, addrset.MustParse("192.0.2.1", "192.0.2.3", "198.51.100.0/25"), office, exactly(80))
	b := base(program.Accept, addrset.MustParse("192.0.2.1", "192.0.2.5", "198.51.100.0/25", "2001:db8:bad::/48"), addrset.MustParse("203.0.113.0/25", "2001:db8:78::/48", "192.0.2.128"), exactly(80, 443))
	b.Hooks = append(b.Hooks, program.Hook{Kind: program.Output, Phase: program.Filter, Default: program.Drop, Chain: "output"})
	b.Chains = append(b.Chains, program.Chain{Name: "output", Rules: []program.Rule{{Actions: actions{program.Accept}}}})
	return mustLower(t, a), mustLower(t, b)
}

// twoMaps are two programs with verdict maps: one chain stays, one goes, one comes.
func twoMaps(t *testing.T) (one, other *artifact) {
	t.Helper()
	of := func(ports map[uint64]program.Action, chains ...string) *artifact {
		set := program.Set{ID: "ways", Key: []program.Field{program.Port}, Life: program.Static, Verdicts: true}
		for _, port := range slices.Sorted(maps.Keys(ports)) {
			set.Elements = append(set.Elements, program.Element{Parts: []program.Value{{Numbers: program.NumberRange{From: port, To: port + 1}}}, Verdict: ports[port]})
		}
		p := &program.Program{
			Owner: "sluice",
			Hooks: []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Drop, Chain: "input"}},
			Chains: []program.Chain{{Name: "input", Rules: []program.Rule{
				{Match: conditions{protocolIs(6)}, Actions: actions{program.VerdictMap{Set: "ways", Key: []program.Field{program.Port}}}},
			}}},
			Sets: []program.Set{set},
		}
		for i, c := range chains {
			p.Chains = append(p.Chains, program.Chain{Name: c, Rules: []program.Rule{{Match: conditions{numbersOf(program.Length, exactly(uint64(i)+100))}, Actions: actions{program.Accept}}}})
		}
		return mustLower(t, p)
	}
	return of(map[uint64]program.Action{22: program.Jump{Chain: "stays"}, 80: program.Goto{Chain: "goes"}, 90: program.Accept}, "stays", "goes"),
		of(map[uint64]program.Action{22: program.Jump{Chain: "stays"}, 80: program.Jump{Chain: "comes"}, 90: program.Drop}, "stays", "comes")
}

// TestStepsKilled stops after every step of every change, and looks again: what
// is there must be the old rules or the new ones, and going on from there must
// end where it was meant to.
func TestStepsKilled(t *testing.T) {
	host := kernelHost(t)
	one, other := twoPolicies(t)
	map1, map2 := twoMaps(t)
	changes := []struct{ from, to *artifact }{
		{nil, one},
		{one, other},
		{other, one},
		{one, nil},
		{other, nil},
		{nil, map1},
		{map1, map2},
		{map2, map1},
		{map2, one},
		{one, map2},
		{map1, nil},
	}
	for i, change := range changes {
		host.load(t, New(), nil)
		host.load(t, New(), change.from)
		total := len(stepsTo(t, change.to, host.read(t, true)))
		if total < 2 {
			t.Fatalf("change %d takes %d steps only", i, total)
		}
		for stop := range total {
			read := []bool{true, false} // contents
			if testing.Short() {
				read = read[(i+stop)%2:][:1]
			}
			for _, contents := range read {
				host.load(t, New(), nil)
				host.load(t, New(), change.from)
				switched := false
				for _, s := range stepsTo(t, change.to, host.read(t, contents))[:stop] {
					host.step(t, s)
					switched = switched || s.Purpose == backend.Switch
				}
				rules := rulesOf(host.read(t, true))
				if !switched && change.from != nil && rules != rulesOf(&State{Tree: *change.from.Tree}) {
					t.Errorf("change %d stopped after %d steps: rules changed before the switch:\n%s", i, stop, rules)
				}
				for _, s := range stepsTo(t, change.to, host.read(t, contents)) {
					host.step(t, s)
				}
				if change.to == nil {
					if s := host.read(t, true); !s.Empty() {
						t.Errorf("change %d stopped after %d steps: something is left", i, stop)
					}
					continue
				}
				host.holds(t, fmt.Sprintf("change %d stopped after %d steps (contents: %v)", i, stop, contents), change.to)
				if again := stepsTo(t, change.to, host.read(t, contents)); len(again) > 0 {
					t.Errorf("change %d stopped after %d steps: it never ends: %s %q", i, stop, again[0].Purpose, again[0].Text())
				}
			}
		}
	}
}

func stepsTo(t *testing.T, a *artifact, have *State) []backend.Step {
	t.Helper()
	var want backend.Artifact
	if a != nil {
		want = a
	}
	steps, err := New().Steps(want, have)
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

func rulesOf(s *State) string {
	var b strings.Builder
	for _, c := range slices.SortedFunc(slices.Values(s.Tree.Chains), func(a, b *Chain) int { return strings.Compare(a.Name, b.Name) }) {
		if len(c.Rules) == 0 {
			continue // a base chain that waits, open and empty
		}
		b.WriteString(c.title() + "\n")
		for _, r := range c.Rules {
			b.WriteString("  " + ruleKey(r) + "\n")
		}
	}
	return b.String()
}

// TestStepsOrder: fill, switch, edit, sweep; one switch; and no large set is
// filled by the transaction that makes rules use it.
func TestStepsOrder(t *testing.T) {
	one, other := twoPolicies(t)
	order := []backend.Purpose{backend.Fill, backend.Switch, backend.Edit, backend.Sweep}
	for _, have := range []*State{{}, {Present: true, Contents: true, Tree: *one.Tree}} {
		at, switches := 0, 0
		for _, s := range stepsTo(t, other, have) {
			n := slices.Index(order, s.Purpose)
			if n < at {
				t.Errorf("%s %q is behind %s", s.Purpose, s.Name, order[at])
			}
			at = n
			if s.Purpose == backend.Switch {
				switches++
				if _, script := s.Transaction.(Script); !script || strings.Contains(s.Text(), "add element") || strings.Contains(s.Text(), "delete table") || strings.Contains(s.Text(), "set ") && strings.Contains(s.Text(), "\tset ") {
					t.Errorf("the switch does more than switch:\n%s", s.Text())
				}
			}
		}
		if switches != 1 {
			t.Errorf("%d switches", switches)
		}
	}
}

// TestCountersGoOn: what was counted, by rules and by elements, outlives a
// change of the rules and of the set.
func TestCountersGoOn(t *testing.T) {
	host := kernelHost(t)
	one, other := twoPolicies(t)
	host.load(t, New(), one)
	net := setNamed(t, one, "banned_net4_")
	host.Nft("add counter inet sluice keep\n" +
		"delete element inet sluice " + net + " { 198.51.100.0/25 }\nadd element inet sluice " + net + " { 198.51.100.0/25 counter packets 7 bytes 700 }\n" +
		"delete element inet sluice banned_v4_counted { 192.0.2.1 }\nadd element inet sluice banned_v4_counted { 192.0.2.1 counter packets 3 bytes 300 }\n")
	host.load(t, New(), other)
	s := host.read(t, false)
	if _, kept := s.Counters()["keep"]; kept {
		t.Error("a counter that nobody wants was not swept")
	}
	if got := s.Elements()["banned_v4_counted"]["192.0.2.1"]; got != (backend.Count{Packets: 3, Bytes: 300}) {
		t.Errorf("the element of the hash set counts %v", got)
	}
	changed := *other.Tree
	newNet := setNamed(t, other, "banned_net4_")
	if newNet != net {
		t.Fatalf("this test wants the same prefixes: %s, %s", net, newNet)
	}
	if got := s.Elements()[net]["198.51.100.0/25"]; got != (backend.Count{Packets: 7, Bytes: 700}) {
		t.Errorf("the element of the interval set counts %v", got)
	}
	// Now with another prefix beside it: the set is replaced.
	wider := *setByName(t, &changed, newNet)
	wider.Elements = Elements{Ranges: addrset.MustParse("198.51.100.0/25", "192.0.2.64/26").Ranges()}
	wider.Name = "banned_net4_" + wider.hash()
	var text strings.Builder
	st := &stepper{want: &Tree{Table: "sluice", Sets: []*Set{&wider}}, have: s, used: map[string]bool{}}
	st.sets()
	for _, step := range st.steps {
		text.WriteString(step.Text())
	}
	if !strings.Contains(text.String(), "198.51.100.0/25 counter packets 7 bytes 700") {
		t.Errorf("the new set does not go on counting:\n%s", text.String())
	}
}

func setNamed(t *testing.T, a *artifact, prefix string) string {
	t.Helper()
	for _, s := range a.Tree.Sets {
		if strings.HasPrefix(s.Name, prefix) {
			return s.Name
		}
	}
	t.Fatalf("no set %s…", prefix)
	return ""
}

func setByName(t *testing.T, tree *Tree, name string) *Set {
	t.Helper()
	s := tree.set(name)
	if s == nil {
		t.Fatalf("no set %s", name)
	}
	return s
}

// TestDrift changes something by hand and wants it named.
func TestDrift(t *testing.T) {
	host := kernelHost(t)
	one, _ := twoPolicies(t)
	served, net := setNamed(t, one, "served4_"), setNamed(t, one, "banned_net4_")
	for _, c := range []struct {
		hand string // what nft is told
		want string // kind, name, want, have of each difference
	}{
		{"delete table inet sluice", "table|inet sluice|"},
		{"add rule inet sluice input tcp dport 99 accept", "rule|input||tcp dport 99 accept"},
		{"insert rule inet sluice input tcp dport 99 accept", "rule|input||tcp dport 99 accept"},
		{"insert rule inet sluice input jhash ip saddr mod 4 == 1 accept", "rule|input||<unknown"},
		{"insert rule inet sluice input meta mark set ip saddr map { 192.0.2.0/24 : 1 } ip saddr @" + served + " counter", "rule|input||<unknown"},
		{"insert rule inet sluice input jhash ip saddr mod 4 == 1 ip saddr @" + served + " accept\nflush chain inet sluice ssh", "rule|input||<unknown"},
		{"flush chain inet sluice input", "rule|input|ip saddr @banned_v4_counted"},
		{"chain inet sluice input { policy accept; }", "chain|input|chain input: type filter hook input priority 0; policy drop|chain input: type filter hook input priority 0; policy accept"},
		{"add chain inet sluice strange", "chain|strange||chain strange"},
		{"add set inet sluice strange { type ipv4_addr; }", "set|strange||set strange"},
		{"add map inet sluice strange { type ipv4_addr : verdict; }", "map|strange||map strange"},
		{"add counter inet sluice strange", "counter|strange||counter strange"},
		{"delete element inet sluice banned_v4_counted { 192.0.2.3 }", "element|banned (IPv4)|192.0.2.3|"},
		{"add element inet sluice banned_v4_counted { 192.0.2.77 }", "element|banned (IPv4)||192.0.2.77"},
		{"delete element inet sluice " + net + " { 198.51.100.0/25 }", "element|banned (IPv4)|198.51.100.0/25|"},
		{"delete element inet sluice " + served + " { 203.0.113.0/24 }\nadd element inet sluice " + served + " { 203.0.113.0/25 }", "element|served (IPv4)|203.0.113.128/25|"},
		{"reset counters table inet sluice", ""},
		{"add element inet sluice " + setNamed(t, one, "sources_v4_") + " { 192.0.2.1 }", "element|sources (IPv4)|limit rate 1/second burst 5 packets, for 1m0s|192.0.2.1: no limit"},
		// the same addresses, cut otherwise
		{"delete element inet sluice " + served + " { 203.0.113.0/24 }\nadd element inet sluice " + served + " { 203.0.113.0/25, 203.0.113.128/25 }", ""},
	} {
		host.load(t, New(), nil)
		host.load(t, New(), one)
		if strings.HasPrefix(c.hand, "reset") {
			host.MustRun("nft", strings.Fields(c.hand)...)
		} else {
			host.Nft(c.hand)
		}
		d := host.compare(t, one, true)
		var got []string
		for _, x := range d {
			got = append(got, fmt.Sprintf("%s|%s|%s|%s", x.Kind, x.Name, x.Want, x.Have))
		}
		all := strings.Join(got, "\n")
		if c.want == "" && all != "" || !strings.Contains(all, c.want) {
			t.Errorf("after %q:\n got %s\nwant %s", c.hand, all, c.want)
		}
		// Whatever it is, loading again fixes it.
		host.load(t, New(), one)
		host.holds(t, fmt.Sprintf("not fixed after %q", c.hand), one)
	}
}

// TestChangedRuleIsNamed: a changed rule is one difference that has both.
func TestChangedRuleIsNamed(t *testing.T) {
	one, _ := twoPolicies(t)
	have := &State{Present: true, Contents: true, Tree: *one.Tree}
	input := *one.Tree.chain("input")
	input.Rules = slices.Clone(input.Rules)
	web := slices.IndexFunc(input.Rules, func(r Rule) bool { return strings.HasPrefix(r.text(), "tcp dport 80 ") })
	changed := input.Rules[web]
	changed.Statements = slices.Clone(changed.Statements)
	changed.Statements[0].Values = []string{"81"}
	input.Rules[web] = changed
	have.Tree.Chains = slices.Clone(have.Tree.Chains)
	have.Tree.Chains[slices.Index(have.Tree.Chains, one.Tree.chain("input"))] = &input
	d := compare(one.Tree, have, nil)
	if len(d) != 1 || !strings.Contains(d[0].Want, "tcp dport 80") || !strings.Contains(d[0].Have, "tcp dport 81") {
		t.Errorf("got %s", differences(d))
	}
}

// TestChangedVerdictIsNamed: an element with another verdict is missing and too much.
func TestChangedVerdictIsNamed(t *testing.T) {
	one, _ := twoMaps(t)
	have := &State{Present: true, Contents: true, Tree: *one.Tree}
	ways := *have.Tree.Sets[0]
	ways.Elements.Verdicts = slices.Clone(ways.Elements.Verdicts)
	at := slices.Index(ways.Elements.Verdicts, "accept")
	ways.Elements.Verdicts[at] = "drop"
	have.Tree.Sets = []*Set{&ways}
	d := compare(one.Tree, have, nil)
	if len(d) != 2 || d[0].Want != "90-91 : accept" || d[1].Have != "90-91 : drop" {
		t.Errorf("got %s", differences(d))
	}
}
