package query

import (
	"slices"
	"strings"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/base/testseed"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
)

func TestReadWays(t *testing.T) {
	r := resolved(t, "policy.yaml", "version: 1\nzones:\n  lan: { interfaces: [lan0], networks: [10.20.0.0/24] }\nsets:\n  office: [203.0.113.0/24]\ninput:\n  default: drop\noutput:\n  default: drop\n")
	const twice = "input, input" // by another interface, or with another address
	for _, test := range []struct {
		words Words
		ways  string // of the questions
		fail  string
	}{
		{Words{}, "input, output", ""},
		{Words{Hook: "forward"}, "forward", ""},
		{Words{From: "lan"}, "input", ""}, // packets from this host come in by nothing
		{Words{From: "not lan"}, twice, ""},
		{Words{To: "office"}, "input, forward, output", ""}, // the section that is missing lets all through
		{Words{To: "192.0.2.7"}, "input, forward, output", ""},
		{Words{To: "127.0.0.1"}, "input, output", ""},
		{Words{To: "lan"}, "forward, output", ""},
		{Words{In: "lan"}, "input", ""},
		{Words{Out: "lan"}, "forward, output", ""},
		{Words{From: "lan", Hook: "output"}, "", "zone \"lan\" cannot be used after from in output"},
		{Words{In: "lan", Out: "lan"}, "forward", ""},
		{Words{In: "lan", Out: "lan", Hook: "input"}, "", "cannot be used"},
		{Words{Service: "shh"}, "", "did you mean \"ssh\"?"},
	} {
		questions, err := test.words.Read(r)
		var ways []string
		for _, q := range questions {
			ways = append(ways, string(q.Way))
		}
		switch {
		case test.fail == "" && (err != nil || strings.Join(ways, ", ") != test.ways):
			t.Errorf("%+v: got %v, %v, want %s", test.words, ways, err, test.ways)
		case test.fail != "" && (err == nil || !strings.Contains(err.Error(), test.fail)):
			t.Errorf("%+v: got the error %v, want %s", test.words, err, test.fail)
		}
	}
}

// What sides say of a WHO is held to what the words mean for single packets.
func TestSides(t *testing.T) {
	r := resolved(t, "policy.yaml", namedPolicy)
	random := testseed.Rand(t)
	for _, text := range []string{"office", "not office", "lan", "not lan", "[lan, office]", "not [lan, office, wan]", "vms", "not vms", "192.0.2.7"} {
		who, err := r.Policy.Asking().Who("--from", text, "from", false)
		if err != nil {
			t.Fatal(err)
		}
		for range 300 {
			p, _ := randomPacket(random)
			p.In = pick(random, "eth0", "lan0", "wg0")
			want := false
			for _, item := range who.Items {
				switch z := r.Zones[item.Name]; {
				case item.Name == "":
					want = want || addrset.Of(item.Literal).Contains(p.Source)
				case z == nil:
					want = want || r.Sets[item.Name].Addresses.Contains(p.Source)
				default:
					want = want || (len(z.Interfaces) == 0 || z.HasInterface(p.In)) && (!z.HasNetworks || z.Networks.Contains(p.Source))
				}
			}
			got := slices.ContainsFunc(sides(r, who, program.InInterface), func(s side) bool {
				return (s.addresses == nil || s.addresses.Contains(p.Source)) && !slices.ContainsFunc(s.conditions, func(c program.Condition) bool {
					return slices.Contains(c.Names, p.In) == c.Not
				})
			})
			if got != (want != who.Not) {
				t.Fatalf("%s: from %s in %s: %v", text, p.Source, p.In, got)
			}
		}
	}
}

func TestServices(t *testing.T) {
	numbers := func(n ...uint64) (out []program.NumberRange) {
		for i := 0; i < len(n); i += 2 {
			out = append(out, program.NumberRange{From: n[i], To: n[i+1]})
		}
		return out
	}
	field := func(f program.Field, n ...uint64) reach.FieldValues {
		return reach.FieldValues{Field: f, Numbers: numbers(n...)}
	}
	for _, test := range []struct {
		fields []reach.FieldValues
		want   string
	}{
		{nil, "any protocol"},
		{[]reach.FieldValues{field(program.Protocol, 6, 6)}, "tcp"},
		{[]reach.FieldValues{field(program.Protocol, 6, 6), field(program.Port, 22, 22, 80, 90)}, "tcp/22 tcp/80-90"},
		{[]reach.FieldValues{field(program.Protocol, 6, 6, 17, 17), field(program.Port, 53, 53)}, "tcp/53 udp/53"},
		{[]reach.FieldValues{field(program.Protocol, 6, 6), field(program.Port, 0, 21, 23, 65535)}, "tcp but tcp/22"},
		{[]reach.FieldValues{field(program.Protocol, 1, 1, 58, 58)}, "icmp"},
		{[]reach.FieldValues{field(program.Protocol, 0, 5, 7, 255)}, "any protocol but tcp"},
		{[]reach.FieldValues{field(program.Protocol, 0, 0, 2, 57, 59, 255)}, "any protocol but icmp"},
		{[]reach.FieldValues{field(program.Protocol, 1, 1), field(program.ICMPType, 8, 8)}, "icmp echo-request"},
		{[]reach.FieldValues{field(program.Protocol, 58, 58), field(program.ICMPv6Type, 0, 127, 129, 255)}, "icmp but echo-request"},
		{[]reach.FieldValues{field(program.Protocol, 58, 58), field(program.ICMPv6Type, 133, 136, 141, 142, 148, 149)}, "icmp neighbour-discovery"},
		{[]reach.FieldValues{field(program.Protocol, 112, 112)}, "proto/112"},
	} {
		families := [2]bool{true, true}
		w := &wording{}
		if got := strings.Join(w.services(reach.Class{Fields: test.fields}, &families), " "); got != test.want {
			t.Errorf("got %s, want %s", got, test.want)
		}
	}
	for _, test := range []struct{ in, want string }{
		{"tcp/22,udp/53", "tcp/22,udp/53"},
		{"any protocol but tcp and udp,udp,tcp but tcp/22", "any protocol but tcp/22"},
		{"any protocol but icmp,icmp", "any protocol"},
		{"any protocol but tcp and udp,any protocol but tcp,tcp/80", "any protocol but tcp,tcp/80"},
		{"any protocol but icmp,icmp echo-request", "any protocol but icmp,icmp echo-request"},
		{"any protocol but tcp,udp/53", "any protocol but tcp"},
	} {
		if got := strings.Join(simplify(strings.Split(test.in, ",")), ","); got != test.want {
			t.Errorf("%s: got %s, want %s", test.in, got, test.want)
		}
	}
}

func TestTCPFlags(t *testing.T) {
	set := func(is func(byte) bool) (out []program.NumberRange) {
		for n := range uint64(256) {
			if is(byte(n)) {
				out = append(out, program.NumberRange{From: n, To: n})
			}
		}
		return join(out)
	}
	for _, test := range []struct {
		is   func(byte) bool
		want string
	}{
		{func(b byte) bool { return b&synAck == packet.SYN }, "opening a connection (SYN without ACK)"},
		{func(b byte) bool { return b&synAck != packet.SYN }, "not opening a connection"},
		{func(b byte) bool { return b&packet.RST != 0 }, "with RST"},
		{func(b byte) bool { return b&packet.RST == 0 }, "without RST"},
		{func(b byte) bool { return b&(packet.SYN|packet.RST) == packet.SYN }, "with SYN, without RST"},
		{func(b byte) bool { return b&(packet.FIN|packet.PSH|packet.URG) != packet.FIN|packet.PSH|packet.URG }, "not with FIN, PSH and URG"},
		{func(b byte) bool { return b&synAck == packet.SYN || b&packet.RST != 0 }, "opening a connection, or with RST"},
		{func(b byte) bool { return b == 1 || b == 6 || b == 9 }, "TCP flags 1, 6, 9"},
	} {
		if got := tcpFlags(set(test.is)); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

func TestDanger(t *testing.T) {
	for services, want := range map[string]int{
		"any protocol": anyService, "any protocol but tcp/25": anyService, "tcp": anyService, "udp/1024-65535": anyService, "tcp but tcp/25": anyService,
		"tcp/22": manages, "tcp/20-25": manages, "udp/161": manages, "tcp/80,tcp/3306": manages,
		"tcp/80": ordinary, "udp/22": ordinary, "icmp echo-request": ordinary, "proto/112": ordinary, "proto/33 port 22": ordinary,
	} {
		if got := danger(strings.Split(services, ",")); got != want {
			t.Errorf("%s: %d, want %d", services, got, want)
		}
	}
}

func TestAsTight(t *testing.T) {
	rate := func(packets, per, burst uint64, source program.SourceKey) program.Action {
		return program.Limit{Rate: program.Rate{Packets: packets, Per: per, Burst: burst}, Per: source}
	}
	params := map[string]program.Action{
		"ten": rate(10, 1000, 10, ""), "twenty": rate(20, 1000, 20, ""), "slow": rate(300, 60_000, 10, ""), "burst": rate(10, 1000, 50, ""), "each": rate(10, 1000, 10, program.PerSource),
		"five": program.ConnectionLimit{Max: 5}, "nine": program.ConnectionLimit{Max: 9},
	}
	for _, test := range []struct {
		old, next string
		want      bool
	}{
		{"ten", "ten", true},
		{"ten", "twenty", false},
		{"twenty", "ten", true},
		{"ten", "slow", true},
		{"slow", "ten", false},
		{"ten", "burst", false},
		{"ten", "each", false},
		{"nine", "five", true},
		{"five", "nine", false},
		{"ten five", "five", false},
		{"ten", "five ten", true},
		{"", "ten", true},
		{"ten", "", false},
	} {
		if got := asTight(strings.Fields(test.old), strings.Fields(test.next), params); got != test.want {
			t.Errorf("from %q to %q: %v", test.old, test.next, got)
		}
	}
}

func TestMarkdownEscapes(t *testing.T) {
	d := &Diff{Changes: []Change{{
		Kind: Opened, Traffic: Traffic{Hook: "input", Services: []string{"tcp/22"}},
		Old: Side{Verdict: "dropped", By: []Decider{{File: "a|b.yaml", Line: 3, Text: "drop any log \"*_<b>\""}}},
	}}}
	text := Markdown(d, "old`|.yaml", "new.yaml")
	for _, want := range []string{"`old'\\|.yaml`", `a\|b.yaml:3`, `\*\_&lt;b>`, "**It opens something.**"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}
