package reach_test

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/program/compile"
	"sluice/internal/program/optimize"
	"sluice/internal/prove/reach"
	"sluice/internal/system/host"
)

var ways = []reach.Way{reach.In, reach.Through, reach.Out}

// facts are of a host with one interface to the internet.
var facts = host.Facts{
	Known: true, DefaultRoute: []string{"eth0"}, EphemeralFrom: 32768, EphemeralTo: 60999,
	Interfaces: []host.Interface{{Name: "eth0", Index: 2, Up: true, Addresses: []netip.Prefix{
		netip.MustParsePrefix("198.51.100.1/24"), netip.MustParsePrefix("2001:db8::1/64"),
	}}},
}

var own = addrset.FromPrefixes(netip.MustParsePrefix("198.51.100.1/32"), netip.MustParsePrefix("2001:db8::1/128"))

func load(t *testing.T, p *policy.Policy, err error) *program.Program {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	r, err := resolve.Resolve(p, resolve.Options{Facts: facts, Geo: func() (*geo.Database, error) { return geo.Open(t.TempDir()) }})
	if err != nil {
		t.Fatal(err)
	}
	out, err := compile.Compile(r)
	if err != nil {
		t.Fatal(err)
	}
	without := []string{}
	for _, pass := range optimize.Passes {
		if !pass.Required {
			without = append(without, pass.Name)
		}
	}
	if err := optimize.Run(out, optimize.Options{Without: without}); err != nil {
		t.Fatal(err)
	}
	return out
}

func parse(t *testing.T, text string) *program.Program {
	t.Helper()
	p, err := policy.Parse("policy.yaml", []byte("version: 1\n"+text))
	return load(t, p, err)
}

// TestOutcomesAgainstEvaluation: on every way through every example, one packet of
// each class is judged alone, and meets what the class does.
func TestOutcomesAgainstEvaluation(t *testing.T) {
	files, err := filepath.Glob("../../../examples/*/policy.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no examples", err)
	}
	asked := 0
	for _, file := range files {
		policy, err := policy.Load(file)
		p := load(t, policy, err)
		u := reach.NewUniverse(reach.Options{Own: own}, p)
		for _, way := range ways {
			for _, o := range u.Outcomes(p, way) {
				for _, c := range u.Classes(way, u.Unlimited(o.Region)) {
					if _, here := c.Values(program.DestinationHere); here {
						continue // nothing in a packet says it
					}
					if !u.Holds(c.Region, c.Witness) {
						t.Errorf("%s: the witness of a class is none: %s %+v", file, reach.Describe(c.Witness), c.Fields[max(0, len(c.Fields)-3):])
					}
					asked += alone(t, file, p, way, o, c.Witness)
				}
			}
		}
	}
	if asked < 500 {
		t.Errorf("only %d packets were judged alone", asked)
	}
}

func alone(t *testing.T, file string, p *program.Program, way reach.Way, o reach.Outcome, witness packet.Packet) int {
	t.Helper()
	pkt := witness
	if pkt.State != packet.New && pkt.State != packet.Untracked && p.Base(program.Prerouting, program.Raw) != nil {
		return 0 // an evaluation takes what it is told of the state for the last word
	}
	if pkt.State == packet.New {
		pkt.State = ""
	}
	if pkt.DNAT || pkt.SNAT || pkt.Fragment {
		return 0 // was rewritten by others, or is told apart more finely
	}
	got := reach.Evaluate(p, pkt, way)
	if !got.Certain {
		return 0
	}
	if got.Verdict != o.Verdict {
		t.Errorf("%s: %s %s: all packets say %s, this one %s (%s)", file, way, reach.Describe(witness), o, got.Verdict, got.Describe())
	}
	if o.Verdict == program.Accept {
		destination := slices.ContainsFunc(o.Change, func(s string) bool {
			return strings.HasPrefix(s, "destination") && !strings.HasSuffix(s, "of the host")
		})
		if destination != (got.Packet.Destination != pkt.Destination) {
			t.Errorf("%s: %s %s: rewritten %q, alone to %s", file, way, reach.Describe(witness), o.Change, got.Packet.Destination)
		}
		if slices.Contains(o.Change, "not tracked") != (got.Packet.State == packet.Untracked && witness.State != packet.Untracked) {
			t.Errorf("%s: %s %s: %q, alone %s", file, way, reach.Describe(witness), o.Change, got.Packet.State)
		}
	}
	return 1
}

func TestClassesOfAQuestion(t *testing.T) {
	p := parse(t, `
sets: { office: [203.0.113.0/24, "2001:db8:77::/48"] }
input:
  default: drop
  rules:
    - allow ssh from office
    - allow tcp/1000-2000
`)
	office := addrset.FromPrefixes(netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8:77::/48"))
	number := func(n uint64) []program.NumberRange { return []program.NumberRange{{From: n, To: n}} }
	ssh := reach.Question{Way: reach.In, States: []packet.State{packet.New}, Match: [][]program.Condition{{
		{Field: program.Protocol, Numbers: number(6)}, {Field: program.Port, Numbers: number(22)},
	}}}
	outside := ssh
	others := office.Complement()
	outside.From = &others
	u := reach.NewUniverse(reach.Options{Questions: []reach.Question{ssh, outside}}, p)
	allowed := u.Unlimited(u.Allowed(p, reach.In))
	notLoopback := u.Minus(allowed, u.Region(reach.Question{Way: reach.In, Match: [][]program.Condition{{{Field: program.InInterface, Names: []string{"lo"}}}}}))

	classes := u.Classes(reach.In, u.And(notLoopback, u.Region(ssh)))
	if len(classes) != 1 {
		t.Fatalf("%d classes, want one: %+v", len(classes), classes)
	}
	if from, told := classes[0].Values(program.Source); !told || !from.Addresses.Equal(office) {
		t.Errorf("ssh is allowed from %s", from.Addresses)
	}
	if w := classes[0].Witness; !office.Contains(w.Source) || w.Port != 22 || w.Protocol != packet.TCP {
		t.Errorf("the witness is %s", reach.Describe(w))
	}
	if got := u.And(notLoopback, u.Region(outside)); !u.Empty(got) {
		t.Errorf("ssh is open to others: %+v", u.Classes(reach.In, got))
	}
}

func TestCompareNamesThePackets(t *testing.T) {
	policyOf := func(rule string) *program.Program {
		return parse(t, "input: { default: drop, rules: [\""+rule+"\"] }\n")
	}
	a := policyOf("allow tcp/22 from 203.0.113.0/24")
	for _, c := range []struct {
		rule string
		want func(packet.Packet) bool
	}{
		{"allow tcp/22 from 203.0.113.0/25", func(p packet.Packet) bool { return p.Source.As4()[3] >= 128 }},
		{"allow tcp/22-23 from 203.0.113.0/24", func(p packet.Packet) bool { return p.Port == 23 }},
		{"allow [tcp/22, udp/22] from 203.0.113.0/24", func(p packet.Packet) bool { return p.Protocol == packet.UDP }},
		{"reject tcp/22 from 203.0.113.0/24", func(p packet.Packet) bool { return p.Port == 22 }},
	} {
		b := policyOf(c.rule)
		u := reach.NewUniverse(reach.Options{Settled: true}, a, b)
		found := u.Compare(a, b, false)
		if len(found) == 0 {
			t.Errorf("%s: no difference", c.rule)
		}
		for _, d := range found {
			if !c.want(d.Witness) {
				t.Errorf("%s: %s", c.rule, d)
			}
		}
	}
	again := policyOf("allow tcp/22 from [203.0.113.0/25, 203.0.113.128/25]")
	if found := reach.NewUniverse(reach.Options{}, a, again).Compare(a, again, false); len(found) > 0 {
		t.Errorf("the same in other words: %v", found)
	}
}

// TestRewriting: what is asked behind a rewriting is asked of the new address, and
// of prefixes bit for bit.
func TestRewriting(t *testing.T) {
	p := parse(t, `
zones: { wan: { interfaces: [eth0] }, lan: { interfaces: [lan0], networks: [10.20.0.0/16] } }
nat:
  - map 198.51.100.16/28 to 10.20.1.0/28
  - redirect tcp/8080 in wan to 10.20.0.5:80
forward:
  default: drop
  rules:
    - allow tcp/443 to 10.20.1.4/30
    - allow tcp/80 to 10.20.0.5
`)
	u := reach.NewUniverse(reach.Options{Own: addrset.FromPrefixes(netip.MustParsePrefix("198.51.100.1/32"))}, p)
	allowed := u.And(u.Allowed(p, reach.Through), u.Region(reach.Question{Way: reach.Through, States: []packet.State{packet.New, packet.Related}}))
	send := func(to string, port uint16) packet.Packet {
		return packet.Packet{
			In: "eth0", Out: "lan0", Source: netip.MustParseAddr("192.0.2.7"), Destination: netip.MustParseAddr(to), Protocol: packet.TCP,
			Port: port, SourcePort: 40000, Flags: packet.SYN, State: packet.New, Owner: -1, HopLimit: 64, SourceLocal: packet.No, DestinationLocal: packet.No,
		}
	}
	own := send("198.51.100.1", 8080)
	own.DestinationLocal = packet.Yes
	expected := own // by another flow
	expected.State = packet.Related
	for _, c := range []struct {
		p    packet.Packet
		want bool
	}{
		{send("198.51.100.20", 443), true}, // 10.20.1.4
		{send("198.51.100.23", 443), true},
		{send("198.51.100.24", 443), false},
		{send("198.51.100.19", 443), false},
		{send("10.20.1.5", 443), true}, // nobody rewrites it
		{send("198.51.100.20", 80), false},
		{own, true},
		{expected, true},
	} {
		if got := u.Holds(allowed, c.p); got != c.want {
			t.Errorf("%s: allowed %t, want %t", reach.Describe(c.p), got, c.want)
		}
	}
}

// TestHere: what is local to an interface is its own addresses alone, and classes
// of what comes in name no others.
func TestHere(t *testing.T) {
	p := parse(t, `
zones: { wan: { interfaces: [eth0] } }
nat: [redirect tcp/2222 in wan to :22]
input: { default: drop, rules: [allow ssh in wan] }
`)
	wan := addrset.FromPrefixes(netip.MustParsePrefix("198.51.100.1/32"), netip.MustParsePrefix("2001:db8::1/128"), netip.MustParsePrefix("fe80::1/128"))
	lan := addrset.FromPrefixes(netip.MustParsePrefix("10.20.0.1/32"))
	port := reach.Question{Way: reach.In, States: []packet.State{packet.New}, Match: [][]program.Condition{{
		{Field: program.Protocol, Numbers: []program.NumberRange{{From: 6, To: 6}}},
		{Field: program.Port, Numbers: []program.NumberRange{{From: 2222, To: 2222}}},
		{Field: program.InInterface, Names: []string{"eth0"}},
		{Field: program.Status, Names: []string{"dnat", "snat"}, Not: true},
	}}}
	u := reach.NewUniverse(reach.Options{
		Own: wan.Union(lan), Here: map[string]addrset.Set{"eth0": wan, "lan0": lan}, Now: true, Questions: []reach.Question{port},
	}, p)
	asked := u.Region(port)
	allowed := u.Unlimited(u.And(u.Allowed(p, reach.In), asked))
	classes := u.ClassesAmong(reach.In, allowed, reach.Among{All: u.Unlimited(asked)})
	if len(classes) != 1 {
		t.Fatalf("%d classes, want one: %+v", len(classes), classes)
	}
	if to, _ := classes[0].Values(program.Destination); !to.Addresses.Equal(wan) {
		t.Errorf("redirected is what is to %s, want %s", to.Addresses, wan)
	}
}

// A rule that no packet reaches turns on no label: with it or without, and without what
// it asks of the connections that it would label, the programs are the same.
func TestLabelsOfUnreachedRules(t *testing.T) {
	const rules = "input: { default: drop, rules: [allow ssh limit 5/minute per source, drop any%s] }\n"
	with := parse(t, fmt.Sprintf(rules, ", allow ssh limit 7/minute per source"))
	without := parse(t, fmt.Sprintf(rules, ""))
	if len(with.Labels()) == len(without.Labels()) {
		t.Fatalf("both programs have the labels %v", with.Labels())
	}
	if found := reach.NewUniverse(reach.Options{Settled: true}, with, without).Compare(with, without, false); len(found) > 0 {
		t.Errorf("found %v", found)
	}
}
