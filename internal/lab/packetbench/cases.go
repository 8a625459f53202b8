package packetbench

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/lab/measure"
	"sluice/internal/language/policy"
	"sluice/internal/prove/reference"
)

// A traffic of one kind and family, with what happens to it.
type caseOf struct {
	kind    Kind
	name    string // "IPv4, banned"
	text    string // what it is, for a reader
	traffic measure.Traffic
	bare    measure.Traffic // what takes the same way without rules
	passes  bool
	// Known connections are made before.
	known bool
	// Asked: the host itself has begun them.
	asked bool
}

// lacking is a kind that a policy does not have, or that cannot be measured.
type lacking struct{ name, why string }

// unlimited says that no rate and no number of connections decides: over it a packet
// would be treated otherwise.
func unlimited(path reference.Path) bool {
	return path.Rule == nil || path.Rule.Limit == nil && path.Rule.Max == nil
}

// finding gathers the cases of a policy.
type finding struct {
	*finder
	flows  int
	kinds  []Kind // empty: all
	family addrset.Family
	cases  []caseOf
	lacks  []lacking
}

func (f *finding) wants(k Kind) bool { return len(f.kinds) == 0 || slices.Contains(f.kinds, k) }

// find looks for every kind in one family, in the order of Kinds.
func (f *finding) find(family addrset.Family) {
	f.family = family
	if f.wants(Banned) {
		f.banned()
	}
	if f.wants(Blocked) {
		f.blocked()
	}
	if f.wants(Allowed) || f.wants(Established) {
		f.allowed()
	}
	if f.wants(Bypassed) {
		f.bypassed()
	}
	if f.wants(Forwarded) || f.wants(ForwardEstablished) {
		f.forwarded()
	}
	if f.wants(NAT) || f.wants(NATEstablished) {
		f.natted()
	}
}

func (f *finding) lack(name, why string) {
	f.lacks = append(f.lacks, lacking{fmt.Sprintf("IPv%d, %s", f.family, name), why})
}

// by adds to the last cases which line rewrites them.
func (f *finding) by(n *policy.NAT, cases int) {
	for i := len(f.cases) - cases; i < len(f.cases); i++ {
		f.cases[i].text += fmt.Sprintf("; rewritten by line %d, %q", n.Pos.Line, n.Text)
	}
}

// add makes a case of what was found.
func (f *finding) add(kind Kind, name string, g found, passes bool) {
	t := f.trafficOf(g)
	c := caseOf{kind: kind, name: fmt.Sprintf("IPv%d, %s", f.family, name), traffic: t, bare: f.bare(g, t), passes: passes}
	c.text = f.describe(g)
	f.cases = append(f.cases, c)
}

func (f *finding) trafficOf(g found) measure.Traffic {
	to := netip.AddrPortFrom(g.to, g.port)
	t := measure.UDP(g.sources, to)
	if g.protocol == packet.TCP {
		t = measure.TCP("S", g.sources, to)
	}
	t.In = g.in
	return t
}

// bare is the traffic that goes, without rules, to where the rules lead this one.
func (f *finding) bare(g found, t measure.Traffic) measure.Traffic {
	left := g.path.Packet
	if g.path.Verdict != policy.Allow || left.Destination == g.to && left.Port == g.port {
		return t
	}
	flows := slices.Clone(t.Flows)
	for i := range flows {
		flows[i].To = netip.AddrPortFrom(left.Destination, left.Port)
	}
	t.Flows = flows
	return t
}

// addKnown makes a case of known connections out of what was found new.
func (f *finding) addKnown(kind Kind, name string, g found) {
	t := f.trafficOf(g)
	if t.Flags != "" {
		t.Flags = "A"
	}
	t.Flows = known(t.Flows, f.flows)
	if f.way(g.to) == packet.Through || g.path.Hook == policy.Forward {
		t.Through = true
	}
	c := caseOf{kind: kind, name: fmt.Sprintf("IPv%d, %s", f.family, name), traffic: t, bare: f.bare(g, t), passes: true, known: true}
	c.text = fmt.Sprintf("%d connections of %s", len(t.Flows), f.describe(g))
	f.cases = append(f.cases, c)
}

// firstKnownPort is the source port of the first known connection: the others count
// up, so that few sources have many of them.
const firstKnownPort = 10000

func known(flows []measure.Flow, most int) []measure.Flow {
	out := make([]measure.Flow, most)
	for i := range out {
		of := flows[i%len(flows)]
		out[i] = measure.Flow{From: netip.AddrPortFrom(of.From.Addr(), firstKnownPort+uint16(i)), To: of.To}
	}
	return out
}

// describe says what is sent: "tcp/443 to 198.51.100.1 by eth0 from 65,536 sources;
// policy.yaml:12: allow https".
func (f *finding) describe(g found) string {
	protocol := "udp"
	if g.protocol == packet.TCP {
		protocol = "tcp"
	}
	distinct := map[netip.Addr]bool{}
	for _, a := range g.sources {
		distinct[a] = true
	}
	count := fmt.Sprintf("%d sources", len(distinct))
	if len(distinct) == 1 {
		count = "1 source"
	}
	text := fmt.Sprintf("%s/%d to %s by %s from %s", protocol, g.port, g.to, g.in, count)
	decided := g.path.Why
	if g.path.Text != "" {
		decided = g.path.Text
		if g.path.Pos.Line > 0 {
			decided = fmt.Sprintf("line %d, %q", g.path.Pos.Line, g.path.Text)
		}
	}
	return text + "; decided by " + decided
}

func plain(p packet.Packet, path reference.Path) bool {
	return p.Destination == path.Packet.Destination && p.Source == path.Packet.Source && p.Port == path.Packet.Port
}

// open is a service that somebody may reach, or some other one.
func (f *finding) open() []service {
	if f.Policy.Input != nil {
		for _, rule := range f.Policy.Input.Rules {
			if list := services(rule.Services); rule.Action == policy.Allow && len(list) > 0 {
				return []service{list[0], someService}
			}
		}
	}
	return []service{someService}
}

func (f *finding) banned() {
	if len(f.Policy.Ban) == 0 {
		f.lack("banned", "the policy bans nothing")
		return
	}
	var all addrset.Set
	for i := range f.Policy.Ban {
		all = all.Union(f.side(&f.Policy.Ban[i], f.devices[0].Name))
	}
	g, ok := f.first(f.family, f.asked(all, f.open()...), func(_ packet.Packet, path reference.Path) bool {
		return path.Verdict == policy.Drop && path.Stage == "ban" && path.Hook == policy.Input
	})
	if !ok {
		f.lack("banned", "the policy bans no address of the family that could come from outside")
		return
	}
	f.add(Banned, "banned", g, false)
}

// closed is a port that hardly any policy opens.
var closed = []service{{packet.TCP, 9}, {packet.UDP, 9}, {packet.TCP, 40009}}

func (f *finding) blocked() {
	if f.Policy.Input == nil {
		f.lack("blocked, new", "the policy has no input, so nothing is refused there")
		return
	}
	want := func(p packet.Packet, path reference.Path) bool {
		return path.Hook == policy.Input && path.Verdict != policy.Allow && (path.Stage == "rules" || path.Stage == "default") &&
			unlimited(path) && plain(p, path)
	}
	// Who is refused a service that others have is costlier than who asks for one that
	// nobody has.
	g, ok := f.first(f.family, f.inputs(true, func(r *policy.Rule) bool { return r.Action == policy.Allow && f.large(r) }), want)
	if !ok {
		g, ok = f.first(f.family, f.asked(addrset.All(), closed...), want)
	}
	if !ok {
		g, ok = f.first(f.family, f.inputs(false, func(r *policy.Rule) bool { return r.Action != policy.Allow }), want)
	}
	if !ok {
		f.lack("blocked, new", "the policy refuses nothing on input")
		return
	}
	f.add(Blocked, "blocked, new", g, false)
}

// large says that a rule asks a large set for the source.
func (f *finding) large(r *policy.Rule) bool {
	const many = 100 // ranges
	if r.From == nil {
		return false
	}
	s := f.side(r.From, f.devices[0].Name)
	return s.Len4()+s.Len6() >= many
}

func allows(r *policy.Rule) bool { return r.Action == policy.Allow }

func (f *finding) allowed() {
	want := func(state packet.State) wanted {
		return func(p packet.Packet, path reference.Path) bool {
			return path.Hook == policy.Input && path.Verdict == policy.Allow && path.Packet.State == state && unlimited(path) && plain(p, path)
		}
	}
	g, ok := f.first(f.family, f.inputs(false, allows), want(packet.New))
	if !ok {
		g, ok = f.first(f.family, f.asked(addrset.All(), append(f.open(), closed...)...), want(packet.New))
	}
	if f.wants(Allowed) {
		if ok {
			f.add(Allowed, "allowed, new", g, true)
		} else {
			f.lack("allowed, new", "no rule of input allows a tracked service of TCP or UDP without a limit")
		}
	}
	if !f.wants(Established) {
		return
	}
	if ok {
		f.addKnown(Established, "established", g)
		return
	}
	f.answered()
}

// answered are packets of connections that the host itself has begun: where no
// tracked service is open, these are the known ones.
func (f *finding) answered() {
	g, ok := f.first(f.family, f.asked(addrset.All(), service{packet.TCP, firstKnownPort}), func(packet.Packet, reference.Path) bool { return true })
	if !ok {
		f.lack("established", "the host has no address of the family")
		return
	}
	flows := make([]measure.Flow, f.flows)
	for i := range flows {
		flows[i] = measure.Flow{
			From: netip.AddrPortFrom(g.sources[i%len(g.sources)], someService.port),
			To:   netip.AddrPortFrom(g.to, firstKnownPort+uint16(i)),
		}
		p := f.packet(g.guess, flows[i].From.Addr())
		p.SourcePort, p.Port, p.Flags, p.State, p.Reply = flows[i].From.Port(), flows[i].To.Port(), packet.ACK, packet.Established, true
		if path := reference.Follow(f.Resolved, p, packet.In); path.Verdict != policy.Allow {
			f.lack("established", "an answer to the host itself is refused: "+path.Why)
			return
		}
	}
	t := measure.Traffic{Flags: "A", Flows: flows, In: g.in}
	f.cases = append(f.cases, caseOf{
		kind: Established, name: fmt.Sprintf("IPv%d, established", f.family), traffic: t, bare: t, passes: true, known: true, asked: true,
		text: fmt.Sprintf("%d connections that the host has begun, answered by tcp/%d by %s", len(flows), someService.port, g.in),
	})
}

func (f *finding) bypassed() {
	if len(f.Policy.Tracking.Bypass) == 0 {
		f.lack("bypassed", "the policy keeps no service out of tracking")
		return
	}
	want := func(p packet.Packet, path reference.Path) bool {
		return path.Hook == policy.Input && path.Verdict == policy.Allow && path.Packet.State == packet.Untracked && unlimited(path) && plain(p, path)
	}
	g, ok := f.first(f.family, f.inputs(false, allows), want)
	if !ok {
		var all []service
		for _, b := range f.Policy.Tracking.Bypass {
			all = append(all, services(b.Services)...)
		}
		g, ok = f.first(f.family, f.asked(addrset.All(), all...), want)
	}
	if !ok {
		f.lack("bypassed", "nobody may reach a bypassed service of TCP or UDP without a limit")
		return
	}
	f.add(Bypassed, "bypassed", g, true)
}

func (f *finding) forwarded() {
	g, ok := f.first(f.family, f.forwards(), func(p packet.Packet, path reference.Path) bool {
		return path.Hook == policy.Forward && path.Verdict == policy.Allow && path.Packet.State == packet.New && unlimited(path) && plain(p, path)
	})
	why := "the policy forwards no TCP or UDP of the family without rewriting it"
	if f.Policy.Forward == nil {
		why = "the policy has no forward section"
	}
	for _, k := range []struct {
		kind Kind
		name string
		add  func(found)
	}{
		{Forwarded, "forwarded, new", func(g found) { f.add(Forwarded, "forwarded, new", g, true) }},
		{ForwardEstablished, "forwarded, established", func(g found) { f.addKnown(ForwardEstablished, "forwarded, established", g) }},
	} {
		switch {
		case !f.wants(k.kind):
		case !ok || f.Policy.Forward == nil:
			f.lack(k.name, why)
		default:
			k.add(g)
		}
	}
}

func (f *finding) natted() {
	done := map[string]bool{}
	var names []string
	for _, n := range f.Policy.NAT {
		name := natName(n)
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		if done[name] {
			continue
		}
		g, ok := f.first(f.family, f.rewritten(n), f.rewrittenBy(n))
		if !ok {
			continue
		}
		done[name] = true
		before := len(f.cases)
		switch {
		case n.Stateless && f.wants(NAT):
			f.add(NAT, name, g, true)
		case !n.Stateless && f.wants(NAT):
			f.add(NAT, name+", new", g, true)
		}
		if !n.Stateless && f.wants(NATEstablished) {
			f.addKnown(NATEstablished, name+", established", g)
		}
		f.by(n, len(f.cases)-before)
	}
	if len(names) == 0 {
		f.lack("rewritten", "the policy has no nat")
	}
	var without []string
	for _, name := range names {
		if !done[name] {
			without = append(without, name)
		}
	}
	if len(without) > 0 {
		f.lack(strings.Join(without, " and "), "no line of nat rewrites packets of the family that the sections allow without a limit")
	}
}
