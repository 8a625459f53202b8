package expect_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/base/testseed"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/prove/expect"
	"sluice/internal/prove/query"
	"sluice/internal/prove/reference"
)

const (
	randomPolicies = 25
	packetLines    = 20 // of each policy
	linesPerPolicy = 12
	randomPackets  = 100
)

type drafter struct{ *rand.Rand }

func (r drafter) one(list ...string) string { return list[r.IntN(len(list))] }

func (r drafter) chance(n int) bool { return r.IntN(n) == 0 }

const definitions = `version: 1
zones:
  wan: { interfaces: [eth0] }
  lan: { interfaces: [lan0], networks: [10.20.0.0/24, "2001:db8:20::/64"] }
  dmz: { interfaces: [dmz0] }
sets:
  office: [203.0.113.0/24, "2001:db8:77::/48"]
  partner: [203.0.113.128/25, 192.0.2.0/26]
  banned: [192.0.2.66, 203.0.113.9, "2001:db8:bad::/48"]
  inside: [10.20.0.0/28, 10.20.1.5, "2001:db8:20::/120"]
`

func (r drafter) service() string {
	return r.one("ssh", "http", "tcp/1-1023", "udp/53", "dns", "tcp", "icmp echo-request", "icmp", "any", "[http, udp/53]", "proto/112", "tcp/8080")
}

func (r drafter) who() string {
	return r.one("office", "partner", "inside", "not office", "203.0.113.9", "[office, 192.0.2.66]", "not [partner, inside]", "2001:db8:77::/64", "192.0.2.0/25")
}

// words are those of a rule of a section, behind its verdict.
func (r drafter) words(hook policy.Hook) string {
	text := r.service()
	if r.chance(4) {
		text += " " + r.one("ipv4", "ipv6")
	}
	switch {
	case r.chance(2):
	case hook != policy.Output && r.chance(3):
		text += " from lan"
	default:
		text += " from " + r.who()
	}
	switch {
	case r.chance(2):
	case hook != policy.Input && r.chance(3):
		text += " to " + r.one("lan", "wan", "not dmz")
	default:
		text += " to " + r.who()
	}
	if hook != policy.Output && r.chance(4) {
		text += " in " + r.one("wan", "lan", "dmz")
	}
	if hook != policy.Input && r.chance(4) {
		text += " out " + r.one("wan", "lan", "dmz")
	}
	if hook == policy.Output && r.chance(3) {
		text += " by user " + r.one("25", "1000")
	}
	return text
}

// policy makes one that the parser takes.
func (r drafter) policy() string {
	for {
		var b strings.Builder
		b.WriteString(definitions)
		if r.chance(2) {
			b.WriteString("ban: [banned]\nnever-ban: [203.0.113.9]\n")
		}
		if r.chance(3) {
			b.WriteString("tracking: { bypass: [http] }\n")
		}
		for _, hook := range []policy.Hook{policy.Input, policy.Forward, policy.Output} {
			if r.chance(5) {
				continue
			}
			fmt.Fprintf(&b, "%s:\n  default: %s\n  rules:\n", hook, r.one("drop", "drop", "allow", "reject"))
			for range r.IntN(7) {
				b.WriteString("    - " + r.one("allow", "allow", "drop", "reject") + " " + r.words(hook))
				if r.chance(6) {
					b.WriteString(" limit 5/minute")
				}
				b.WriteByte('\n')
			}
		}
		if r.chance(3) {
			b.WriteString("nat:\n  - redirect tcp/8080 in wan to 10.20.1.5:80\n  - map 198.51.100.16/28 to 10.20.1.16/28\n")
		}
		if _, err := policy.Parse("p.yaml", []byte(b.String())); err == nil {
			return b.String()
		}
	}
}

var (
	outside = []string{"203.0.113.5", "203.0.113.9", "203.0.113.130", "192.0.2.5", "192.0.2.66", "192.0.2.70", "198.51.100.77", "2001:db8:77::5", "2001:db8:bad::1", "2001:db8:5::5", "10.20.0.3", "10.20.0.77", "2001:db8:20::7"}
	homes   = []string{"198.51.100.1", "10.20.0.1", "2001:db8::1", "2001:db8:20::1"}
	goals   = []string{"10.20.0.3", "10.20.1.5", "203.0.113.130", "192.0.2.66", "198.51.100.17", "2001:db8:20::7", "2001:db8:5::5"}
)

// packet makes one that opens a flow, with the zones of its interfaces.
func (r drafter) packet() (p packet.Packet, way packet.Way) {
	way = []packet.Way{packet.In, packet.Through, packet.Out}[r.IntN(3)]
	from, to := outside, goals
	switch way {
	case packet.In:
		to = homes
	case packet.Out:
		from = homes
	}
	p = packet.Packet{Owner: -1}
	for {
		p.Source, p.Destination = netip.MustParseAddr(r.one(from...)), netip.MustParseAddr(r.one(to...))
		if p.Source.Is4() == p.Destination.Is4() && p.Source != p.Destination {
			break
		}
	}
	if way != packet.Out {
		p.In = r.one("eth0", "lan0", "dmz0")
	}
	if way != packet.In {
		p.Out = r.one("eth0", "lan0", "dmz0")
	}
	p.SourcePort = 40000
	switch r.IntN(5) {
	case 0:
		p.Protocol, p.Port = packet.UDP, []uint16{53, 1194}[r.IntN(2)]
	case 1:
		p.Protocol, p.ICMPType = packet.ICMP, 8
		if p.Source.Is6() {
			p.Protocol, p.ICMPType = packet.ICMPv6, 128
		}
	case 2:
		p.Protocol = 112
	default:
		p.Protocol, p.Port, p.Flags = packet.TCP, []uint16{22, 80, 443, 8080, 5000}[r.IntN(5)], packet.SYN
	}
	if !p.HasPorts() {
		p.SourcePort = 0
	}
	if way == packet.Out {
		p.Owner = []int64{25, 1000, 33}[r.IntN(3)]
	}
	p.SourceLocal, p.DestinationLocal = packet.Is(way == packet.Out), packet.Is(way == packet.In)
	return p, way
}

var zoneOf = map[string]string{"eth0": "wan", "lan0": "lan", "dmz0": "dmz"}

// lineOf is the words that fit the packet and others alone that no policy of the
// test tells from it.
func lineOf(p packet.Packet, way packet.Way) string {
	text := map[uint8]string{packet.TCP: "tcp", packet.UDP: "udp", packet.ICMP: "icmp echo-request", packet.ICMPv6: "icmp echo-request", 112: "proto/112"}[p.Protocol]
	if p.HasPorts() {
		text += fmt.Sprintf("/%d", p.Port)
	}
	text += fmt.Sprintf(" from %s to %s", p.Source, p.Destination)
	if p.In != "" {
		text += " in " + zoneOf[p.In]
	}
	if p.Out != "" {
		text += " out " + zoneOf[p.Out]
	}
	if p.Owner >= 0 {
		text += fmt.Sprintf(" by user %d", p.Owner)
	}
	return text + " on " + string(way)
}

// town is the host of the random policies.
func resolvedIn(t *testing.T, text string) *resolve.Resolved {
	t.Helper()
	p, err := policy.LoadData("p.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return inTown(t, p)
}

func inTown(t *testing.T, p *policy.Policy) *resolve.Resolved {
	t.Helper()
	known := facts
	known.Interfaces = append(slices.Clone(known.Interfaces), hostInterface("dmz0", "10.20.1.1/28"))
	r, err := resolve.Resolve(p, resolve.Options{Facts: known})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func judge(t *testing.T, text string) []expect.Result {
	t.Helper()
	r := resolvedIn(t, text)
	results, err := expect.Judge(query.Compiled{Resolved: r, Program: compiled(t, r)}, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return results
}

var others = map[policy.Action][]string{policy.Allow: {"deny", "drop", "reject"}, policy.Drop: {"allow", "reject"}, policy.Reject: {"allow", "drop"}}

// TestRandomPackets: what the reference says of a packet holds when it is
// expected of that packet alone, and each other verdict fails.
func TestRandomPackets(t *testing.T) {
	r := drafter{testseed.Rand(t)}
	rewritten, seen := 0, map[policy.Action]int{}
	for range randomPolicies {
		text := r.policy()
		plain := resolvedIn(t, text)
		var lines []string
		var paths []reference.Path
		for range packetLines {
			p, way := r.packet()
			state := ""
			if !strings.Contains(text, "bypass") && r.chance(4) {
				p.State = []packet.State{packet.New, packet.Established, packet.Related, packet.Invalid}[r.IntN(4)]
				state = " state " + string(p.State)
			}
			path := reference.Follow(plain, p, way)
			if path.Stage == "ban" && p.State == packet.Established {
				continue // such flows end with the ban, so no packet fits
			}
			verdict := string(path.Verdict)
			if path.Verdict != policy.Allow && r.chance(2) {
				verdict = "deny"
			}
			lines = append(lines, verdict+" "+lineOf(p, way)+state, r.one(others[path.Verdict]...)+" "+lineOf(p, way)+state)
			paths = append(paths, path)
			seen[path.Verdict]++
		}
		text += "expect:\n  - " + strings.Join(lines, "\n  - ") + "\n"
		for i, result := range judge(t, text) {
			path := paths[i/2]
			switch {
			case i%2 == 1 && result.Holds():
				t.Errorf("this holds, though the policy says %s: %s", path.Verdict, result.Expectation.Text)
			case i%2 == 1 || result.Holds():
			case path.Packet.DNAT:
				rewritten++ // the interface that it leaves by then is not said
			default:
				t.Errorf("this fails: %s\n%+v", result.Expectation.Text, result.Failures)
			}
		}
		if t.Failed() {
			t.Fatal(text)
		}
	}
	if len(seen) != 3 {
		t.Errorf("verdicts met: %v", seen)
	}
	t.Logf("verdicts %v, rewritten and not told by the line %d", seen, rewritten)
}

// TestRandomParts: what a part of some guests expects is judged as the same lines are that
// another part has, with the addresses for its names.
func TestRandomParts(t *testing.T) {
	r := drafter{testseed.Rand(t)}
	seen := map[bool]int{}
	named := strings.NewReplacer("to mine", "to [10.20.0.3, 10.20.1.5]", "own", "tcp/8080")
	view := &policy.View{Host: "hv-1", Guests: []policy.Guest{
		{Name: "vm-1", Interface: policy.Word{Text: "dmz0"}, Labels: map[string]string{"app": "shop"}},
		{Name: "vm-2", Interface: policy.Word{Text: "lan0"}, Labels: map[string]string{"app": "other"}},
	}}
	for i, list := range [][]string{{"10.20.0.3", "10.20.1.5", "2001:db8:20::7"}, {"10.20.0.9"}} {
		for _, a := range list {
			at := netip.MustParseAddr(a)
			view.Guests[i].Addresses = append(view.Guests[i].Addresses, policy.Range{Range: addrset.PrefixRange(netip.PrefixFrom(at, at.BitLen()))})
		}
	}
	for range testseed.Rounds(10, randomPolicies) {
		base := r.policy()
		var lines, plain []string
		for len(lines) < linesPerPolicy {
			line := r.one("allow", "drop", "deny", "reject") + " " + r.one(r.service(), "own")
			if r.chance(2) {
				line += " from " + r.who()
			}
			line += " to " + r.one("mine", "10.20.0.3", "[10.20.1.5, 2001:db8:20::7]") + r.one("", " in wan", " out dmz")
			as := named.Replace(line) + " on forward"
			if _, err := policy.Parse("p.yaml", []byte(definitions+"expect:\n  - "+as+"\n")); err == nil {
				lines, plain = append(lines, line), append(plain, as)
			}
		}
		judged := func(parts map[string]string) (out []string) {
			texts := map[string][]byte{"fleet.yaml": []byte("version: 1\nfleet: example.net\nparts: [parts/*.yaml]\nsets: {all: {guests: app, within: [10.20.0.0/16, \"2001:db8:20::/48\"]}}\n")}
			for name, text := range parts {
				texts[name] = []byte(text)
			}
			p, err := policy.Reading{Texts: texts, View: view}.Load("fleet.yaml")
			if err != nil {
				t.Fatalf("%v\n%s", err, parts)
			}
			resolved := inTown(t, p)
			results, err := expect.Judge(query.Compiled{Resolved: resolved, Program: compiled(t, resolved)}, nil)
			var senseless policy.Errors
			if errors.As(err, &senseless) {
				return []string{fmt.Sprint(len(senseless), " are senseless")}
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, result := range results {
				seen[result.Holds()]++
				out = append(out, fmt.Sprint(result.Hook, result.Holds(), len(result.Failures)))
			}
			return out
		}
		part := judged(map[string]string{"parts/10.yaml": base, "parts/20.yaml": "version: 1\nonly: guests app=shop\nsets: {mine: [10.20.0.3, 10.20.1.5]}\nservices: {own: tcp/8080}\nexpect:\n  - " + strings.Join(lines, "\n  - ") + "\n"})
		if want := judged(map[string]string{"parts/10.yaml": base, "parts/20.yaml": "version: 1\nexpect:\n  - " + strings.Join(plain, "\n  - ") + "\n"}); !slices.Equal(part, want) {
			t.Fatalf("%v\nwant %v\n%s\n%s", part, want, base, strings.Join(lines, "\n"))
		}
	}
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("the test shows nothing: %v", seen)
	}
}

// TestRandomLines: lines about many packets are judged as packets drawn from
// them are, and what fails has a witness that fits the line.
func TestRandomLines(t *testing.T) {
	r := drafter{testseed.Rand(t)}
	holding, failing, fitting := 0, 0, 0
	for range testseed.Rounds(10, randomPolicies) {
		text := r.policy()
		plain := resolvedIn(t, text)
		var lines []string
		var fits []*resolve.Resolved // a policy each that allows what fits
		for len(lines) < linesPerPolicy {
			hook := []policy.Hook{policy.Input, policy.Forward, policy.Output}[r.IntN(3)]
			words := r.words(hook)
			line := r.one("allow", "drop", "deny", "reject") + " " + words + " on " + string(hook)
			if _, err := policy.Parse("p.yaml", []byte(definitions+"expect:\n  - "+line+"\n")); err == nil {
				lines = append(lines, line)
				fits = append(fits, resolvedIn(t, definitions+string(hook)+":\n  default: drop\n  rules:\n    - allow "+words+"\n"))
			}
		}
		results, err := tryJudge(t, text+"expect:\n  - "+strings.Join(lines, "\n  - ")+"\n")
		var senseless policy.Errors
		if errors.As(err, &senseless) { // without those that no packet fits
			first := strings.Count(text, "\n") + 2
			for _, e := range slices.Backward(senseless) {
				i := e.Pos.Line - first
				lines, fits = slices.Delete(lines, i, i+1), slices.Delete(fits, i, i+1)
			}
			results = judge(t, text+"expect:\n  - "+strings.Join(lines, "\n  - ")+"\n")
		} else if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		fit := func(i int, p packet.Packet, way packet.Way) bool {
			return string(results[i].Hook) == string(way) && reference.Follow(fits[i], p, way).Rule != nil
		}
		for range randomPackets {
			p, way := r.packet()
			path := reference.Follow(plain, p, way)
			for i, result := range results {
				if !fit(i, p, way) {
					continue
				}
				fitting++
				want := result.Expectation.Action
				if met := want == path.Verdict || want == policy.Deny && path.Verdict != policy.Allow; !met && result.Holds() {
					t.Errorf("this holds: %s\nbut %s meets %s by %s", result.Expectation.Text, expect.PacketText(p), path.Verdict, path.Text)
				}
			}
		}
		for i, result := range results {
			if result.Holds() {
				holding++
			} else {
				failing++
			}
			for _, f := range result.Failures {
				if !fit(i, f.Witness, packet.Way(result.Hook)) {
					t.Errorf("%s: the witness does not fit: %s", result.Expectation.Text, expect.PacketText(f.Witness))
				}
				if len(f.Traffic) == 0 {
					t.Errorf("%s: no class", result.Expectation.Text)
				}
			}
		}
		if t.Failed() {
			t.Fatal(text)
		}
	}
	t.Logf("%d lines hold, %d fail, %d times a packet fitted one", holding, failing, fitting)
	if holding == 0 || failing == 0 || fitting == 0 {
		t.Error("the test shows nothing")
	}
}

func tryJudge(t *testing.T, text string) ([]expect.Result, error) {
	t.Helper()
	r := resolvedIn(t, text)
	return expect.Judge(query.Compiled{Resolved: r, Program: compiled(t, r)}, nil)
}
