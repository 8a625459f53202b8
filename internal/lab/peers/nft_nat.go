package peers

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/language/policy"
)

// familyOf writes what comes before connection tracking and what rewrites addresses of
// one family as a table of it: the packets of the other one pass no hook of it then, and
// nothing has to ask for the family.
func familyOf(m Meaning, f int) []byte {
	w := newNft(m, oneSet)
	w.only = f
	var base bytes.Buffer
	w.early(&base, m)
	w.nat(&base, slices.DeleteFunc(slices.Clone(m.NAT), func(n NAT) bool { return n.Stateless }))
	if base.Len() == 0 {
		return nil
	}
	return w.table(ipOfFamily(f)+" peer", &base)
}

// nat writes the chains that rewrite addresses.
func (w *nftText) nat(to *bytes.Buffer, all []NAT) {
	var pre, out, post, stateless bytes.Buffer
	for _, n := range all {
		switch {
		case n.Kind == policy.Map && w.only != 0 && n.Inside.Addr().Is4() != (w.only == 4):
		case n.Kind == policy.Masquerade:
			w.masquerade(&post, n)
		case n.Kind == policy.Redirect:
			w.redirect(&pre, &out, n)
		case n.Stateless:
			f := ipOf(n.Inside.Addr().Is4())
			fmt.Fprintf(&stateless, "\t\tct state untracked %s saddr %s fib saddr type != local %s\n", f, n.Inside, mapped(f, "saddr", n.Inside, n.Outside))
		default:
			f := ipOf(n.Inside.Addr().Is4())
			for _, chain := range []*bytes.Buffer{&pre, &out} {
				fmt.Fprintf(chain, "\t\t%s daddr %s dnat %s prefix to %s daddr map { %s : %s }\n", f, n.Outside, f, f, n.Outside, n.Inside)
			}
			fmt.Fprintf(&post, "\t\t%s saddr %s fib saddr type != local snat %s prefix to %s saddr map { %s : %s }\n", f, n.Inside, f, f, n.Inside, n.Outside)
		}
	}
	for _, c := range []struct {
		name, kind, hook, priority string
		body                       *bytes.Buffer
	}{
		{"prerouting_nat", "nat", "prerouting", "dstnat", &pre},
		{"output_nat", "nat", "output", "-100", &out}, // nft has the word dstnat for prerouting alone
		{"postrouting_nat", "nat", "postrouting", "srcnat", &post},
		{"postrouting_raw", "filter", "postrouting", "raw", &stateless},
	} {
		if c.body.Len() > 0 {
			w.base(to, c.name, c.kind, c.hook, c.priority, "accept", c.body)
		}
	}
}

func (w *nftText) masquerade(to *bytes.Buffer, n NAT) {
	pre := append(w.interfaces("oif", n.Out), w.interfaces("iif", n.FromIn)...)
	do, only := "masquerade", n.Family
	if n.As.IsValid() {
		only = 6
		if n.As.Is4() {
			only = 4
		}
		do = fmt.Sprintf("snat %s to %s", ipOfFamily(only), n.As)
	}
	if n.From == nil && (only == 0 || only == w.only) {
		w.emit(to, pre, nil, do)
		return
	}
	for _, f := range []int{4, 6} {
		part, none := n.From.of(f)
		if none || only != 0 && only != f || w.only != 0 && w.only != f {
			continue
		}
		if part == nil {
			w.emit(to, append([]string{fmt.Sprintf("meta nfproto ipv%d", f)}, pre...), nil, do)
			continue
		}
		w.emit(to, pre, []nftTest{{f, "saddr", part}}, do)
	}
}

func (w *nftText) redirect(pre, out *bytes.Buffer, n NAT) {
	target := n.Target.Addr()
	do := "redirect"
	port := ""
	if n.Target.Port() != 0 {
		port = fmt.Sprintf(":%d", n.Target.Port())
	}
	if port != "" {
		do += " to " + port
	}
	if target.IsValid() {
		to := target.String()
		if target.Is6() && port != "" {
			to = "[" + to + "]"
		}
		do = fmt.Sprintf("dnat %s to %s%s", ipOf(target.Is4()), to, port)
	}
	service := nftService(n.Way, "dport")
	for _, f := range []int{4, 6} {
		if target.IsValid() && target.Is4() != (f == 4) || w.only != 0 && w.only != f {
			continue
		}
		on, none := (&Addresses{Set: n.On}).of(f)
		if !none {
			for _, chain := range []*bytes.Buffer{pre, out} {
				w.emit(chain, []string{service}, []nftTest{{f, "daddr", on}}, do)
			}
			continue
		}
		if n.On.IsEmpty() {
			conditions := append(w.interfaces("iif", n.In), fmt.Sprintf("meta nfproto ipv%d", f), service, "fib daddr type local")
			w.emit(pre, conditions, nil, do)
		}
	}
}

// mapped rewrites a prefix bit for bit: what is left of the old address, and the
// new one's beginning.
func mapped(ip, field string, from, to netip.Prefix) string {
	keep := from.Addr().AsSlice()
	for i := range keep {
		keep[i] = ^mask(map[bool]addrset.Family{true: 4, false: 6}[from.Addr().Is4()], from.Bits()).AsSlice()[i]
	}
	host, _ := netip.AddrFromSlice(keep)
	return strings.Join([]string{ip, field, "set", ip, field, "&", host.String(), "|", to.Addr().String()}, " ")
}
