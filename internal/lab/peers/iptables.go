package peers

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
)

// iptablesSets is how iptables asks large sets.
type iptablesSets struct {
	bans, rules layout // ipsets is one of them
	// endpoints says that bypassed endpoints are in a set too, where the rest is.
	endpoints bool
}

const ipsets layout = "ipset"

// iptablesText writes a meaning for iptables-restore, one family at a time.
type iptablesText struct {
	family int
	how    iptablesSets
	sets   *bytes.Buffer // for ipset restore
	named  map[string]bool
	tables map[string]*iptablesTable
	number int
	prefix string           // of chains that it makes
	spared *Addresses       // whom no limit bans
	did    map[*Rule]string // chains of rules that count
}

type iptablesTable struct {
	policies map[string]string // of built-in chains that have another than ACCEPT
	chains   []string
	rules    bytes.Buffer
}

// iptablesRuleset is what ipset restore, iptables-restore and ip6tables-restore read.
func iptablesRuleset(m Meaning, how iptablesSets) (sets, four, six []byte) {
	var all bytes.Buffer
	write := func(f int) []byte {
		w := newIPTables(f, how, &all)
		w.all(m)
		return w.text()
	}
	four, six = write(4), write(6)
	return all.Bytes(), four, six
}

func newIPTables(f int, how iptablesSets, sets *bytes.Buffer) *iptablesText {
	return &iptablesText{family: f, how: how, sets: sets, named: map[string]bool{}, tables: map[string]*iptablesTable{}, did: map[*Rule]string{}}
}

func (w *iptablesText) table(name string) *iptablesTable {
	if w.tables[name] == nil {
		w.tables[name] = &iptablesTable{policies: map[string]string{}}
	}
	return w.tables[name]
}

// text is all tables that have something.
func (w *iptablesText) text() []byte {
	var out bytes.Buffer
	for _, name := range []string{"raw", "nat", "mangle", "filter"} {
		t := w.tables[name]
		if t == nil {
			continue
		}
		fmt.Fprintf(&out, "*%s\n", name)
		for _, chain := range []string{"INPUT", "FORWARD", "OUTPUT"} {
			if p := t.policies[chain]; p != "" {
				fmt.Fprintf(&out, ":%s %s [0:0]\n", chain, p)
			}
		}
		for _, c := range t.chains {
			fmt.Fprintf(&out, ":%s - [0:0]\n", c)
		}
		out.Write(t.rules.Bytes())
		out.WriteString("COMMIT\n")
	}
	return out.Bytes()
}

func (w *iptablesText) all(m Meaning) {
	if spared, none := (&Addresses{Name: "spared", Set: m.Spared}).of(w.family); !none {
		w.spared = spared
	}
	w.early(m)
	w.nat(m)
	for _, s := range m.sections() {
		w.section(m, s.hook, s.Section)
	}
}

// early is the table raw: bans, then NOTRACK without an ACCEPT behind it.
func (w *iptablesText) early(m Meaning) {
	w.bans(m, "raw", "PREROUTING", "PREROUTING", "OUTPUT")
	w.bypasses(m)
}

// bans drops what comes from the set in one chain and what goes to it in others;
// to is the chain for what is forwarded, where anything is.
func (w *iptablesText) bans(m Meaning, table, from, to, out string) {
	part, none := (&Addresses{Name: "bans", Set: m.Banned}).of(w.family)
	if none {
		return
	}
	part.counts = m.counted(w.family)
	c := code{w, table, w.how.bans}
	c.emit(from, nil, []iptablesTest{{"src", part}}, "-j DROP")
	if m.Forwards {
		c.emit(to, nil, []iptablesTest{{"dst", part}}, "-j DROP")
	}
	c.emit(out, nil, []iptablesTest{{"dst", part}}, "-j DROP")
}

func (w *iptablesText) bypasses(m Meaning) {
	c := code{w, "raw", w.how.rules}
	const notrack = "-j CT --notrack"
	for _, b := range m.Bypass {
		for _, d := range []struct{ chain, port, side, local string }{
			{"PREROUTING", "dport", "dst", "--dst-type"},
			{"OUTPUT", "sport", "src", "--src-type"},
		} {
			if b.Endpoints != nil {
				w.listeners(c, b, d.chain, d.port, d.side)
				continue
			}
			for _, way := range b.Ways {
				for _, match := range iptablesService(way, d.port) {
					pre := []string{match}
					if m.Forwards {
						pre = append(pre, "-m addrtype "+d.local+" LOCAL")
					}
					part, none := b.To.of(w.family)
					switch {
					case none:
					case part == nil:
						c.emit(d.chain, pre, nil, notrack)
					default:
						c.emit(d.chain, pre, []iptablesTest{{d.side, part}}, notrack)
					}
				}
			}
		}
	}
}

// listeners are endpoints: a rule each, or a set of address and port.
func (w *iptablesText) listeners(c code, b Bypass, chain, port, side string) {
	name := fmt.Sprintf("listeners%d", w.family)
	asked := false
	if rules, is := everyPort(b.Endpoints); is && w.how.endpoints && w.oneEach(rules) {
		for _, r := range rules {
			for _, service := range iptablesService(Way{Protocol: r.protocol, Ports: r.ports}, port) {
				if r.addresses[0].From.Is4() == (w.family == 4) {
					c.line(chain, "-%s %s %s -j CT --notrack", side[:1], r.addresses[0], service)
				}
			}
		}
		return
	}
	for _, e := range b.Endpoints {
		if e.Address.From.Is4() != (w.family == 4) {
			continue
		}
		if !w.how.endpoints {
			for p := range addrset.Of(e.Address).EachPrefix() {
				c.line(chain, "-%s %s -p %s --%s %d -j CT --notrack", side[:1], plain(p), protocolName(e.Protocol), port, e.Port)
			}
			continue
		}
		if !w.named[name] {
			w.named[name] = true
			fmt.Fprintf(w.sets, "create %s hash:ip,port family %s maxelem 1048576\n", name, w.inet())
		}
		if chain == "PREROUTING" {
			for p := range addrset.Of(e.Address).EachPrefix() {
				fmt.Fprintf(w.sets, "add %s %s,%s:%d -exist\n", name, plain(p), protocolName(e.Protocol), e.Port)
			}
		}
		asked = true
	}
	if asked {
		c.line(chain, "-m set --match-set %s %s,%s -j CT --notrack", name, side, side)
	}
}

// oneEach says that there is one address of the family, with each of its protocols.
func (w *iptablesText) oneEach(rules []everywhere) bool {
	return !slices.ContainsFunc(rules, func(r everywhere) bool {
		_, is := r.addresses[0].Prefix()
		return r.addresses[0].From.Is4() == (w.family == 4) && (len(r.addresses) > 1 || !is)
	})
}

func (w *iptablesText) inet() string {
	if w.family == 6 {
		return "inet6"
	}
	return "inet"
}

// plain writes a prefix, and a single address without its length.
func plain(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

var builtIn = map[policy.Hook]string{policy.Input: "INPUT", policy.Forward: "FORWARD", policy.Output: "OUTPUT"}

func (w *iptablesText) section(m Meaning, hook policy.Hook, s *Section) {
	chain := builtIn[hook]
	t := w.table("filter")
	if s.Default != policy.Allow {
		t.policies[chain] = "DROP"
	}
	c := code{w, "filter", w.how.rules}
	if w.how.rules == ipsets && !m.Bare {
		w.byHand(c, m, hooked{hook, s}, chain)
		return
	}
	if !m.Bare {
		w.around(c, m, hook, chain)
	}
	for i := range s.Rules {
		w.rule(c, chain, &s.Rules[i], s.Rules[i].Ways...)
	}
	w.otherwise(c, chain, s)
}

// otherwise is what no rule decides.
func (w *iptablesText) otherwise(c code, chain string, s *Section) {
	if s.DefaultLog != nil {
		c.line(chain, "%s", logs(*s.DefaultLog))
	}
	if s.Default == policy.Reject {
		w.rejects(c, chain)
	}
}

func logs(prefix string) string {
	return fmt.Sprintf("-m limit --limit 5/second --limit-burst 10 -j LOG --log-prefix %q", prefix)
}

func (w *iptablesText) rejects(c code, chain string) {
	c.line(chain, "-p tcp -j REJECT --reject-with tcp-reset")
	c.line(chain, "-j REJECT")
}

// around is what is before the rules of every ruleset.
func (w *iptablesText) around(c code, m Meaning, hook policy.Hook, chain string) {
	c.line(chain, knownAccept)
	w.loopback(c, hook, chain)
	protocol, option, types := "icmp", "--icmp-type", []int{3, 11, 12}
	if w.family == 6 {
		protocol, option, types = "ipv6-icmp", "--icmpv6-type", []int{1, 2, 3, 4}
		if hook != policy.Forward {
			types = append(types, 130, 131, 132, 133, 134, 135, 136, 143)
		}
	}
	for _, t := range types {
		c.line(chain, "-p %s %s %d -j ACCEPT", protocol, option, t)
	}
	if !m.InvalidAllow {
		c.line(chain, invalidDrop)
	}
	w.dhcp(c, hook, chain)
}

const (
	knownAccept = "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
	invalidDrop = "-m conntrack --ctstate INVALID -j DROP"
)

func (w *iptablesText) dhcp(c code, hook policy.Hook, chain string) {
	switch {
	case hook == policy.Input && w.family == 4:
		c.line(chain, "-p udp --sport 67 --dport 68 -j ACCEPT")
	case hook == policy.Input:
		c.line(chain, "-s fe80::/10 -p udp --sport 547 --dport 546 -j ACCEPT")
	}
}

func (w *iptablesText) loopback(c code, hook policy.Hook, chain string) {
	switch hook {
	case policy.Input:
		c.line(chain, "-i lo -j ACCEPT")
	case policy.Output:
		c.line(chain, "-o lo -j ACCEPT")
	}
}

// rule writes a rule for each of some of its ways, and chunks of ports.
func (w *iptablesText) rule(c code, chain string, r *Rule, ways ...Way) {
	// What counts has to be one, however many rules lead to it.
	do := ""
	if r.Limit != nil || r.Max != nil || r.Log != nil {
		if w.did[r] == "" {
			w.did[r] = "-j " + w.counted(c, *r)
		}
		do = w.did[r]
	}
	if r.Action == policy.ClampMSS {
		c = code{w, "mangle", c.how}
	}
	for _, way := range ways {
		if !r.fits(way, w.family) {
			continue
		}
		verdict := do
		if verdict == "" {
			verdict = w.verdict(c, r.Action, way)
		}
		port := "dport"
		if r.Answers {
			port = "sport"
		}
		var tests []iptablesTest
		if from, _ := r.From.of(w.family); from != nil {
			tests = append(tests, iptablesTest{"src", from})
		}
		if to, _ := r.To.of(w.family); to != nil {
			tests = append(tests, iptablesTest{"dst", to})
		}
		services := iptablesService(way, port)
		if r.Published {
			services = iptablesPublished(way)
		}
		for _, service := range services {
			var pre []string
			if service != "" {
				pre = append(pre, service)
			}
			switch {
			case r.Answers && way.Protocol == packet.TCP:
				pre = append(pre, "! --syn -m conntrack --ctstate UNTRACKED")
			case r.Answers:
				pre = append(pre, "-m conntrack --ctstate UNTRACKED")
			}
			if r.Action == policy.ClampMSS && way.Protocol == 0 {
				pre = append(pre, "-p tcp -m tcp --tcp-flags SYN,RST SYN")
			}
			for _, ends := range product(interfaces("-i", r.In), interfaces("-o", r.Out), users(r.Users)) {
				c.emit(chain, append(slices.Clone(ends), pre...), tests, verdict)
			}
		}
	}
}

func (w *iptablesText) verdict(c code, a policy.Action, way Way) string {
	switch {
	case a == policy.Allow:
		return "-j ACCEPT"
	case a == policy.Drop:
		return "-j DROP"
	case a == policy.ClampMSS:
		return "-j TCPMSS --clamp-mss-to-pmtu"
	case way.Protocol == packet.TCP:
		return "-j REJECT --reject-with tcp-reset"
	case way.Protocol != 0:
		return "-j REJECT"
	}
	name := w.prefix + "refuse"
	if !w.named["chain "+name] {
		w.named["chain "+name] = true
		c.declare(name)
		w.rejects(c, name)
	}
	return "-j " + name
}

func interfaces(option string, names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		if start, wild := strings.CutSuffix(n, "*"); wild {
			n = start + "+"
		}
		out[i] = option + " " + n
	}
	return out
}

func users(ids []uint32) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = fmt.Sprintf("-m owner --uid-owner %d", id)
	}
	return out
}

// product is every choice of one from each list; an empty list asks nothing.
func product(lists ...[]string) [][]string {
	out := [][]string{nil}
	for _, l := range lists {
		if len(l) == 0 {
			continue
		}
		var next [][]string
		for _, o := range out {
			for _, x := range l {
				next = append(next, append(slices.Clone(o), x))
			}
		}
		out = next
	}
	return out
}

// iptablesPublished asks for a way by the port of before the destination was rewritten.
func iptablesPublished(w Way) []string {
	const dnat = "-m conntrack --ctstate DNAT"
	switch {
	case w.Protocol == 0:
		return []string{dnat}
	case len(w.Ports) == 0:
		return []string{fmt.Sprintf("-p %s %s", protocolName(w.Protocol), dnat)}
	}
	var out []string
	for _, p := range w.Ports {
		out = append(out, fmt.Sprintf("-p %s %s --ctorigdstport %s", protocolName(w.Protocol), dnat, portsText(p, ":")))
	}
	return out
}

// iptablesService is the matches of a way, one of which has to fit: xt_multiport
// takes 15 ports, of which a range counts for two.
func iptablesService(w Way, port string) []string {
	name := protocolName(w.Protocol)
	switch {
	case w.Protocol == 0:
		return []string{""}
	case len(w.Types) > 0:
		option := "-p icmp --icmp-type"
		if w.Protocol == packet.ICMPv6 {
			option = "-p ipv6-icmp --icmpv6-type"
		}
		out := make([]string, len(w.Types))
		for i, t := range w.Types {
			out[i] = fmt.Sprintf("%s %d", option, t)
		}
		return out
	case w.Protocol == packet.ICMPv6:
		return []string{"-p ipv6-icmp"}
	case len(w.Ports) == 0:
		return []string{"-p " + name}
	case len(w.Ports) == 1:
		return []string{fmt.Sprintf("-p %s --%s %s", name, port, portsText(w.Ports[0], ":"))}
	}
	const most = 15
	var out, chunk []string
	slots := 0
	for _, p := range w.Ports {
		need := 1
		if p.From != p.To {
			need = 2
		}
		if slots+need > most {
			out = append(out, fmt.Sprintf("-p %s -m multiport --%ss %s", name, port, strings.Join(chunk, ",")))
			chunk, slots = nil, 0
		}
		chunk, slots = append(chunk, portsText(p, ":")), slots+need
	}
	return append(out, fmt.Sprintf("-p %s -m multiport --%ss %s", name, port, strings.Join(chunk, ",")))
}
