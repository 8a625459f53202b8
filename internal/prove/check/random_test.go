package check_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice/internal/base/testseed"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/prove/check"
	"sluice/internal/system/host"
)

// randomRules is rules of forward over a world so small that every kind of
// packet in it can be tried.
func randomRules(r *rand.Rand) string {
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	var b strings.Builder
	b.WriteString("version: 1\nzones:\n  a: {interfaces: [a0]}\n  b: {interfaces: [\"b*\"], networks: [10.0.0.0/30, \"2001:db8::/127\"]}\n  n: {networks: [10.0.0.2-10.0.0.5]}\n" +
		"sets:\n  s: [10.0.0.0/31, 10.0.0.6]\n  six: [\"2001:db8::1\", \"2001:db8::2\"]\nforward:\n  default: drop\n  rules:\n")
	who := func() string {
		w := pick("a", "b", "n", "s", "six", "10.0.0.0/29", "10.0.0.4/30", "10.0.0.3", "[s, six]", "[a, 10.0.0.7]", "\"2001:db8::/126\"", "0.0.0.0/0")
		return pick("", "", "not ") + w
	}
	for range 2 + r.IntN(7) {
		line := pick("allow", "drop", "reject") + " " + pick("any", "any", "tcp/1", "tcp/1-3", "tcp", "[tcp/2, udp/1]", "udp", "icmp echo-request", "[tcp, udp, icmp]")
		line += pick("", "", "", " ipv4", " ipv6")
		if r.IntN(3) > 0 {
			line += " from " + who()
		}
		if r.IntN(3) == 0 {
			line += " to " + who()
		}
		line += pick("", "", "", " in a", " in b", " out b")
		line += pick("", "", "", "", " limit 10/minute")
		fmt.Fprintf(&b, "    - %s\n", strings.ReplaceAll(line, "\"", ""))
	}
	return b.String()
}

type smallPacket struct {
	source, destination netip.Addr
	protocol            uint8
	port                uint16 // or ICMP type
	in, out             string
}

func smallWorld() []smallPacket {
	addresses := map[bool][]netip.Addr{}
	for _, t := range []string{
		"10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7", "11.0.0.1",
		"2001:db8::", "2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db9::1",
	} {
		a := netip.MustParseAddr(t)
		addresses[a.Is4()] = append(addresses[a.Is4()], a)
	}
	var all []smallPacket
	for four, list := range addresses {
		echo := smallPacket{protocol: 1, port: 8}
		if !four {
			echo = smallPacket{protocol: 58, port: 128}
		}
		other := smallPacket{protocol: echo.protocol, port: 200}
		kinds := []smallPacket{
			{protocol: 6, port: 1},
			{protocol: 6, port: 2},
			{protocol: 6, port: 3},
			{protocol: 6, port: 9},
			{protocol: 17, port: 1},
			{protocol: 17, port: 9},
			echo, other,
			{protocol: 47},
		}
		for _, s := range list {
			for _, d := range list {
				for _, in := range []string{"a0", "b1", "c0"} {
					for _, out := range []string{"a0", "b1", "c0"} {
						for _, k := range kinds {
							k.source, k.destination, k.in, k.out = s, d, in, out
							all = append(all, k)
						}
					}
				}
			}
		}
	}
	return all
}

// fits is what the words of a rule say of one packet, read word by word.
func fits(res *resolve.Resolved, r *policy.Rule, p smallPacket) bool {
	if r.Family == 4 && p.source.Is6() || r.Family == 6 && p.source.Is4() {
		return false
	}
	ok := len(r.Services) == 0
	for _, s := range r.Services {
		for _, m := range s.Matches {
			ok = ok || m.Any || fitsService(m, p)
		}
	}
	if r.In != nil {
		ok = ok && res.Zones[r.In.Text].HasInterface(p.in)
	}
	if r.Out != nil {
		ok = ok && res.Zones[r.Out.Text].HasInterface(p.out)
	}
	return ok && fitsWho(res, r.From, p.source, p.in) && fitsWho(res, r.To, p.destination, p.out)
}

func fitsService(m policy.ServiceMatch, p smallPacket) bool {
	if m.Protocol == 1 {
		if p.protocol != 1 && p.protocol != 58 {
			return false
		}
		return m.ICMP == nil || p.protocol == 1 && m.ICMP.V4 == int(p.port) || p.protocol == 58 && m.ICMP.V6 == int(p.port)
	}
	if m.Protocol != p.protocol {
		return false
	}
	for _, r := range m.Ports {
		if r.From <= p.port && p.port <= r.To {
			return true
		}
	}
	return len(m.Ports) == 0
}

func fitsWho(res *resolve.Resolved, w *policy.Who, a netip.Addr, iface string) bool {
	if w == nil {
		return true
	}
	found := false
	for _, i := range w.Items {
		z, s := res.Zones[i.Name], res.Sets[i.Name]
		switch {
		case i.Name == "":
			found = found || i.Literal.From.Is4() == a.Is4() && i.Literal.From.Compare(a) <= 0 && a.Compare(i.Literal.To) <= 0
		case z != nil:
			found = found || (len(z.Interfaces) == 0 || z.HasInterface(iface)) && (!z.HasNetworks || z.Networks.Contains(a))
		default:
			found = found || s.Addresses.Contains(a)
		}
	}
	return found != w.Not
}

// randomResolved gives random rules that the language takes: it refuses families that
// are apart by what is written.
func randomResolved(t *testing.T, r *rand.Rand) (text string, p *policy.Policy, res *resolve.Resolved) {
	t.Helper()
	for {
		text = randomRules(r)
		p, err := policy.LoadData("policy.yaml", []byte(text))
		if err != nil && strings.Contains(err.Error(), "can never match") {
			continue
		}
		if err == nil {
			res, err = resolve.Resolve(p, resolve.Options{Facts: host.Facts{}})
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		return text, p, res
	}
}

// What check says can never match is what no packet of the small world reaches,
// no more and no less.
func TestRandomHiddenRules(t *testing.T) {
	world := smallWorld()
	r := testseed.Rand(t)
	hidden := 0
	for range 150 {
		text, p, res := randomResolved(t, r)
		never := map[int]bool{}
		for _, f := range check.Run(res, host.Facts{}) {
			if f.Code == check.HiddenRule || f.Code == check.NeverMatches {
				never[f.Pos.Line] = true
			}
		}
		reached := map[*policy.Rule]bool{}
		for _, packet := range world {
			for _, rule := range p.Forward.Rules {
				if !fits(res, rule, packet) {
					continue
				}
				reached[rule] = true
				if rule.Limit == nil {
					break
				}
			}
		}
		for _, rule := range p.Forward.Rules {
			if never[rule.Pos.Line] {
				hidden++
			}
			if never[rule.Pos.Line] == reached[rule] {
				t.Fatalf("line %d %q: can never match %v, reached %v\n%s", rule.Pos.Line, rule.Text, never[rule.Pos.Line], reached[rule], text)
			}
		}
	}
	if hidden == 0 {
		t.Error("no rule was hidden: the test shows nothing")
	}
}

// decide is the rule that decides a packet, nil the default. Rules with a limit
// match or not, as over says.
func decide(res *resolve.Resolved, rules []*policy.Rule, p smallPacket, over bool) policy.Action {
	for _, rule := range rules {
		if fits(res, rule, p) && (rule.Limit == nil || !over) {
			return rule.Action
		}
	}
	return res.Policy.Forward.Default
}

// Without a rule that lint calls redundant no packet of the small world has
// another fate, whether limits are reached or not; and where there are no limits,
// lint finds every such rule.
func TestRandomRedundantRules(t *testing.T) {
	world := smallWorld()
	r := testseed.Rand(t)
	redundant := 0
	for range 60 {
		text, p, res := randomResolved(t, r)
		named, hidden := map[int]bool{}, map[int]bool{}
		for _, f := range check.Lint(res, host.Facts{}, check.Options{}).Findings {
			named[f.Pos.Line] = named[f.Pos.Line] || f.Code == check.RedundantRule
			hidden[f.Pos.Line] = hidden[f.Pos.Line] || f.Code == check.HiddenRule || f.Code == check.NeverMatches
		}
		limits := strings.Contains(text, "limit")
		for i, rule := range p.Forward.Rules {
			if hidden[rule.Pos.Line] || !named[rule.Pos.Line] && limits {
				continue
			}
			less := slices.Delete(slices.Clone(p.Forward.Rules), i, i+1)
			same := true
			for _, packet := range world {
				for _, over := range []bool{false, true} {
					same = same && decide(res, p.Forward.Rules, packet, over) == decide(res, less, packet, over)
				}
				if !same {
					break
				}
			}
			if named[rule.Pos.Line] {
				redundant++
			}
			if same != named[rule.Pos.Line] {
				t.Fatalf("line %d %q: redundant %v, found %v\n%s", rule.Pos.Line, rule.Text, same, named[rule.Pos.Line], text)
			}
		}
	}
	if redundant == 0 {
		t.Error("no rule was redundant: the test shows nothing")
	}
}

// A word that lint calls without effect decides no packet of the small world,
// and every such word of a rule that decides some is found.
func TestRandomWordsWithoutEffect(t *testing.T) {
	world := smallWorld()
	r := testseed.Rand(t)
	dead := 0
	for range 150 {
		text, p, res := randomResolved(t, r)
		named, hidden := map[policy.Pos]bool{}, map[int]bool{}
		for _, f := range check.Lint(res, host.Facts{}, check.Options{}).Findings {
			named[f.Pos] = named[f.Pos] || f.Code == check.HiddenPart && strings.Contains(f.Message, "has no effect")
			hidden[f.Pos.Line] = hidden[f.Pos.Line] || f.Code == check.HiddenRule || f.Code == check.NeverMatches
		}
		for i, rule := range p.Forward.Rules {
			if hidden[rule.Pos.Line] {
				continue
			}
			words := map[policy.Pos]policy.Rule{}
			if len(rule.Services) > 1 {
				for _, s := range rule.Services {
					less := *rule
					less.Services = []policy.ServiceRef{s}
					words[s.Pos] = less
				}
			}
			if rule.From != nil && !rule.From.Not && len(rule.From.Items) > 1 {
				for _, item := range rule.From.Items {
					less := *rule
					less.From = &policy.Who{Items: []policy.WhoItem{item}}
					words[item.Pos] = less
				}
			}
			for pos, less := range words {
				some, decides := false, false
				for _, packet := range world {
					if !fits(res, &less, packet) {
						continue
					}
					some = true
					above := false
					for _, e := range p.Forward.Rules[:i] {
						above = above || e.Limit == nil && fits(res, e, packet)
					}
					decides = decides || !above
				}
				if named[pos] {
					dead++
				}
				if some && named[pos] == decides {
					t.Fatalf("%v of %q: decides %v, called without effect %v\n%s", pos, rule.Text, decides, named[pos], text)
				}
			}
		}
	}
	if dead == 0 {
		t.Error("every word had an effect: the test shows nothing")
	}
}
