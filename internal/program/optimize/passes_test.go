package optimize

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/base/testgolden"
	"sluice/internal/program"
)

// golden runs one pass between two checks of the program and compares what it
// made with testdata/NAME.golden, which holds the program before and after.
func golden(t *testing.T, name, pass string, p *program.Program) {
	t.Helper()
	goldenWith(t, name, pass, p, Options{})
}

func goldenWith(t *testing.T, name, pass string, p *program.Program, opt Options) {
	t.Helper()
	if err := p.Check(); err != nil {
		t.Fatalf("the test's own program is broken: %v", err)
	}
	got := "# before\n" + p.Text()
	var did []string
	for _, row := range Passes {
		if row.Name == pass {
			w := &work{Program: p, options: &opt}
			row.run(w)
			did = w.did
		}
	}
	if err := p.Check(); err != nil {
		t.Fatalf("pass %s left a broken program: %v", pass, err)
	}
	got += "\n# after " + pass + "\n"
	for _, said := range did {
		got += "# " + said + "\n"
	}
	got += p.Text()
	testgolden.File(t, filepath.Join("testdata", name+".golden"), []byte(got))
}

func rangeOf(from, to string) addrset.Range {
	return addrset.Range{From: netip.MustParseAddr(from), To: netip.MustParseAddr(to)}
}

func jump(stage program.Stage, chain string) program.Rule {
	return program.Rule{Stage: stage, Actions: []program.Action{program.Jump{Chain: chain}}}
}

func established() program.Rule {
	return program.Rule{
		Stage:   program.StageState,
		Match:   []program.Condition{{Field: program.State, Names: []string{"established"}}},
		Actions: []program.Action{program.Accept},
	}
}

func dropFrom(set string) program.Rule {
	return program.Rule{
		Stage:   program.StageRules,
		Match:   []program.Condition{{Field: program.Source, Set: set}},
		Actions: []program.Action{program.Drop},
	}
}

func TestMergePrefixes(t *testing.T) {
	ranges := func() []addrset.Range {
		return []addrset.Range{
			rangeOf("198.51.100.128", "198.51.100.255"),
			rangeOf("198.51.100.0", "198.51.100.127"), // adjacent
			rangeOf("203.0.113.0", "203.0.113.255"),
			rangeOf("203.0.113.7", "203.0.113.7"),         // contained
			rangeOf("203.0.113.200", "203.0.114.9"),       // overlapping
			rangeOf("255.255.255.255", "255.255.255.255"), // the last of IPv4 has no next in IPv6
			rangeOf("::", "::"),
			rangeOf("2001:db8::", "2001:db8::ffff"),
			rangeOf("2001:db8::1:0", "2001:db8::1:ffff"), // adjacent
		}
	}
	var counted []program.Element
	for _, r := range ranges() {
		counted = append(counted, program.Element{Parts: []program.Value{{Addresses: r}}})
	}
	p := &program.Program{
		Hooks: []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Accept, Chain: "input"}},
		Sets: []program.Set{
			{ID: "counted", Key: []program.Field{program.Source}, Life: program.Living, Counters: true, Elements: counted},
		},
		Chains: []program.Chain{{Name: "input", Rules: []program.Rule{
			dropFrom("counted"),
			{Match: []program.Condition{{Field: program.Source, Addresses: ranges()}}, Actions: []program.Action{program.Drop}},
		}}},
	}
	golden(t, "merge-prefixes", "merge-prefixes", p)
}

// banned is a program that bans on all three hooks, as compile writes it.
func banned(rewrites bool) *program.Program {
	p := &program.Program{
		Hooks: []program.Hook{
			{Kind: program.Input, Phase: program.Filter, Default: program.Drop, Chain: "input"},
			{Kind: program.Forward, Phase: program.Filter, Default: program.Accept, Chain: "forward"},
			{Kind: program.Output, Phase: program.Filter, Default: program.Accept, Chain: "output"},
		},
		Sets: []program.Set{{ID: "bad", Key: []program.Field{program.Source}, Life: program.Static, Addresses: addrset.FromPrefixes(netip.MustParsePrefix("203.0.113.7/32"))}},
		Chains: []program.Chain{
			{Name: "input", Rules: []program.Rule{dropFrom("bad"), established(), jump(program.StageBan, "banned")}},
			{Name: "forward", Rules: []program.Rule{jump(program.StageBan, "banned")}},
			{Name: "output", Rules: []program.Rule{jump(program.StageBan, "banned_to")}},
			{Name: "banned", Rules: []program.Rule{dropFrom("bad")}},
			{Name: "banned_to", Rules: []program.Rule{dropFrom("bad")}},
		},
	}
	if rewrites {
		p.Hooks = append(p.Hooks, program.Hook{Kind: program.Output, Phase: program.NAT, Default: program.Accept, Chain: "output_nat"})
		p.Chains = append(p.Chains, program.Chain{Name: "output_nat", Rules: []program.Rule{{Actions: []program.Action{program.Redirect{Port: 80}}}}})
	}
	return p
}

func TestBanStage(t *testing.T) {
	golden(t, "ban-stage", "ban-stage", banned(false))
	golden(t, "ban-stage-rewrites", "ban-stage", banned(true))
}

// TestBansOfSomeHooks: where a hook has no bans, those of the others stay.
func TestBansOfSomeHooks(t *testing.T) {
	p := banned(false)
	forward := p.Chain("forward")
	forward.Rules = nil
	before := p.Text()
	banStage(&work{Program: p, options: &Options{}})
	if after := p.Text(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

func TestStages(t *testing.T) { golden(t, "stages", "stages", banned(false)) }

func TestImplied(t *testing.T) {
	web := []program.NumberRange{{From: 80, To: 80}, {From: 443, To: 443}, {From: 8000, To: 8099}}
	at := func(address string, port uint64) program.Element {
		return program.Element{Parts: []program.Value{{Addresses: rangeOf(address, address)}, {Numbers: program.NumberRange{From: port, To: port}}}}
	}
	listener := func(port uint64) program.Element { return at("198.51.100.1", port) }
	sets := []program.Set{
		{ID: "web", Life: program.Static, Elements: []program.Element{listener(80), at("198.51.100.2", 8010)}},
		{ID: "every", Life: program.Static, Elements: []program.Element{listener(80), listener(8010), at("198.51.100.2", 80), at("198.51.100.2", 8010), at("2001:db8::1", 80), at("2001:db8::1", 8010)}},
		{ID: "others", Life: program.Static, Elements: []program.Element{listener(80), listener(22)}},
		{ID: "none", Life: program.Static},
		{ID: "living", Life: program.Living, Elements: []program.Element{listener(80)}},
	}
	rule := func(set string, ports ...program.NumberRange) program.Rule {
		return program.Rule{Stage: program.StageTrack, Actions: []program.Action{program.NoTrack{}}, Match: []program.Condition{
			{Field: program.Protocol, Numbers: []program.NumberRange{{From: 6, To: 6}}},
			{Field: program.Port, Numbers: ports},
			{Field: program.Destination, Set: set, SetKey: []program.Field{program.Destination, program.Port}},
		}}
	}
	p := &program.Program{
		Hooks: []program.Hook{{Kind: program.Prerouting, Phase: program.Raw, Default: program.Accept, Chain: "prerouting_raw"}},
		Chains: []program.Chain{{Name: "prerouting_raw", Rules: []program.Rule{
			rule("web", web...),
			rule("web", web[0]), // a comparison, which spares others the look-up
			rule("web", web[:2]...),
			rule("web", program.NumberRange{From: 1, To: 65535}),
			rule("every", web...),
			rule("every", web[0]),
			rule("others", web...),
			rule("none", web...),
			rule("living", web...),
		}}},
	}
	turned := rule("web", web...)
	turned.Match[2].Not = true
	not := rule("web", web...)
	not.Match[1].Not = true
	every := rule("every", web...)
	every.Match[2].Not = true
	p.Chains[0].Rules = append(p.Chains[0].Rules, turned, not, every)
	p.Hooks = append(p.Hooks, program.Hook{Kind: program.Output, Phase: program.Raw, Default: program.Accept, Chain: "output_raw"})
	p.Chains = append(p.Chains, program.Chain{Name: "output_raw", Rules: []program.Rule{rule("others", web...)}}) // nothing to say of
	for _, s := range sets {
		s.Key = []program.Field{program.Destination, program.Port}
		p.Sets = append(p.Sets, s)
	}
	golden(t, "implied", "implied", p)
}

func TestUnused(t *testing.T) {
	p := banned(false)
	p.Chains = append(p.Chains, program.Chain{Name: "left", Rules: []program.Rule{established()}}, program.Chain{Name: "empty"})
	p.Hooks = append(p.Hooks, program.Hook{Kind: program.Prerouting, Phase: program.Raw, Default: program.Accept, Chain: "empty"})
	p.Sets = append(p.Sets, program.Set{ID: "nobodys", Key: []program.Field{program.Source}, Life: program.Static})
	p.Counters = append(p.Counters, program.Counter{Name: "nobodys"})
	golden(t, "unused", "unused", p)
}

func TestChainOrder(t *testing.T) {
	p := banned(true)
	output := p.Chain("output")
	output.Rules = append(output.Rules, jump(program.StageBan, "banned")) // which stays where input leads to it
	golden(t, "chain-order", "chain-order", p)
}

// Established flows are decided before any set is asked, whatever order the
// rules were made in: story 3 is a set that comes first.
func TestEstablishedBeforeSets(t *testing.T) {
	p := banned(false)
	if err := Run(p, Options{Check: true}); err != nil {
		t.Fatal(err)
	}
	for _, r := range p.Base(program.Input, program.Filter).Rules {
		for _, m := range r.Match {
			if m.Field == program.State {
				return
			}
			if m.Set != "" {
				t.Fatalf("set %s is asked before established flows pass:\n%s", m.Set, p.Text())
			}
		}
	}
	t.Fatal("no rule lets established flows pass")
}

func TestTableConstraints(t *testing.T) {
	if err := constraints(Passes); err != nil {
		t.Error(err)
	}
	if err := CheckWithout([]string{"unused"}); err != nil {
		t.Errorf("a pass that is not required can be left out: %v", err)
	}
	if err := CheckWithout([]string{"stages"}); err == nil {
		t.Error("a required pass was left out")
	}
	err := CheckWithout([]string{"unsued"})
	if err == nil || !strings.Contains(err.Error(), `did you mean "unused"?`) {
		t.Errorf("an unknown pass was left out, or nothing like it was named: %v", err)
	}
	if err := constraints([]Pass{Passes[2], Passes[0]}); err == nil {
		t.Error("a table in the wrong order was taken")
	}
	if err := constraints([]Pass{Passes[0], Passes[0]}); err == nil {
		t.Error("a table with one pass twice was taken")
	}
}
