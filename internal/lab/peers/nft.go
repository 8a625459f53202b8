package peers

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
)

// nftText writes a meaning as a ruleset of nftables. Its sets are laid out one way.
type nftText struct {
	layout  layout
	sets    bytes.Buffer
	chains  bytes.Buffer // those that rules jump to
	named   map[string]bool
	counted int // of chains and sets that have no name of their own
	meaning Meaning
	only    int // the one family of the table; 0: both
	deeds   map[*Rule]deed
}

// deed is what a rule does when it matches. What counts per source is different for
// each family: then again gives it.
type deed struct {
	do    string
	again func(f int) string
}

// layout is how a large set of addresses is asked.
type layout string

const (
	oneSet       layout = "one set"
	linear       layout = "a rule an address"
	chainPer8    layout = "a chain per /8"
	hashByLength layout = "a hash set per prefix length"
)

// inline is up to how many ranges are in the rule itself.
const inline = 4

func newNft(m Meaning, l layout) *nftText {
	return &nftText{layout: l, named: map[string]bool{}, meaning: m, deeds: map[*Rule]deed{}}
}

// nftRuleset is the whole text for nft -f.
func nftRuleset(m Meaning, l layout) []byte {
	w := newNft(m, l)
	var base bytes.Buffer
	if l == oneSet && !m.Bare {
		for _, s := range m.sections() {
			w.byHand(&base, s)
		}
		w.nat(&base, slices.DeleteFunc(slices.Clone(m.NAT), func(n NAT) bool { return !n.Stateless }))
		return slices.Concat(w.table("inet peer", &base), familyOf(m, 4), familyOf(m, 6))
	}
	w.early(&base, m)
	for _, s := range m.sections() {
		w.section(&base, m, s.hook, s.Section)
	}
	w.nat(&base, m.NAT)
	return w.table("inet peer", &base)
}

// table is what was written, with its base chains last.
func (w *nftText) table(name string, base *bytes.Buffer) []byte {
	return slices.Concat([]byte("table "+name+" {\n"), w.sets.Bytes(), w.chains.Bytes(), base.Bytes(), []byte("}\n"))
}

// base writes a base chain.
func (w *nftText) base(to *bytes.Buffer, name, kind, hook, priority, policy string, body *bytes.Buffer) {
	fmt.Fprintf(to, "\tchain %s {\n\t\ttype %s hook %s priority %s; policy %s;\n%s\t}\n", name, kind, hook, priority, policy, body)
}

// families are those of the table.
func (w *nftText) families() []int {
	if w.only != 0 {
		return []int{w.only}
	}
	return []int{4, 6}
}

func ipOf(four bool) string {
	if four {
		return "ip"
	}
	return "ip6"
}

func ipOfFamily(f int) string { return ipOf(f == 4) }

func (w *nftText) section(to *bytes.Buffer, m Meaning, hook policy.Hook, s *Section) {
	def := "accept"
	if s.Default != policy.Allow {
		def = "drop"
	}
	var body bytes.Buffer
	if !m.Bare {
		w.around(&body, m, hook)
	}
	var mangle bytes.Buffer
	for i := range s.Rules {
		if s.Rules[i].Action == policy.ClampMSS { // of known connections too
			w.rule(&mangle, &s.Rules[i])
			continue
		}
		w.rule(&body, &s.Rules[i])
	}
	if mangle.Len() > 0 {
		w.base(to, "clamp", "filter", string(hook), "mangle", "accept", &mangle)
	}
	if s.DefaultLog != nil {
		fmt.Fprintf(&body, "\t\t%s\n", logLimited(*s.DefaultLog))
	}
	if s.Default == policy.Reject {
		w.emit(&body, nil, nil, "jump "+w.reject())
	}
	w.base(to, string(hook), "filter", string(hook), "filter", def, &body)
}

// around is what is before the rules of every ruleset.
func (w *nftText) around(to *bytes.Buffer, m Meaning, hook policy.Hook) {
	to.WriteString("\t\tct state established,related accept\n")
	switch hook {
	case policy.Input:
		to.WriteString("\t\tiif lo accept\n")
	case policy.Output:
		to.WriteString("\t\toif lo accept\n")
	}
	w.bannedByLimit(to, hook)
	to.WriteString("\t\ticmp type { destination-unreachable, time-exceeded, parameter-problem } accept\n")
	if hook == policy.Forward {
		to.WriteString("\t\ticmpv6 type { destination-unreachable, packet-too-big, time-exceeded, parameter-problem } accept\n")
	} else {
		to.WriteString("\t\ticmpv6 type { destination-unreachable, packet-too-big, time-exceeded, parameter-problem, mld-listener-query, mld-listener-report, mld-listener-done, nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert, mld2-listener-report } accept\n")
	}
	if !m.InvalidAllow {
		to.WriteString("\t\tct state invalid drop\n")
	}
	if hook == policy.Input {
		to.WriteString("\t\tmeta nfproto ipv4 udp sport 67 udp dport 68 accept\n")
		to.WriteString("\t\tip6 saddr fe80::/10 udp sport 547 udp dport 546 accept\n")
	}
}

// rule writes a rule for each of its ways.
func (w *nftText) rule(to *bytes.Buffer, r *Rule) {
	for _, way := range r.Ways {
		port := "dport"
		if r.Answers {
			port = "sport"
		}
		service := nftService(way, port)
		if r.Published {
			service = nftPublished(way)
		}
		w.way(to, r, way, service)
	}
}

// way writes one way of a rule, for each family that differs. The service is what asks
// for the way.
func (w *nftText) way(to *bytes.Buffer, r *Rule, way Way, service string) {
	for _, f := range r.families(way) {
		var pre []string
		if r.Answers {
			pre = append(pre, "ct state untracked")
			if way.Protocol == packet.TCP {
				pre = append(pre, "tcp flags & (syn | ack) != syn")
			}
		}
		var tests []nftTest
		if part, _ := r.From.of(f); part != nil {
			tests = append(tests, nftTest{f, "saddr", part})
		}
		if part, _ := r.To.of(f); part != nil {
			tests = append(tests, nftTest{f, "daddr", part})
		}
		if len(tests) == 0 && f != 0 && way.family() == 0 {
			pre = append(pre, "meta nfproto ipv"+fmt.Sprint(f))
		}
		if service != "" {
			pre = append(pre, service)
		}
		if len(r.Users) > 0 {
			pre = append(pre, "meta skuid "+nftList(r.Users))
		}
		for _, in := range w.apart(r.In) {
			for _, out := range w.apart(r.Out) {
				ends := append(w.interfaces("iif", in), w.interfaces("oif", out)...)
				w.emit(to, append(ends, pre...), tests, w.action(r, way, f))
			}
		}
	}
}

// action is what a rule does with a packet of a way and family that matches.
func (w *nftText) action(r *Rule, way Way, f int) string {
	d, there := w.deeds[r]
	if !there {
		d = w.deedOf(r)
		w.deeds[r] = d
	}
	switch {
	case d.again != nil:
		return d.again(f)
	case r.Action == policy.Reject:
		return w.refusal(way.Protocol)
	}
	return d.do
}

// refusal answers a packet of a protocol; 0 is any.
func (w *nftText) refusal(protocol uint8) string {
	switch protocol {
	case packet.TCP:
		return "reject with tcp reset"
	case 0:
		return "jump " + w.reject()
	}
	return "reject with icmpx port-unreachable"
}

// reject is a chain that answers TCP with a reset and the rest with an error.
func (w *nftText) reject() string {
	if !w.named["chain reject"] {
		w.named["chain reject"] = true
		w.chains.WriteString("\tchain refuse {\n\t\tmeta l4proto tcp reject with tcp reset\n\t\treject with icmpx port-unreachable\n\t}\n")
	}
	return "refuse"
}

func (w *nftText) deedOf(r *Rule) deed {
	verdict := map[policy.Action]string{policy.Allow: "accept", policy.Drop: "drop", policy.ClampMSS: "tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu"}[r.Action]
	if r.Limit == nil && r.Max == nil && r.Log == nil {
		return deed{do: verdict}
	}
	logged := ""
	if r.Log != nil {
		logged = logLimited(*r.Log)
	}
	final := verdict
	if logged != "" || r.Action == policy.Reject && (r.Limit != nil || r.Max != nil) {
		if r.Action == policy.Reject {
			final = "jump " + w.reject()
		}
		final = "jump " + w.chain([]string{logged, final})
	}
	if r.Limit == nil && r.Max == nil {
		return deed{again: func(int) string { return final }}
	}
	chains := map[int]string{}
	return deed{again: func(f int) string {
		key := f
		if !(r.Limit != nil && r.Limit.PerSource || r.Max != nil && r.Max.PerSource) {
			key = 0
		}
		if chains[key] == "" {
			chains[key] = w.chain([]string{
				strings.Join(strings.Fields(w.limit(r.Limit, f)+" "+w.max(r.Max, f)+" "+final), " "), w.banOver(r.Limit, f),
			})
		}
		return "jump " + chains[key]
	}}
}

// chain makes a chain of lines and returns its name.
func (w *nftText) chain(lines []string) string {
	w.counted++
	name := fmt.Sprintf("then%d", w.counted)
	fmt.Fprintf(&w.chains, "\tchain %s {\n", name)
	for _, l := range lines {
		if l != "" {
			fmt.Fprintf(&w.chains, "\t\t%s\n", l)
		}
	}
	w.chains.WriteString("\t}\n")
	return name
}

// interfaces asks for one of them; side is iif or oif. Those that are there are asked by
// their number where the layout is the one of who knows nftables well.
func (w *nftText) interfaces(side string, names []string) []string {
	if len(names) == 0 {
		return nil
	}
	if w.layout != oneSet || !w.present(names) {
		side += "name"
	}
	return []string{side + " " + nftList(quoted(names))}
}

// present says that all of the interfaces are there now.
func (w *nftText) present(names []string) bool {
	return !slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(w.meaning.Interfaces, n) })
}

// apart are the interfaces that a rule each is cheaper for: a set of names with a
// wildcard is one of ranges.
func (w *nftText) apart(names []string) [][]string {
	if w.layout != oneSet || len(names) > inline || w.present(names) {
		return [][]string{names}
	}
	out := make([][]string, len(names))
	for i, n := range names {
		out[i] = []string{n}
	}
	return out
}

func quoted(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = fmt.Sprintf("%q", n)
	}
	return out
}

func nftList[T any](of []T) string {
	texts := make([]string, len(of))
	for i, o := range of {
		texts[i] = fmt.Sprint(o)
	}
	if len(texts) == 1 {
		return texts[0]
	}
	return "{ " + strings.Join(texts, ", ") + " }"
}

// nftService is the match of a way; port is dport or sport.
func nftService(w Way, port string) string {
	switch {
	case w.Protocol == 0:
		return ""
	case w.Protocol == packet.ICMP && len(w.Types) > 0:
		return "icmp type " + nftList(w.Types)
	case w.Protocol == packet.ICMPv6 && len(w.Types) > 0:
		return "icmpv6 type " + nftList(w.Types)
	case len(w.Ports) > 0:
		return protocolName(w.Protocol) + " " + port + " " + nftPorts(w.Ports)
	}
	return fmt.Sprintf("meta l4proto %d", w.Protocol)
}

func nftPorts(ports []policy.PortRange) string {
	texts := make([]string, len(ports))
	for i, p := range ports {
		texts[i] = portsText(p, "-")
	}
	return nftList(texts)
}

// nftPublished asks for a way by the port of before the destination was rewritten.
func nftPublished(w Way) string {
	texts := []string{"ct status dnat"}
	if w.Protocol != 0 {
		texts = append(texts, fmt.Sprintf("meta l4proto %d", w.Protocol))
	}
	if len(w.Ports) > 0 {
		texts = append(texts, "ct original proto-dst "+nftPorts(w.Ports))
	}
	return strings.Join(texts, " ")
}

func portsText(p policy.PortRange, dash string) string {
	if p.From == p.To {
		return fmt.Sprint(p.From)
	}
	return fmt.Sprintf("%d%s%d", p.From, dash, p.To)
}

func protocolName(p uint8) string { return cmp.Or(packet.TransportName(p), fmt.Sprint(p)) }
