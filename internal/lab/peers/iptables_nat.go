package peers

import (
	"fmt"
	"slices"

	"sluice/internal/language/policy"
)

// nat writes the table nat. A stateless map has no words here: iptablesCannot says so.
func (w *iptablesText) nat(m Meaning) {
	c := code{w, "nat", w.how.rules}
	for _, n := range m.NAT {
		switch {
		case n.Stateless:
		case n.Kind == policy.Masquerade:
			w.masquerade(c, n)
		case n.Kind == policy.Redirect:
			w.redirect(c, n)
		case n.Inside.Addr().Is4() == (w.family == 4):
			c.line("PREROUTING", "-d %s -j NETMAP --to %s", n.Outside, n.Inside)
			c.line("OUTPUT", "-d %s -j NETMAP --to %s", n.Outside, n.Inside)
			c.line("POSTROUTING", "-s %s -m addrtype ! --src-type LOCAL -j NETMAP --to %s", n.Inside, n.Outside)
		}
	}
}

func (w *iptablesText) masquerade(c code, n NAT) {
	part, none := n.From.of(w.family)
	do := "-j MASQUERADE"
	if n.As.IsValid() {
		none = none || n.As.Is4() != (w.family == 4)
		do = "-j SNAT --to-source " + n.As.String()
	}
	if none || n.Family != 0 && n.Family != w.family {
		return
	}
	var tests []iptablesTest
	if part != nil {
		tests = []iptablesTest{{"src", part}}
	}
	// A packet in POSTROUTING has no incoming interface that -i could ask: that its
	// source came in where it belongs is what FORWARD has asked.
	for _, pre := range product(interfaces("-o", n.Out)) {
		c.emit("POSTROUTING", pre, tests, do)
	}
}

func (w *iptablesText) redirect(c code, n NAT) {
	target := n.Target.Addr()
	if target.IsValid() && target.Is4() != (w.family == 4) {
		return
	}
	do := "-j REDIRECT"
	if n.Target.Port() != 0 {
		do += fmt.Sprintf(" --to-ports %d", n.Target.Port())
	}
	if target.IsValid() {
		to := target.String()
		switch {
		case n.Target.Port() != 0:
			to = n.Target.String()
		case target.Is6():
			to = "[" + to + "]"
		}
		do = "-j DNAT --to-destination " + to
	}
	on, none := (&Addresses{Set: n.On}).of(w.family)
	for _, service := range iptablesService(n.Way, "dport") {
		if !none {
			for _, chain := range []string{"PREROUTING", "OUTPUT"} {
				c.emit(chain, []string{service}, []iptablesTest{{"dst", on}}, do)
			}
			continue
		}
		if n.On.IsEmpty() {
			for _, in := range product(interfaces("-i", n.In)) {
				c.emit("PREROUTING", append(slices.Clone(in), service, "-m addrtype --dst-type LOCAL"), nil, do)
			}
		}
	}
}

// iptablesCannot is what no rule of iptables says.
func iptablesCannot(m Meaning) (out []Refusal) {
	for _, n := range m.NAT {
		switch {
		case n.Stateless:
			out = append(out, Refusal{n.Text, "iptables rewrites prefixes with state only (NETMAP)"})
		case n.Kind == policy.Masquerade && len(n.FromIn) > 0 && (n.From == nil || m.Forward == nil || m.Forward.Default == policy.Allow):
			out = append(out, Refusal{n.Text, "POSTROUTING of iptables cannot ask where a packet came in"})
		}
	}
	return out
}
