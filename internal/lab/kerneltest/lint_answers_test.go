package kerneltest

import (
	"net/netip"
	"slices"
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/prove/check"
	"sluice/internal/system/host"
)

// answersTest is a policy that takes the answers to its own requests from a
// host, and one that differs in the repair that lint names. The host asks a
// server in the networks of strangers.
type answersTest struct {
	name          string
	code          check.Code
	before, after string
	port          uint16 // that is asked, over UDP
	from          uint16 // that is asked from; 0: any
	server        string // place; "" is stranger
	inside        string // place to ask after the repair instead
	forge         bool   // somebody sends in the server's name first
	tell          func(f *host.Facts, server netip.Addr)
	cut           testnet.Outcome // of the request before the repair; Failed is Silent
}

func resolver(f *host.Facts, server netip.Addr) { f.Resolvers = []netip.Addr{server} }

func timeServer(f *host.Facts, server netip.Addr) {
	f.Servers = []host.Server{{Role: host.TimeServer, Name: server.String(), Addresses: []netip.Addr{server}, Protocol: "udp", Port: 123, FromPort: 123}}
}

// Story 3, in every way that a policy can still bring about: what lint finds
// does cut the answers off, and the repair brings them back.
func TestAnswersThatLintFinds(t *testing.T) {
	for _, test := range []answersTest{
		{
			name: "a bypassed service that asks from its own port", code: check.RepliesCut, port: 123, from: 123, tell: timeServer,
			before: sides + "tracking: { bypass: [ntp] }\ninput: { default: drop, rules: [allow ntp from lan] }\n",
			after:  sides + "input: { default: drop, rules: [allow ntp from lan] }\n",
		},
		{
			name: "a rule that blocks the networks of the server, with a bypass", code: check.RepliesCut, port: 123, from: 123, tell: timeServer,
			before: "tracking: { bypass: [ntp] }\ninput: { default: drop, rules: [drop any from 192.0.2.0/24, allow ntp] }\n",
			after:  "input: { default: drop, rules: [drop any from 192.0.2.0/24, allow ntp] }\n",
		},
		{
			name: "a map without state over the host's own address", code: check.RepliesCut, port: 53, tell: resolver,
			before: "forward: { default: allow }\nnat: [map 198.51.100.0/28 to 10.20.0.0/28 stateless]\n",
			after:  "forward: { default: allow }\nnat: [map 198.51.100.32/28 to 10.20.0.0/28 stateless]\n",
		},
		{
			name: "a server in front of a map without state", code: check.RepliesCut, port: 53, tell: resolver, server: "mapped", inside: "inside",
			before: "input: { default: drop }\nforward: { default: allow }\nnat: [map 198.51.100.32/28 to 10.20.0.0/28 stateless]\n",
			after:  "input: { default: drop }\nforward: { default: allow }\nnat: [map 198.51.100.32/28 to 10.20.0.0/28 stateless]\n",
		},
		{
			name: "a ban by a limit that somebody forged", code: check.ForgedBan, port: 123, tell: timeServer, forge: true,
			before: "input: { default: drop, rules: [allow udp/9000 limit 2/minute per source then ban 10m] }\n",
			after:  "never-ban: [192.0.2.7]\ninput: { default: drop, rules: [allow udp/9000 limit 2/minute per source then ban 10m] }\n",
		},
		{
			name: "a ban of a name server", code: check.BanResolver, port: 53, tell: resolver,
			before: "ban: [192.0.2.0/24]\ninput: { default: drop }\n",
			after:  "ban: [192.0.2.0/24]\nnever-ban: [192.0.2.7]\ninput: { default: drop }\n",
		},
		{
			name: "a ban of a time server", code: check.BanServer, port: 123, from: 123, tell: timeServer,
			before: "ban: [192.0.2.0/24]\ninput: { default: drop }\n",
			after:  "ban: [192.0.2.0/24]\nnever-ban: [192.0.2.7]\ninput: { default: drop }\n",
		},
		{
			name: "an output that blocks the networks of the server", code: check.RequestsCut, port: 53, tell: resolver, cut: testnet.Unreachable,
			before: "output: { default: allow, rules: [reject any to 192.0.2.0/24] }\n",
			after:  "output: { default: allow, rules: [allow dns to 192.0.2.7, reject any to 192.0.2.0/24] }\n",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newTown(t)
			serve(c.outside, "123")
			server := place("stranger", false)
			if test.server != "" {
				server = place(test.server, false)
			}
			cut := testnet.Silent
			if test.cut != testnet.Failed {
				cut = test.cut
			}
			test.ask(t, c, test.before, server, cut)
			if test.inside != "" {
				server = place(test.inside, false)
			}
			test.ask(t, c, test.after, server, testnet.Answered)
		})
	}
}

// ask applies a policy, looks what lint says of it, and asks the server.
func (test *answersTest) ask(t *testing.T, c *town, text string, server netip.Addr, want testnet.Outcome) {
	t.Helper()
	found := slices.Contains(lintCodes(t, c, text, func(f *host.Facts) { test.tell(f, server) }), test.code)
	if found != (want != testnet.Answered) {
		t.Errorf("lint finds %s: %v, in\n%s", test.code, found, text)
	}
	apply(t, c.host, text)
	if test.forge {
		came := c.wan.Capture()
		for i := range uint16(6) {
			from, to := netip.AddrPortFrom(server, 20000+i), netip.AddrPortFrom(place("host", false), 9000)
			mustSend(t, c.street, testnet.UDP(from, to), testnet.SYN(from, to, 1460))
			if _, seen := came.Wait(enough, func(s testnet.Seen) bool { return s.From() == from && s.Flags == "S" }); !seen {
				t.Fatalf("what is forged from %s did not come", from)
			}
		}
	}
	got := c.host.TryUDP(testnet.UDPTry{From: at(place("host", false), test.from), To: at(server, test.port), Patience: patience(want != testnet.Silent)})
	if got.Outcome != want {
		t.Errorf("the server %s: %v, want %v, under\n%s", server, got, want, text)
	}
}

// lintCodes is the codes that lint finds in a policy for the host of the town.
func lintCodes(t *testing.T, c *town, text string, tell func(*host.Facts)) (codes []check.Code) {
	t.Helper()
	facts := factsOf(t, c.host)
	facts.Resolvers, facts.Servers = nil, nil
	tell(&facts)
	r, err := resolveFile(policyFile(t, text), facts)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range check.Lint(r, facts, check.Options{}).Findings {
		codes = append(codes, f.Code)
	}
	return codes
}

// A ban is the only thing that takes ICMP errors away, which ban-router and
// ban-countries speak of: "drop icmp" does not.
func TestErrorsThatOnlyBansDrop(t *testing.T) {
	c := newTown(t)
	taken := c.host.Delivered(1, false)
	router, own := place("outside", false), place("host", false)
	from, to := netip.AddrPortFrom(own, 4711), netip.AddrPortFrom(place("stranger", false), 4711)
	quoted := testnet.UDP(from, to)
	for _, test := range []struct {
		policy string
		passes bool
	}{
		{"input: { default: drop, rules: [drop icmp] }\n", true},
		{"ban: [198.51.100.254]\ninput: { default: drop }\n", false},
		{"ban: [198.51.100.0/24]\nnever-ban: [198.51.100.254]\ninput: { default: drop }\n", true},
	} {
		apply(t, c.host, test.policy)
		c.host.TryUDP(testnet.UDPTry{From: from, To: to, Patience: short}) // what the error is about
		taken.Forget()
		mustSend(t, c.street, testnet.TooBig(router, own, 1400, quoted))
		if _, passed := taken.Wait(patience(test.passes), testnet.From(router)); passed != test.passes {
			t.Errorf("fragmentation needed passes: %v, under\n%s", passed, test.policy)
		}
		codes := lintCodes(t, c, test.policy, func(f *host.Facts) { f.Gateways = []netip.Addr{router} })
		if slices.Contains(codes, check.BanRouter) == test.passes {
			t.Errorf("lint finds %v in\n%s", codes, test.policy)
		}
	}
}
