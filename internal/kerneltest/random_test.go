package kerneltest

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"sluice/internal/compile"
	"sluice/internal/geo"
	"sluice/internal/host"
	"sluice/internal/optimize"
	"sluice/internal/packet"
	"sluice/internal/policy"
	"sluice/internal/program"
	"sluice/internal/reach"
	"sluice/internal/reference"
	"sluice/internal/resolve"
	"sluice/internal/testnet"
)

// Random policies and random packets: what the reference says of each packet is
// held against what the kernel does with it.

const (
	policiesPerRun   = 12
	packetsPerPolicy = 160
)

// randomness is of a seed that the test prints and SLUICE_TEST_SEED repeats.
func randomness(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SLUICE_TEST_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Logf("seed: SLUICE_TEST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func TestRandomPoliciesAgainstReference(t *testing.T) {
	random := randomness(t)
	c := newTown(t)
	// All that is rejected is answered; the kernel would answer a few a second.
	c.host.Sysctl("net.ipv4.icmp_ratemask", "0")
	c.host.Sysctl("net.ipv6.icmp.ratemask", "2") // a bitmap: packet too big alone
	r := &arena{town: c, t: t, random: random, delivered: map[bool]map[uint8]*testnet.Listener{false: {}, true: {}}}
	for _, v6 := range []bool{false, true} {
		for _, proto := range []uint8{6, 17, 112, icmpOf(ends{v6: v6})} {
			r.delivered[v6][proto] = c.host.Delivered(proto, v6)
		}
	}
	r.street, r.yard = c.street.Capture(), c.yard.Capture()
	for range policiesPerRun {
		r.round()
		if t.Failed() {
			return
		}
	}
}

// The same, many more, against what package reach says of the compiled program:
// no kernel is asked.
func TestRandomProgramsAgainstReference(t *testing.T) {
	a := &arena{t: t, random: randomness(t)}
	facts := host.Facts{Known: true, DefaultRoute: []string{"wan0"}, EphemeralFrom: 32768, EphemeralTo: 60999, Interfaces: []host.Interface{
		{Name: "lo", Index: 1, Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128")}, Up: true},
		{Name: "wan0", Index: 2, Up: true},
		{Name: "lan0", Index: 3, Up: true},
	}}
	for i, names := range [][]string{{"host", "second"}, {"gateway"}} {
		for _, name := range names {
			facts.Interfaces[i+1].Addresses = append(facts.Interfaces[i+1].Addresses,
				netip.PrefixFrom(place(name, false), 24), netip.PrefixFrom(place(name, true), 64))
		}
	}
	ways := map[policy.Hook]reach.Way{policy.Input: reach.In, policy.Forward: reach.Through}
	actions := map[program.Verdict]policy.Action{program.Accept: policy.Allow, program.Drop: policy.Drop, program.Reject: policy.Reject}
	merged := 0
	defer func() {
		if merged < 20 {
			t.Errorf("the optimiser merged rules in %d policies alone", merged)
		}
	}()
	for range 150 {
		text := a.policy()
		p, err := policy.Parse("policy.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		resolved, err := resolve.Resolve(p, resolve.Options{Facts: facts})
		if err != nil {
			t.Fatal(err)
		}
		compiled, err := compile.Compile(resolved)
		if err == nil {
			err = optimize.Run(compiled, optimize.Options{Check: true})
		}
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(compiled.Sets, func(s program.Set) bool { return strings.HasPrefix(s.ID, "rules.") }) {
			merged++
		}
		for range 200 {
			s := a.shot()
			want := reference.Judge(resolved, s.packet, s.hook)
			s.packet.State = "" // the program decides what is tracked
			got := reach.Evaluate(compiled, s.packet, ways[s.hook])
			if len(got.Doubts) > 0 && a.redirects {
				continue // whose address the destination is, only the routing table knows
			}
			if !got.Certain {
				t.Errorf("%s: the program's verdict hangs on %v", s.way, got.Doubts)
			}
			if actions[got.Verdict] != want.Action {
				t.Errorf("%s: the program says %s (%v), the reference %s (%s)", s.way, got.Verdict, got.Rule, want.Action, want.Why)
			}
		}
		if t.Failed() {
			t.Fatalf("policy:\n%s", text)
		}
	}
}

// arena is a town that packets are thrown at.
type arena struct {
	*town
	t         *testing.T
	random    *rand.Rand
	delivered map[bool]map[uint8]*testnet.Listener
	street    *testnet.Capture
	yard      *testnet.Capture
	id        uint16
	redirects bool // the present policy has the one redirect
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// shot is one packet and what it looks like to the judges.
type shot struct {
	id     uint16
	raw    []byte
	packet packet.Packet
	hook   policy.Hook
	way    string
}

func (a *arena) round() {
	a.t.Helper()
	text := a.policy()
	file := filepath.Join(a.t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		a.t.Fatal(err)
	}
	artifact := applyFile(a.t, a.host, file)
	p, err := policy.Load(file)
	if err != nil {
		a.t.Fatal(err)
	}
	var resolved *resolve.Resolved
	err = a.host.Do(func() error {
		facts, err := host.Describe(context.Background())
		if err != nil {
			return err
		}
		resolved, err = resolve.Resolve(p, resolve.Options{Facts: facts, Geo: func() (*geo.Database, error) { return geo.Open(a.t.TempDir()) }})
		return err
	})
	if err != nil {
		a.t.Fatal(err)
	}
	a.warm()
	if err := a.host.Links().ConntrackTableFlush(netlink.ConntrackTable); err != nil {
		a.t.Fatal(err)
	}
	for _, s := range a.shots() {
		want := reference.Judge(resolved, s.packet, s.hook)
		if s.packet.Protocol == 112 && want.Action == policy.Reject {
			// The kernel answers only packets whose checksum it finds right, and
			// looks for one where VRRP has none (nf_reject_verify_csum).
			want.Action = policy.Drop
		}
		if got, ok := a.settle(s, want.Action); !ok {
			a.t.Errorf("%s: the kernel says %s, the reference %s (%s)", s.way, got, want.Action, want.Why)
		}
	}
	if a.t.Failed() {
		a.t.Logf("policy:\n%s\n%s", text, artifact.Text())
	}
}

// warm resolves all neighbours, so that none of the packets waits for one.
func (a *arena) warm() {
	for _, v6 := range []bool{false, true} {
		for _, port := range []struct {
			own  *testnet.Port
			ip   string
			peer *testnet.Port
		}{
			{a.wan, "outside", a.town.street},
			{a.lan, "inside", a.town.yard},
			{a.lan, "inside2", a.town.yard},
			{a.town.street, "host", a.wan},
			{a.town.yard, "gateway", a.lan},
		} {
			port.own.Neighbor(place(port.ip, v6).String(), port.peer.MAC)
		}
	}
}

// settle looks for what became of a shot, with patience for what is expected.
func (a *arena) settle(s shot, want policy.Action) (policy.Action, bool) {
	arrived := func(patience time.Duration) bool {
		if s.hook == policy.Forward {
			on := a.yard
			if s.packet.In == "lan0" {
				on = a.street
			}
			_, ok := on.Wait(patience, func(p testnet.Seen) bool {
				return !p.Outgoing && p.Protocol == s.packet.Protocol && p.Source == s.packet.Source && idOf(p.Packet) == s.id
			})
			return ok
		}
		_, ok := a.delivered[s.packet.Source.Is6()][s.packet.Protocol].Wait(patience, func(p testnet.Seen) bool {
			return p.Source == s.packet.Source && idOf(p.Packet) == s.id
		})
		return ok
	}
	refused := func(patience time.Duration) bool {
		on := a.street
		if s.packet.In == "lan0" {
			on = a.yard
		}
		_, ok := on.Wait(patience, func(p testnet.Seen) bool { return !p.Outgoing && refuses(p, s) })
		return ok
	}
	const blink = time.Millisecond // all was sent long ago: what is not here will not come
	switch want {
	case policy.Allow:
		if arrived(enough) {
			return want, true
		}
	case policy.Reject:
		if arrived(blink) {
			return policy.Allow, false
		}
		if refused(enough) {
			return want, true
		}
		return policy.Drop, false
	}
	switch {
	case arrived(blink):
		return policy.Allow, want == policy.Allow
	case refused(blink):
		return policy.Reject, false
	}
	return policy.Drop, want == policy.Drop
}

// refuses says whether a packet is the answer of a reject to the shot.
func refuses(p testnet.Seen, s shot) bool {
	if s.packet.Protocol == 6 {
		return p.Protocol == 6 && strings.Contains(p.Flags, "R") && p.DestinationPort == s.packet.SourcePort && p.Destination == s.packet.Source
	}
	if p.Protocol == 1 && p.ICMPType != 3 || p.Protocol == 58 && p.ICMPType != 1 || p.Protocol != 1 && p.Protocol != 58 || len(p.Payload) < 4 {
		return false
	}
	inner, err := testnet.Parse(p.Payload[4:])
	return err == nil && inner.Protocol == s.packet.Protocol && inner.Source == s.packet.Source && idOf(inner) == s.id
}

// idOf finds the number that each shot carries.
func idOf(p testnet.Packet) uint16 {
	switch {
	case p.Protocol == 6 || p.Protocol == 17:
		return p.SourcePort
	case len(p.Payload) >= 2:
		return binary.BigEndian.Uint16(p.Payload)
	}
	return 0
}

// shots sends random packets and says what they were.
func (a *arena) shots() []shot {
	var out []shot
	for range packetsPerPolicy {
		s := a.shot()
		from := a.town.street
		if s.packet.In == "lan0" {
			from = a.town.yard
		}
		if err := from.Send(s.raw); err != nil {
			a.t.Fatal(err)
		}
		out = append(out, s)
	}
	time.Sleep(100 * time.Millisecond)
	return out
}

func (a *arena) shot() shot {
	r := a.random
	a.id++
	if a.id < 10000 || a.id > 60000 { // not a port that anybody serves or uses
		a.id = 10000
	}
	s := shot{id: a.id, hook: policy.Input}
	v6 := r.IntN(2) == 0
	p := packet.Packet{In: "wan0", State: packet.New, SourceLocal: packet.No, DestinationLocal: packet.Yes, SourcePort: s.id, Owner: -1, HopLimit: 64}
	if r.IntN(3) == 0 {
		p.In = "lan0"
		p.Source = place(pick(r, "inside", "inside2", "elsewhere"), v6)
		p.Destination = place(pick(r, "gateway", "host", "second"), v6)
	} else {
		p.Source = place(pick(r, "office", "office2", "stranger", "villain"), v6)
		p.Destination = place(pick(r, "host", "second", "host", "gateway"), v6)
	}
	if r.IntN(2) == 0 {
		s.hook, p.DestinationLocal = policy.Forward, packet.No
		if p.In == "wan0" {
			p.Out, p.Destination = "lan0", place(pick(r, "inside", "inside2"), v6)
		} else {
			p.Out, p.Destination = "wan0", place(pick(r, "office", "office2", "stranger", "villain"), v6)
		}
	}
	// The flows of protocol 112 have no ports: what comes from the other side
	// would be their reply.
	kind := r.IntN(6)
	if p.In == "lan0" && kind == 1 {
		kind = 2
	}
	p.Port = uint16(pick(r, 22, 25, 53, 80, 443, 1024, 1500, 2000, 8080))
	if p.In == "lan0" && p.Port == 8080 {
		p.Port = 80 // what comes back out of the lan's side has another source
	}
	switch kind {
	case 0:
		p.Protocol, p.ICMPType, p.Port, p.SourcePort = 1, 8, 0, 0
		if v6 {
			p.Protocol, p.ICMPType = 58, 128
		}
		s.raw = testnet.Echo(p.Source, p.Destination, s.id, 1)
	case 1:
		p.Protocol, p.Port, p.SourcePort = 112, 0, 0
		s.raw = testnet.Protocol(p.Source, p.Destination, 112, byte(s.id>>8), byte(s.id), 0, 0)
	case 2, 3:
		p.Protocol = 17
		s.raw = testnet.UDP(at(p.Source, p.SourcePort), at(p.Destination, p.Port), 'x')
	default:
		p.Protocol, p.Flags = 6, packet.SYN
		s.raw = testnet.TCP(at(p.Source, p.SourcePort), at(p.Destination, p.Port), "S")
	}
	if a.redirects && !v6 && p.Protocol == 6 && p.Port == 8080 && s.hook == policy.Input && p.Destination != place("gateway", false) {
		p.Original = packet.Tuple{Source: p.Source, Destination: p.Destination, SourcePort: p.SourcePort, Port: p.Port}
		s.hook, p.DNAT, p.DestinationLocal = policy.Forward, true, packet.No
		p.Destination, p.Port, p.Out = place("inside", false), 80, "lan0"
	}
	s.packet = p
	s.way = fmt.Sprintf("protocol %d %s > %s, in %s out %q", p.Protocol, at(p.Source, p.SourcePort), at(p.Destination, p.Port), p.In, p.Out)
	return s
}

// policy makes a policy of random sets, rules and defaults.
func (a *arena) policy() string {
	r := a.random
	var b strings.Builder
	b.WriteString("version: 1\nzones:\n  wan: { interfaces: [default-route] }\n" +
		"  lan: { interfaces: [\"lan*\"], networks: [10.20.0.0/24, \"2001:db8:20::/64\"] }\n" +
		"  bureau: { networks: [203.0.113.0/24, \"2001:db8:77::/48\"] }\nsets:\n")
	for _, name := range []string{"a", "b"} {
		fmt.Fprintf(&b, "  %s: [%s]\n", name, strings.Join(a.addresses(1+r.IntN(5), true), ", "))
	}
	b.WriteString("  c: { union: [a, b], except: [d] }\n")
	fmt.Fprintf(&b, "  d: [%s]\n", strings.Join(a.addresses(1+r.IntN(2), true), ", "))
	if r.IntN(2) == 0 {
		fmt.Fprintf(&b, "ban: [%s]\n", pick(r, "a", "d", "192.0.2.66", "c"))
		if r.IntN(2) == 0 {
			fmt.Fprintf(&b, "never-ban: [%s]\n", pick(r, "b", "203.0.113.7", "d"))
		}
	}
	if r.IntN(3) == 0 {
		fmt.Fprintf(&b, "tracking: { bypass: [%s] }\n", pick(r, "http", "udp/53", "tcp/443, dns",
			"tcp/80 to 198.51.100.1, tcp/443 to 198.51.100.2, tcp/80 to 2001:db8::1, udp/53 to 198.51.100.1, tcp/22 to 198.51.100.2, tcp/25 to 198.51.100.1"))
	}
	if a.redirects = r.IntN(2) == 0; a.redirects {
		b.WriteString("nat: [redirect tcp/8080 in wan to 10.20.0.5:80]\n")
	}
	for _, section := range []string{"input", "forward"} {
		if r.IntN(8) == 0 {
			continue // not policed
		}
		fmt.Fprintf(&b, "%s:\n  default: %s\n  rules:\n", section, pick(r, "drop", "drop", "reject", "allow"))
		for range 1 + r.IntN(10) {
			fmt.Fprintf(&b, "    - %s\n", a.rule(section))
		}
		if r.IntN(2) == 0 {
			a.alike(&b, section)
		}
	}
	return b.String()
}

// alike writes many rules that differ in the same one or two words, for the
// optimiser to make sets and maps of, and at times one that does not.
func (a *arena) alike(b *strings.Builder, section string) {
	r := a.random
	port := func() string {
		return pick(r, "tcp/22", "tcp/25", "tcp/80", "tcp/443", "tcp/1500", "udp/53", "udp/2000", "tcp/1024-1600")
	}
	service, from, to := port(), r.IntN(4) > 0, section == "forward" && r.IntN(3) == 0
	verdicts := []string{"allow", "drop", "reject"}[:1+r.IntN(3)]
	several := r.IntN(2) == 0
	if !from && !to {
		several = true
	}
	for range 5 + r.IntN(20) {
		words := []string{pick(r, verdicts...), service}
		if several {
			words[1] = port()
		}
		v6 := r.IntN(2) == 0
		address := func() string {
			for {
				if text := a.addresses(1, false)[0]; strings.Contains(text, ":") == v6 {
					return text
				}
			}
		}
		if from {
			words = append(words, "from", address())
		}
		if to {
			words = append(words, "to", address())
		}
		fmt.Fprintf(b, "    - %s\n", strings.Join(words, " "))
		if r.IntN(12) == 0 {
			fmt.Fprintf(b, "    - %s\n", a.rule(section))
		}
	}
}

func (a *arena) rule(section string) string {
	r := a.random
	words := []string{
		pick(r, "allow", "allow", "drop", "reject"),
		pick(r, "published tcp/8080", "any", "tcp", "udp", "ssh", "http", "dns", "ping", "vrrp", "tcp/1000-2000", "[tcp/80, tcp/443]", "[udp/53, ping]", "udp/1024-8080", "proto/112"),
	}
	if r.IntN(4) == 0 {
		words = append(words, pick(r, "ipv4", "ipv6"))
	}
	who := func() string {
		not := ""
		if r.IntN(4) == 0 {
			not = "not "
		}
		switch r.IntN(4) {
		case 0:
			return not + pick(r, "a", "b", "c", "d")
		case 1:
			return not + "[" + strings.Join(append(a.addresses(1+r.IntN(2), false), pick(r, "a", "d")), ", ") + "]"
		}
		return not + pick(r, "lan", "bureau", "wan", "a", "c")
	}
	if r.IntN(2) == 0 {
		words = append(words, "from", who())
	}
	if section == "forward" {
		if r.IntN(3) == 0 {
			words = append(words, "to", who())
		}
		if r.IntN(5) == 0 {
			words = append(words, "out", pick(r, "wan", "lan"))
		}
	}
	if r.IntN(5) == 0 {
		words = append(words, "in", pick(r, "wan", "lan"))
	}
	return strings.Join(words, " ")
}

// addresses are random addresses, prefixes and ranges around the places of the
// town.
func (a *arena) addresses(n int, quoted bool) (out []string) {
	r := a.random
	for range n {
		v6 := r.IntN(2) == 0
		ip := place(pick(r, "office", "office2", "stranger", "villain", "inside", "inside2", "elsewhere"), v6)
		bits := ip.BitLen() - r.IntN(20)
		text := netip.PrefixFrom(ip, bits).Masked().String()
		switch {
		case bits == ip.BitLen():
			text = ip.String()
		case !v6 && r.IntN(3) == 0:
			b := ip.As4()
			b[3] += byte(r.IntN(40))
			text = ip.String() + "-" + netip.AddrFrom4(b).String()
		}
		if quoted {
			text = strconv.Quote(text)
		}
		out = append(out, text)
	}
	return out
}
