package kerneltest

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"sluice/internal/base/packet"
	"sluice/internal/lab/drafts"
	"sluice/internal/language/policy"
	"sluice/internal/program/compile"
	"sluice/internal/prove/reference"
)

// What random runs have found, by name: packets after which reference and kernel
// were not of one mind.
var keptCases = []struct {
	name   string
	policy string
	shots  []keptShot
}{
	{
		name:   "the reset of a rejected SYN ends the connection that output has taken up midway",
		policy: "tracking: { invalid: allow }\ninput: { default: reject }\n",
		shots: []keptShot{
			{way: packet.Out, from: "host:2223", to: "peer:10046", flags: keptPA, seq: 900, ack: 50, data: "answer", state: packet.New, verdict: policy.Allow},
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:2223", flags: packet.SYN, seq: 50, state: packet.Invalid, verdict: policy.Reject, reset: policy.Allow},
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:2223", flags: packet.ACK, seq: 51, ack: 906, state: packet.New, verdict: policy.Reject},
		},
	},
	{
		name:   "the same of one that input has taken up",
		policy: "tracking: { invalid: allow }\noutput: { default: reject }\n",
		shots: []keptShot{
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:2223", flags: keptPA, seq: 900, ack: 50, data: "answer", state: packet.New, verdict: policy.Allow},
			{way: packet.Out, from: "host:2223", to: "peer:10046", flags: packet.SYN, seq: 50, state: packet.Invalid, verdict: policy.Reject, reset: policy.Allow},
			{way: packet.Out, from: "host:2223", to: "peer:10046", flags: packet.ACK, seq: 51, ack: 906, state: packet.New, verdict: policy.Reject},
		},
	},
	{
		name:   "the same of one that forward has taken up",
		policy: "zones: { lan: { interfaces: [lan0] } }\ntracking: { invalid: allow }\nforward: { default: reject, rules: [allow any in lan] }\n",
		shots: []keptShot{
			{side: lan0, way: packet.Through, from: "inner:2223", to: "peer:10046", flags: keptPA, seq: 900, ack: 50, data: "answer", state: packet.New, verdict: policy.Allow},
			{side: wan0, way: packet.Through, from: "peer:10046", to: "inner:2223", flags: packet.SYN, seq: 50, state: packet.Invalid, verdict: policy.Reject, reset: policy.Allow},
			{side: wan0, way: packet.Through, from: "peer:10046", to: "inner:2223", flags: packet.ACK, seq: 51, ack: 906, state: packet.New, verdict: policy.Reject},
		},
	},
	{
		name:   "output may refuse that reset, and it counts anyway",
		policy: "tracking: { invalid: allow }\ninput: { default: reject }\noutput:\n  default: allow\n  rules:\n    - 'drop tcp to peer'\n",
		shots: []keptShot{
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:2223", flags: packet.SYN | packet.ACK, seq: 50, ack: 7, state: packet.Invalid, verdict: policy.Reject, reset: policy.Drop},
		},
	},
	{
		name:   "a reset that an acknowledgement asks for with a number of the past ends nothing",
		policy: "tracking: { invalid: allow }\ninput: { default: reject, rules: [allow tcp/22] }\n",
		shots: []keptShot{
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:22", flags: packet.SYN, seq: 50, state: packet.New, verdict: policy.Allow},
			{way: packet.Out, from: "host:22", to: "peer:10046", flags: packet.SYN | packet.ACK, seq: 900, ack: 51, state: packet.Established, verdict: policy.Allow},
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:22", flags: packet.ACK, seq: 51, ack: 901, state: packet.Established, verdict: policy.Allow},
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:22", flags: keptPA, seq: 51, ack: 901, data: "question", state: packet.Established, verdict: policy.Allow},
			{way: packet.Out, from: "host:22", to: "peer:10046", flags: packet.RST, seq: 800, state: packet.Invalid, verdict: policy.Allow},
			{way: packet.Out, from: "host:22", to: "peer:10046", flags: packet.ACK, seq: 901, ack: 59, state: packet.Established, verdict: policy.Allow},
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:22", flags: packet.ACK, seq: 90_000_000, ack: 901, state: packet.Invalid, verdict: policy.Allow},
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:22", flags: packet.ACK, seq: 59, ack: 901, state: packet.Established, verdict: policy.Allow},
		},
	},
	{
		name:   "a reset of who sent the last SYN is invalid beyond its window",
		policy: "output: { default: drop }\n",
		shots: []keptShot{
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:25", flags: packet.SYN, seq: 1000, state: packet.New, verdict: policy.Allow},
			{way: packet.Out, from: "host:25", to: "peer:10046", flags: packet.SYN, seq: 5000, data: "data", state: packet.Established, verdict: policy.Allow},
			{way: packet.Out, from: "host:25", to: "peer:10046", flags: packet.RST, seq: 170_000, state: packet.Invalid, verdict: policy.Drop},
			{way: packet.Out, from: "host:25", to: "peer:10046", flags: packet.RST, seq: 70_537, state: packet.Established, verdict: policy.Allow},
			{way: packet.Out, from: "host:25", to: "peer:10046", flags: keptPA, seq: 70_537, ack: 1001, data: "data", state: packet.Established, verdict: policy.Allow},
		},
	},
	{
		name:   "a reset after a SYN-ACK that was ignored ends the connection, whatever its number",
		policy: "input: { default: drop, rules: [allow tcp/8] }\n",
		shots: []keptShot{
			{side: wan0, way: packet.In, from: "peer:10510", to: "host:8", flags: packet.SYN, seq: 1000, state: packet.New, verdict: policy.Allow},
			{way: packet.Out, from: "host:8", to: "peer:10510", flags: packet.SYN | packet.ACK, seq: 70_536, ack: 900_000, state: packet.Invalid, verdict: policy.Allow},
			{way: packet.Out, from: "host:8", to: "peer:10510", flags: packet.SYN | packet.ACK, seq: 5000, ack: 1001, state: packet.Established, verdict: policy.Allow},
			{side: wan0, way: packet.In, from: "peer:10510", to: "host:8", flags: packet.ACK, seq: 1001, ack: 5001, state: packet.Invalid, verdict: policy.Drop},
			{way: packet.Out, from: "host:8", to: "peer:10510", flags: packet.RST, seq: 5001, state: packet.Established, verdict: policy.Allow},
			{side: wan0, way: packet.In, from: "peer:10510", to: "host:8", flags: keptPA, seq: 1001, ack: 5001, data: "late", state: packet.Established, verdict: policy.Allow},
		},
	},
	{
		name:   "a FIN beyond the window of a connection in use is the last of which the tracker heard",
		policy: "output: { default: drop }\n",
		shots: []keptShot{
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:22", flags: packet.SYN, seq: 50, state: packet.New, verdict: policy.Allow},
			{way: packet.Out, from: "host:22", to: "peer:10046", flags: packet.SYN | packet.ACK, seq: 900, ack: 51, state: packet.Established, verdict: policy.Allow},
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:22", flags: packet.ACK, seq: 51, ack: 901, state: packet.Established, verdict: policy.Allow},
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:22", flags: packet.SYN, seq: 5000, state: packet.Established, verdict: policy.Allow},
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:22", flags: packet.FIN | packet.ACK, seq: 90_000_000, ack: 901, state: packet.Invalid, verdict: policy.Allow},
			{way: packet.Out, from: "host:22", to: "peer:10046", flags: packet.RST | packet.ACK, seq: 800, ack: 5001, state: packet.Invalid, verdict: policy.Drop},
		},
	},
	{
		name:   "of two ACKs that a SYN is challenged by, the second ends the connection",
		policy: "output: { default: reject }\n",
		shots: []keptShot{
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:22", flags: packet.SYN, seq: 50, state: packet.New, verdict: policy.Allow},
			{way: packet.Out, from: "host:22", to: "peer:10046", flags: packet.SYN | packet.ACK, seq: 900, ack: 51, state: packet.Established, verdict: policy.Allow},
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:22", flags: packet.ACK, seq: 51, ack: 901, state: packet.Established, verdict: policy.Allow},
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:22", flags: packet.FIN | packet.ACK, seq: 51, ack: 901, state: packet.Established, verdict: policy.Allow},
			{way: packet.Out, from: "host:22", to: "peer:10046", flags: packet.FIN | packet.ACK, seq: 901, ack: 52, state: packet.Established, verdict: policy.Allow},
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:22", flags: packet.SYN, seq: 5000, state: packet.Established, verdict: policy.Allow},
			{way: packet.Out, from: "host:22", to: "peer:10046", flags: packet.ACK, seq: 902, ack: 52, state: packet.Established, verdict: policy.Allow},
			{way: packet.Out, from: "host:22", to: "peer:10046", flags: packet.ACK, seq: 902, ack: 52, state: packet.Established, verdict: policy.Allow},
			{way: packet.Out, from: "host:22", to: "peer:10046", flags: packet.SYN, seq: 7000, state: packet.New, verdict: policy.Reject},
		},
	},
	{
		name:   "a SYN once more makes the tracker forget that both ends opened",
		policy: "input: { default: drop, rules: [allow tcp/25] }\n",
		shots: []keptShot{
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:25", flags: packet.SYN, seq: 1000, state: packet.New, verdict: policy.Allow},
			{way: packet.Out, from: "host:25", to: "peer:10046", flags: packet.SYN, seq: 5000, state: packet.Established, verdict: policy.Allow},
			{way: packet.Out, from: "host:25", to: "peer:10046", flags: packet.SYN | packet.ACK, seq: 5000, ack: 1001, state: packet.Established, verdict: policy.Allow},
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:25", flags: packet.SYN, seq: 1000, state: packet.Established, verdict: policy.Allow},
			{way: packet.Out, from: "host:25", to: "peer:10046", flags: packet.ACK, seq: 5001, ack: 1001, state: packet.Established, verdict: policy.Allow},
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:25", flags: packet.SYN | packet.ACK, seq: 1000, ack: 5001, state: packet.Established, verdict: policy.Allow},
		},
	},
	{
		name:   "what was taken up midway is free of its window when a new opening is believed",
		policy: "output: { default: drop }\n",
		shots: []keptShot{
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:22", flags: packet.ACK, seq: 900, ack: 50, state: packet.New, verdict: policy.Allow},
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:22", flags: packet.SYN, seq: 5000, state: packet.New, verdict: policy.Allow},
			{way: packet.Out, from: "host:22", to: "peer:10046", flags: packet.SYN | packet.ACK, seq: 7000, ack: 5001, state: packet.Established, verdict: policy.Allow},
			{way: packet.Out, from: "host:22", to: "peer:10046", flags: packet.ACK, seq: 90_000_000, ack: 5001, state: packet.Established, verdict: policy.Allow},
		},
	},
	{
		name:   "a reset that answers the last SYN ends the connection, whatever its number",
		policy: "output: { default: drop }\n",
		shots: []keptShot{
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:25", flags: packet.SYN, seq: 1000, state: packet.New, verdict: policy.Allow},
			{way: packet.Out, from: "host:25", to: "peer:10046", flags: packet.SYN, seq: 5000, state: packet.Established, verdict: policy.Allow},
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:25", flags: packet.RST, seq: 170_000, state: packet.Established, verdict: policy.Allow},
			{way: packet.Out, from: "host:25", to: "peer:10046", flags: keptPA, seq: 70_537, ack: 1001, data: "data", state: packet.Invalid, verdict: policy.Drop},
		},
	},
	{
		name:   "the same of a SYN in a connection in use",
		policy: "output: { default: drop }\n",
		shots: []keptShot{
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:25", flags: packet.SYN, seq: 1000, state: packet.New, verdict: policy.Allow},
			{way: packet.Out, from: "host:25", to: "peer:10046", flags: packet.SYN | packet.ACK, seq: 5000, ack: 1001, state: packet.Established, verdict: policy.Allow},
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:25", flags: packet.ACK, seq: 1001, ack: 5001, state: packet.Established, verdict: policy.Allow},
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:25", flags: packet.SYN, seq: 7000, state: packet.Established, verdict: policy.Allow},
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:25", flags: packet.RST | packet.ACK, seq: 170_000, ack: 7001, state: packet.Invalid, verdict: policy.Allow},
			{way: packet.Out, from: "host:25", to: "peer:10046", flags: packet.RST | packet.ACK, seq: 170_000, ack: 7001, state: packet.Invalid, verdict: policy.Drop},
		},
	},
	{
		name:   "what a redirect leads to where it goes already is not published",
		policy: "zones: { wan: { interfaces: [wan0] } }\ninput: { default: drop, rules: [allow published tcp/22] }\nnat:\n  - 'redirect tcp/22 in wan to host'\n",
		shots: []keptShot{
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:22", flags: packet.SYN, seq: 50, state: packet.New, verdict: policy.Drop},
		},
	},
	{
		name:   "a SYN that is rejected when it comes again closes its connection",
		policy: "input: { default: reject, rules: [allow tcp/22 limit 1/day burst 1] }\noutput: { default: drop }\n",
		shots: []keptShot{
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:22", flags: packet.SYN, seq: 50, state: packet.New, verdict: policy.Allow},
			{side: wan0, way: packet.In, from: "peer:10046", to: "host:22", flags: packet.SYN, seq: 50, state: packet.New, verdict: policy.Reject},
			{way: packet.Out, from: "host:22", to: "peer:10046", flags: packet.FIN | packet.ACK, seq: 900, ack: 51, state: packet.Established, verdict: policy.Allow},
		},
	},
	{
		name:   "the reset is led where the connection that it ends was led",
		policy: "tracking: { invalid: allow }\ninput: { default: reject }\nnat:\n  - 'map outer to inners'\n",
		shots: []keptShot{
			{way: packet.Out, from: "gate:21", to: "mapped:11236", flags: keptPA, seq: 900, ack: 50, data: "answer", state: packet.New, verdict: policy.Allow},
			{side: wan0, way: packet.In, from: "mapped:11236", to: "gate:21", flags: packet.FIN | packet.ACK, seq: 50, ack: 906, state: packet.Invalid, verdict: policy.Reject, reset: policy.Allow},
		},
	},
	{
		name:   "what the host asks of its own redirect leaves as its neighbour where the target is beside it",
		policy: "zones:\n  wan: { interfaces: [wan0] }\n  sides: { interfaces: [lan0], networks: [10.0.0.0/8, 198.51.100.0/24, '2001:db8::/32'] }\nnat:\n  - 'redirect tcp/8080 in wan to inner80'\n",
		shots: []keptShot{
			{way: packet.Out, from: "host:10021", to: "host:8080", flags: packet.SYN, seq: 1, state: packet.New, verdict: policy.Allow},
		},
	},
	{
		name:   "a reset outside of the window of a redirect's connection is not rewritten, and one within it is",
		policy: "zones: { wan: { interfaces: [wan0] } }\noutput: { default: allow }\nnat:\n  - 'redirect tcp/8080 in wan to inner80'\n",
		shots: []keptShot{
			{side: wan0, way: packet.In, from: "peer:10029", to: "host:8080", flags: packet.SYN, seq: 900, state: packet.New, verdict: policy.Allow},
			{side: wan0, way: packet.In, from: "peer:10029", to: "host:8080", flags: packet.ACK, seq: 901, ack: 51, state: packet.Invalid, verdict: policy.Allow},
			{side: wan0, way: packet.In, from: "peer:10029", to: "host:8080", flags: packet.RST, seq: 909, state: packet.Invalid, verdict: policy.Allow},
			{side: wan0, way: packet.In, from: "peer:10029", to: "host:8080", flags: packet.RST, seq: 901, state: packet.New, verdict: policy.Allow},
		},
	},
}

const keptPA = packet.PSH | packet.ACK

// keptShot is a packet of such a case, and what is to happen to it.
type keptShot struct {
	side     int
	way      packet.Way
	from, to string // name:port
	flags    uint8
	seq, ack uint32
	data     string
	state    packet.State
	verdict  policy.Action
	reset    policy.Action // what happens to the reset that reject sends; "" is none that output is asked for
}

// keptNames are the addresses of the cases, by family.
var keptNames = map[string]map[string]string{
	"IPv4": {"host": "198.51.100.1", "peer": "192.0.2.7", "inner": "10.20.0.5", "gate": "10.20.0.1", "outer": "198.51.100.32/28", "inners": "10.20.0.0/28", "inner80": "10.20.0.5:80", "mapped": "198.51.100.37"},
	"IPv6": {"host": "2001:db8:100::1", "peer": "2001:db8:99::7", "inner": "2001:db8:20::5", "gate": "2001:db8:20::1", "outer": "2001:db8:100:f::/64", "inners": "2001:db8:20::/64", "inner80": "[2001:db8:20::5]:80", "mapped": "2001:db8:100:f::5"},
}

func TestMeaningKept(t *testing.T) {
	y := newYard(t)
	for family, names := range keptNames {
		for _, c := range keptCases {
			t.Run(c.name+" "+family, func(t *testing.T) { y.keep(t, c.policy, names, c.shots) })
		}
	}
}

// word is a name in the text of a policy.
var word = regexp.MustCompile(`\b[a-z0-9]+\b`)

// keep holds the packets of one case against the kernel, and the reference to what
// the case says.
func (y *yard) keep(t *testing.T, text string, names map[string]string, list []keptShot) {
	t.Helper()
	text = word.ReplaceAllStringFunc(text, func(w string) string {
		if a, ok := names[w]; ok {
			return a
		}
		return w
	})
	resolved, err := resolveFile(policyFile(t, text), y.facts)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	compiled, err := compile.Compile(resolved)
	if err != nil {
		t.Fatal(err)
	}
	flows := reference.NewFlows(resolved)
	flows.Route = y.deviceTo
	c := trial{compiled: compiled, draft: &drafts.Draft{}}
	for i, k := range list {
		s := k.shot(t, names)
		s.id = uint32(i + 1)
		s.build()
		s.want = flows.Packet(s.packet, s.way)
		reset := policy.Action("")
		if s.want.Answer != nil {
			reset = s.want.Answer.Verdict
		}
		if s.want.Packet.State != k.state || s.want.Verdict != k.verdict || reset != k.reset {
			t.Errorf("%s: the reference says %s, %s, its reset %q; want %s, %s, %q", s, s.want.Packet.State, s.want.Verdict, reset, k.state, k.verdict, k.reset)
		}
		c.shots = append(c.shots, s)
	}
	for _, text := range y.run(c) {
		t.Error(text)
	}
}

func (k *keptShot) shot(t *testing.T, names map[string]string) *shot {
	t.Helper()
	end := func(text string) (netip.Addr, uint16) {
		name, port, _ := strings.Cut(text, ":")
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			t.Fatal(err)
		}
		return netip.MustParseAddr(names[name]), uint16(n)
	}
	s := &shot{side: k.side, way: k.way, seq: k.seq, ack: k.ack, window: tcpWindow, body: []byte(k.data), flow: "talk"}
	p := &s.packet
	p.Protocol, p.Flags, p.HopLimit, p.Owner = packet.TCP, k.flags, hops, -1
	p.Source, p.SourcePort = end(k.from)
	p.Destination, p.Port = end(k.to)
	p.Segment = s.segment()
	if k.way == packet.Out {
		s.side, p.Owner = fromHost, 0
	} else {
		p.In = deviceName(k.side)
	}
	return s
}
