package nftables

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"sluice/internal/lab/testnet"
	"sluice/internal/program"
)

// fitting are elements of a set of the fields, as rules of a policy make them:
// exact ones, and with ranges where wide. Each stands for a counter of its own
// where counted, and has a verdict where verdicts.
func fitting(key []program.Field, wide, counted, verdicts bool) []program.Element {
	value := func(f program.Field, i, family int) program.Value {
		n := program.NumberRange{From: uint64(20 + 10*i), To: uint64(20 + 10*i)}
		switch {
		case isAddress(f) && wide && i%2 == 1:
			return program.Value{Addresses: addressRanges([]string{fmt.Sprintf("192.0.2.%d-192.0.2.%d", 16*i, 16*i+9), fmt.Sprintf("2001:db8:%d::/48", i)}[family])[0]}
		case isAddress(f):
			return program.Value{Addresses: addressRanges([]string{fmt.Sprintf("192.0.2.%d", 16*i), fmt.Sprintf("2001:db8::%d", i)}[family])[0]}
		case keyTypes[f] == "ifname":
			return program.Value{Name: fmt.Sprintf("eth%d", i)}
		case f == program.Protocol:
			p := []uint64{6, 17, 132, 136, 47, 50}[i]
			n = program.NumberRange{From: p, To: p}
		case wide && f != program.Mark:
			n.To += 5
		}
		return program.Value{Numbers: n}
	}
	words := []program.Action{program.Accept, program.Drop, program.Reject, program.Return, program.Jump{Chain: "sub"}, program.Goto{Chain: "sub"}}
	var out []program.Element
	for i := range words {
		for family := range 2 {
			e := program.Element{Origin: program.Origin{File: "policy.yaml", Line: i + 1}}
			address := false
			for _, f := range key {
				e.Parts = append(e.Parts, value(f, i, family))
				address = address || isAddress(f)
			}
			if counted {
				e.Counter = fmt.Sprintf("rule_%d", i)
			}
			if verdicts {
				e.Verdict = words[i]
			}
			if family == 0 || address {
				out = append(out, e)
			}
		}
	}
	return out
}

// Sets and verdict maps that stand for rules load, read back as what was loaded,
// and take no steps again.
func TestSetsOfRules(t *testing.T) {
	host := kernelHost(t)
	for _, key := range [][]program.Field{
		{program.Source},
		{program.Port},
		{program.Protocol},
		{program.InInterface},
		{program.Mark},
		{program.Source, program.Port},
		{program.Destination, program.Protocol, program.Port},
		{program.Source, program.Destination},
		{program.InInterface, program.Source},
		{program.InInterface, program.Port},
		{program.Protocol, program.SourcePort, program.Port},
		{program.Source, program.Destination, program.Protocol, program.SourcePort, program.Port},
		{program.Source, program.Mark},
	} {
		for _, wide := range []bool{false, true} {
			for _, counted := range []bool{false, true} {
				for _, verdicts := range []bool{false, true} {
					p := ofRules(key, fitting(key, wide, counted, verdicts), counted, verdicts)
					name := fmt.Sprintf("%s wide %v counted %v verdicts %v", key, wide, counted, verdicts)
					_, err := lowerDefault(p)
					switch {
					case wide && !counted && !verdicts:
						continue // ordinary sets, tried elsewhere
					case err != nil && wide && hasField(key, program.Protocol) && len(key) > 1:
						continue // refused, as it should be
					case err != nil:
						t.Errorf("%s: %v", name, err)
						continue
					case wide && hasField(key, program.Mark) && len(key) > 1, wide && hasField(key, program.InInterface) && len(key) > 1:
						continue // no pass makes them
					}
					t.Run(name, func(t *testing.T) {
						a := mustLower(t, p)
						if asks := lookups(a.Tree); asks != len(a.Tree.Sets) {
							t.Errorf("%d rules ask the %d sets:\n%s", asks, len(a.Tree.Sets), a.Text())
						}
						host.load(t, New(), a)
						for _, contents := range []bool{true, false} {
							if d := host.compare(t, a, contents); len(d) > 0 {
								t.Errorf("read back (contents: %v): %s", contents, differences(d))
							}
							steps, err := New().Steps(a, host.read(t, contents))
							if err != nil || len(steps) > 0 {
								t.Errorf("an unchanged artifact takes steps (contents: %v): %v %v", contents, steps, err)
							}
						}
						host.load(t, New(), nil)
					})
				}
			}
		}
	}
}

// lookups is how many statements ask a set.
func lookups(t *Tree) (n int) {
	for _, c := range t.Chains {
		for _, r := range c.Rules {
			for _, s := range r.Statements {
				if s.Set != "" {
					n++
				}
			}
		}
	}
	return n
}

func hasField(key []program.Field, f program.Field) bool {
	for _, k := range key {
		if k == f {
			return true
		}
	}
	return false
}

// ofRules is a program whose one rule asks a set that stands for rules.
func ofRules(key []program.Field, elements []program.Element, counted, verdicts bool) *program.Program {
	p := &program.Program{
		Owner: "sluice",
		Hooks: []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Accept, Chain: "input"}},
		Chains: []program.Chain{
			{Name: "input", Rules: []program.Rule{{Actions: actions{program.Jump{Chain: "rules"}}}, {Actions: actions{program.Count{Counter: "rest"}, program.Drop}}}},
			{Name: "rules", Rules: []program.Rule{{}}},
			{Name: "sub", Rules: []program.Rule{{Actions: actions{program.Count{Counter: "sub"}}}}},
		},
		Counters: []program.Counter{{Name: "rest"}, {Name: "sub"}},
		Sets:     []program.Set{{ID: "rules.input.x", Key: key, Life: program.Static, Counters: counted, Verdicts: verdicts, Elements: elements}},
	}
	seen := map[string]bool{"": true}
	for _, e := range elements {
		if !seen[e.Counter] {
			seen[e.Counter] = true
			p.Counters = append(p.Counters, program.Counter{Name: e.Counter})
		}
	}
	r := &p.Chains[1].Rules[0]
	r.Comment = "6 rules"
	if hasField(key, program.Port) && !hasField(key, program.Protocol) {
		r.Match = conditions{protocolIs(17)}
	}
	if verdicts {
		r.Actions = actions{program.VerdictMap{Set: "rules.input.x", Key: key}}
		return p
	}
	c := program.Condition{Field: key[0], Set: "rules.input.x"}
	if len(key) > 1 {
		c.SetKey = key
	}
	r.Match = append(r.Match, c)
	r.Actions = actions{program.Accept}
	return p
}

// tally is a host that gets UDP packets, and what counters of its program count.
type tally struct {
	kernel
	from *testnet.Port
	sent uint64
}

func newTally(t *testing.T) *tally {
	t.Helper()
	requireNftables(t)
	n := testnet.New(t)
	host, client := n.Unnamed("host"), n.Unnamed("client")
	_, from := n.Join(
		testnet.End{In: host, Device: "eth0", Addresses: []string{"192.0.2.1/24", "2001:db8::1/64"}},
		testnet.End{In: client, Device: "c0", Addresses: []string{"192.0.2.2/24", "2001:db8::2/64"}},
	)
	return &tally{kernel: kernel{host}, from: from}
}

// send sends a packet from the source to the port and waits until it is counted.
func (y *tally) send(t *testing.T, source string, port uint16) {
	t.Helper()
	from := netip.MustParseAddr(source)
	to := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port)
	if from.Is6() {
		to = netip.AddrPortFrom(netip.MustParseAddr("2001:db8::1"), port)
	}
	if err := y.from.Send(testnet.UDP(netip.AddrPortFrom(from, 4000), to, 'x')); err != nil {
		t.Fatal(err)
	}
	y.sent++
	for range 12000 {
		var all uint64
		for name, c := range y.read(t, false).Counters() {
			if name != "sub" { // a packet that is counted there goes on
				all += c.Packets
			}
		}
		if all == y.sent {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%d packets were sent, counted is %v", y.sent, y.read(t, false).Counters())
}

func (y *tally) want(t *testing.T, counts map[string]uint64) {
	t.Helper()
	have := y.read(t, false).Counters()
	for name, want := range counts {
		if have[name].Packets != want {
			t.Errorf("counter %s: %d packets, want %d (all: %v)", name, have[name].Packets, want, have)
		}
	}
}

// Elements count for the rules that they stand for, of ports as well, which
// without counters would be a bitmap, and what is counted stays when rules move
// into sets, between them and out of them.
func TestCountsOfRules(t *testing.T) {
	y := newTally(t)
	port := func(n int, counter string) program.Element {
		return program.Element{Parts: []program.Value{{Numbers: program.NumberRange{From: uint64(n), To: uint64(n)}}}, Counter: counter}
	}
	// Rules by themselves.
	alone := ofRules([]program.Field{program.Port}, []program.Element{port(9, "other")}, true, false)
	alone.Counters = append(alone.Counters, program.Counter{Name: "a"}, program.Counter{Name: "b"})
	alone.Chains[1].Rules = append(alone.Chains[1].Rules,
		program.Rule{Match: conditions{protocolIs(17), numbersOf(program.Port, exactly(53))}, Actions: actions{program.Count{Counter: "a"}, program.Accept}},
		program.Rule{Match: conditions{protocolIs(17), numbersOf(program.Port, exactly(54))}, Actions: actions{program.Count{Counter: "b"}, program.Accept}},
	)
	y.load(t, New(), mustLower(t, alone))
	for range 3 {
		y.send(t, "192.0.2.10", 53)
	}
	y.send(t, "2001:db8::10", 54)
	y.send(t, "192.0.2.10", 55)
	y.want(t, map[string]uint64{"a": 3, "b": 1, "rest": 1})

	// In a set.
	inSet := ofRules([]program.Field{program.Port}, []program.Element{port(53, "a"), port(54, "b"), port(9, "other")}, true, false)
	y.load(t, New(), mustLower(t, inSet))
	y.want(t, map[string]uint64{"a": 3, "b": 1, "rest": 1})
	y.send(t, "192.0.2.10", 53)
	y.send(t, "2001:db8::10", 54)
	y.want(t, map[string]uint64{"a": 4, "b": 2, "rest": 1})

	// In a verdict map with addresses, where a rule is several elements, and
	// one of both families.
	key := []program.Field{program.Source, program.Port}
	both := func(address string, n int, counter string, verdict program.Action) program.Element {
		return program.Element{Counter: counter, Verdict: verdict, Parts: []program.Value{
			{Addresses: addressRanges(address)[0]}, {Numbers: program.NumberRange{From: uint64(n), To: uint64(n)}},
		}}
	}
	elements := []program.Element{
		both("192.0.2.10", 53, "a", program.Accept), both("192.0.2.11", 53, "a", program.Accept), both("2001:db8::10", 53, "a", program.Accept),
		both("192.0.2.10", 54, "b", program.Drop), both("192.0.2.12", 54, "c", program.Jump{Chain: "sub"}),
	}
	y.load(t, New(), mustLower(t, ofRules(key, elements, true, true)))
	y.want(t, map[string]uint64{"a": 4, "b": 2, "rest": 1})
	y.send(t, "192.0.2.11", 53)
	y.send(t, "2001:db8::10", 53)
	y.send(t, "192.0.2.10", 54)
	y.want(t, map[string]uint64{"a": 6, "b": 3, "rest": 1, "c": 0, "sub": 0})
	y.sent += 1 // what jumps is counted twice: by its element, and at the end
	y.send(t, "192.0.2.12", 54)
	y.want(t, map[string]uint64{"a": 6, "b": 3, "rest": 2, "c": 1, "sub": 1})

	// A rule less, another range.
	wide := append(elements[:3:3], both("192.0.2.128/25", 54, "b", program.Drop))
	y.load(t, New(), mustLower(t, ofRules(key, wide, true, true)))
	y.sent -= 1 // the counter c is gone
	y.want(t, map[string]uint64{"a": 6, "b": 3, "rest": 2})
	y.send(t, "192.0.2.130", 54)
	y.want(t, map[string]uint64{"a": 6, "b": 4, "rest": 2})

	// By themselves again.
	y.load(t, New(), mustLower(t, alone))
	y.want(t, map[string]uint64{"a": 6, "b": 4, "rest": 2})
	y.send(t, "192.0.2.10", 53)
	y.want(t, map[string]uint64{"a": 7, "b": 4, "rest": 2})
}

// A set whose elements stand for other counters is another set, else the kernel
// would go on counting for rules that are gone.
func TestNamesOfSetsOfRules(t *testing.T) {
	key := []program.Field{program.Source}
	name := func(counter string) string {
		elements := fitting(key, false, true, false)
		elements[0].Counter = counter
		a := mustLower(t, ofRules(key, elements, true, false))
		return a.Tree.Sets[0].Name
	}
	if name("one") == name("another") {
		t.Errorf("both are %s", name("one"))
	}
}
