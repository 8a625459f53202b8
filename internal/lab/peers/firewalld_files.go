package peers

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
)

func firewalldCannot(m Meaning) (out []Refusal) {
	if m.Forward != nil {
		out = append(out, Refusal{"forward", "firewalld forwards by policies between zones, which is another order of rules"})
	}
	if m.Output != nil && (m.Output.Default != policy.Allow || len(m.Output.Rules) > 0) {
		out = append(out, Refusal{"output", "firewalld filters what the host sends by policies alone"})
	}
	for _, n := range m.NAT {
		out = append(out, Refusal{n.Text, "firewalld rewrites by zones, not by addresses"})
	}
	if m.InvalidAllow {
		out = append(out, Refusal{"invalid: allow", "firewalld drops invalid packets in any case"})
	}
	if m.Bare {
		out = append(out, Refusal{"rules alone", "firewalld is always a whole firewall"})
	}
	for _, b := range m.Bypass {
		out = append(out, Refusal{b.Text, "firewalld leaves connection tracking to direct rules of iptables, which it is about to drop"})
	}
	eachRule(m, func(r Rule) {
		if len(r.Users) > 0 {
			out = append(out, Refusal{r.Text, "firewalld knows no users"})
		}
		for _, w := range r.Ways {
			if len(w.Types) > 0 && icmpName(w) == nil {
				out = append(out, Refusal{r.Text, "a type of ICMP that firewalld has no name for"})
			}
		}
	})
	if zones := zonesOf(m); overlap(zones) {
		out = append(out, Refusal{"zones", "an interface is in one zone of firewalld alone"})
	}
	return out
}

func firewalldWithout(m Meaning) (out []Refusal) {
	if !m.Banned.IsEmpty() {
		out = append(out, Refusal{"ban", "holds for new flows: firewalld accepts established ones before its zones"})
	}
	eachRule(m, func(r Rule) {
		if r.Limit != nil || r.Max != nil {
			out = append(out, Refusal{r.Text, "allows without the limit"})
		}
	})
	return out
}

// everyOther is the zone of the interfaces that no rule names.
const everyOther = "others"

// zonesOf are the lists of interfaces that rules come in by.
func zonesOf(m Meaning) (out [][]string) {
	if m.Input == nil {
		return nil
	}
	for _, r := range m.Input.Rules {
		if len(r.In) > 0 && !slices.ContainsFunc(out, func(z []string) bool { return slices.Equal(z, r.In) }) {
			out = append(out, r.In)
		}
	}
	return out
}

func overlap(zones [][]string) bool {
	for i, a := range zones {
		for _, b := range zones[:i] {
			if _, some := both(a, b); some {
				return true
			}
		}
	}
	return false
}

// FirewalldFiles are the files of /etc/firewalld, by path in it.
func FirewalldFiles(m Meaning) map[string]string {
	w := &firewalldText{files: map[string]string{}, sets: map[string]bool{}}
	w.files["firewalld.conf"] = `DefaultZone=` + everyOther + `
CleanupOnExit=no
CleanupModulesOnExit=no
Lockdown=no
IPv6_rpfilter=no
IndividualCalls=no
LogDenied=off
FirewallBackend=nftables
FlushAllOnReload=yes
RFC3964_IPv4=no
`
	target := "ACCEPT"
	var rules []Rule
	if m.Input != nil {
		target = map[policy.Action]string{policy.Allow: "ACCEPT", policy.Drop: "DROP", policy.Reject: "%%REJECT%%"}[m.Input.Default]
		rules = m.Input.Rules
	}
	ban := &Addresses{Name: "bans", Set: m.Banned}
	w.zone(everyOther, nil, target, ban, rules, m)
	for i, z := range zonesOf(m) {
		w.zone(fmt.Sprintf("side%d", i+1), z, target, ban, rules, m)
	}
	if !m.Banned.IsEmpty() {
		var body strings.Builder
		for _, f := range []int{4, 6} {
			if part, none := ban.of(f); !none {
				for _, a := range w.addresses("destination", part, f) {
					fmt.Fprintf(&body, "  <rule family=\"ipv%d\">%s<drop/></rule>\n", f, a)
				}
			}
		}
		w.files["policies/bans.xml"] = xmlHead + "<policy target=\"CONTINUE\" priority=\"-10\">\n  <ingress-zone name=\"HOST\"/>\n  <egress-zone name=\"ANY\"/>\n" + body.String() + "</policy>\n"
	}
	return w.files
}

const xmlHead = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n"

type firewalldText struct {
	files  map[string]string
	sets   map[string]bool
	groups int
}

// zone writes a zone with the rules that hold on its interfaces, each with a
// priority of its own, since firewalld sorts others by what they do.
func (w *firewalldText) zone(name string, interfaces []string, target string, ban *Addresses, rules []Rule, m Meaning) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s<zone target=\"%s\">\n", xmlHead, target)
	for _, i := range interfaces {
		fmt.Fprintf(&b, "  <interface name=\"%s\"/>\n", escaped(strings.Replace(i, "*", "+", 1)))
	}
	const first = -32768
	at := first
	rule := func(f int, match, verdict string) {
		family := ""
		if f != 0 {
			family = fmt.Sprintf(" family=\"ipv%d\"", f)
		}
		fmt.Fprintf(&b, "  <rule%s priority=\"%d\">%s%s</rule>\n", family, at, match, verdict)
	}
	for _, f := range []int{4, 6} {
		if part, none := ban.of(f); !none {
			for _, a := range w.addresses("source", part, f) {
				rule(f, a, "<drop/>")
			}
		}
	}
	for _, r := range rules {
		if len(r.In) > 0 && !slices.Equal(r.In, interfaces) {
			continue
		}
		at++
		for _, way := range r.Ways {
			w.rule(r, way, rule)
		}
	}
	b.WriteString("</zone>\n")
	w.files["zones/"+name+".xml"] = b.String()
}

func (w *firewalldText) rule(r Rule, way Way, write func(f int, match, verdict string)) {
	verdict := map[policy.Action]string{policy.Allow: "<accept/>", policy.Drop: "<drop/>", policy.Reject: "<reject/>"}[r.Action]
	if r.Log != nil {
		verdict = fmt.Sprintf("<log prefix=\"%s\"><limit value=\"5/s\"/></log>", escaped(*r.Log)) + verdict
	}
	families := r.families(way)
	if (way.Protocol == 0 || r.Action == policy.Reject) && slices.Equal(families, []int{0}) { // a rule about nothing is none, and a type of reject has a family
		families = []int{4, 6}
	}
	for _, f := range families {
		from, to := []string{""}, []string{""}
		if part, _ := r.From.of(f); part != nil {
			from = w.addresses("source", part, f)
		}
		if part, _ := r.To.of(f); part != nil {
			to = w.addresses("destination", part, f)
		}
		if r.From == nil && r.To == nil && way.Protocol == 0 {
			from = []string{fmt.Sprintf("<source address=\"%s\"/>", map[int]string{4: "0.0.0.0/0", 6: "::/0"}[f])}
		}
		for _, a := range from {
			for _, b := range to {
				for _, s := range firewalldService(way) {
					v := verdict
					if r.Action == policy.Reject && way.Protocol == packet.TCP {
						v = strings.Replace(v, "<reject/>", "<reject type=\"tcp-reset\"/>", 1)
					}
					write(f, a+b+s, v)
				}
			}
		}
	}
}

// addresses are the elements for one side, one of which has to fit.
func (w *firewalldText) addresses(element string, a *Addresses, f int) []string {
	invert := ""
	if a.Not {
		invert = " invert=\"True\""
	}
	v4, v6 := a.Set.CountPrefixes()
	if n := v4 + v6; n == 1 || n <= inline && !a.Not {
		var out []string
		for p := range a.Set.EachPrefix() {
			out = append(out, fmt.Sprintf("<%s address=\"%s\"%s/>", element, plain(p), invert))
		}
		return out
	}
	name := identifier(a.Name)
	if name == "" {
		w.groups++
		name = fmt.Sprintf("group%d_", w.groups)
	}
	name = fmt.Sprintf("%.*s%d", 29, name, f)
	if !w.sets[name] {
		w.sets[name] = true
		var b strings.Builder
		family := map[int]string{4: "inet", 6: "inet6"}[f]
		fmt.Fprintf(&b, "%s<ipset type=\"hash:net\">\n  <option name=\"family\" value=\"%s\"/>\n  <option name=\"maxelem\" value=\"%d\"/>\n", xmlHead, family, max(v4+v6, 65536))
		for p := range a.Set.EachPrefix() {
			fmt.Fprintf(&b, "  <entry>%s</entry>\n", plain(p))
		}
		b.WriteString("</ipset>\n")
		w.files["ipsets/"+name+".xml"] = b.String()
	}
	return []string{fmt.Sprintf("<%s ipset=\"%s\"%s/>", element, name, invert)}
}

func firewalldService(w Way) []string {
	switch {
	case w.Protocol == 0:
		return []string{""}
	case len(w.Types) > 0:
		return icmpName(w)
	case len(w.Ports) == 0:
		name := protocolName(w.Protocol)
		if w.Protocol == packet.ICMPv6 {
			name = "ipv6-icmp"
		}
		return []string{fmt.Sprintf("<protocol value=\"%s\"/>", name)}
	}
	out := make([]string, len(w.Ports))
	for i, p := range w.Ports {
		out[i] = fmt.Sprintf("<port protocol=\"%s\" port=\"%s\"/>", protocolName(w.Protocol), portsText(p, "-"))
	}
	return out
}

// icmpName are the types of ICMP by the names of firewalld; nil where one has none.
func icmpName(w Way) []string {
	names := map[uint8]string{0: "echo-reply", 3: "destination-unreachable", 5: "redirect", 8: "echo-request", 9: "router-advertisement", 10: "router-solicitation", 11: "time-exceeded", 12: "parameter-problem", 13: "timestamp-request", 14: "timestamp-reply"}
	if w.Protocol == packet.ICMPv6 {
		names = map[uint8]string{1: "destination-unreachable", 2: "packet-too-big", 3: "time-exceeded", 4: "parameter-problem", 128: "echo-request", 129: "echo-reply", 133: "router-solicitation", 134: "router-advertisement", 135: "neighbour-solicitation", 136: "neighbour-advertisement", 137: "redirect"}
	}
	var out []string
	for _, t := range w.Types {
		if names[t] == "" {
			return nil
		}
		out = append(out, fmt.Sprintf("<icmp-type name=\"%s\"/>", names[t]))
	}
	return out
}

func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder takes everything
	return b.String()
}
