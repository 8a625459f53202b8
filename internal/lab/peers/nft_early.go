package peers

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// early is what comes before connection tracking: bans, and what bypasses it.
func (w *nftText) early(to *bytes.Buffer, m Meaning) {
	stateless := slices.ContainsFunc(m.NAT, func(n NAT) bool { return n.Stateless })
	if m.Banned.IsEmpty() && len(m.Bypass) == 0 && !stateless {
		return
	}
	var pre, out bytes.Buffer
	ban := func(to *bytes.Buffer, field string) {
		for _, f := range w.families() {
			if part, none := w.bans(f); !none {
				w.emit(to, nil, []nftTest{{f, field, part}}, "drop")
			}
		}
	}
	ban(&pre, "saddr")
	if m.Forwards {
		ban(&pre, "daddr")
	}
	ban(&out, "daddr")
	for _, b := range m.Bypass {
		w.bypass(&pre, m, b, "daddr", "dport")
		w.bypass(&out, m, b, "saddr", "sport")
	}
	for _, n := range m.NAT {
		if n.Stateless && (w.only == 0 || n.Outside.Addr().Is4() == (w.only == 4)) {
			f := ipOf(n.Outside.Addr().Is4())
			fmt.Fprintf(&pre, "\t\t%s saddr %s fib daddr type != local notrack\n", f, n.Inside)
			fmt.Fprintf(&pre, "\t\t%s daddr %s notrack %s\n", f, n.Outside, mapped(f, "daddr", n.Outside, n.Inside))
		}
	}
	if pre.Len() > 0 {
		w.base(to, "prerouting_raw", "filter", "prerouting", "raw", "accept", &pre)
	}
	if out.Len() > 0 {
		w.base(to, "output_raw", "filter", "output", "raw", "accept", &out)
	}
}

// bans are those of the policy in one family. A set that counts is one by name,
// however few are in it.
func (w *nftText) bans(f int) (part *Addresses, none bool) {
	part, none = (&Addresses{Name: "bans", Set: w.meaning.Banned}).of(f)
	if part != nil {
		part.counts = w.meaning.counted(f)
	}
	return part, none
}

func (w *nftText) bypass(to *bytes.Buffer, m Meaning, b Bypass, address, port string) {
	if b.Endpoints != nil {
		w.endpoints(to, b, address, port)
		return
	}
	for _, way := range b.Ways {
		pre := []string{nftService(way, port)}
		if m.Forwards {
			pre = append(pre, "fib "+address+" type local")
		}
		if b.To == nil {
			w.emit(to, pre, nil, "notrack")
			continue
		}
		for _, f := range w.families() {
			if part, none := b.To.of(f); !none {
				w.emit(to, pre, []nftTest{{f, address, part}}, "notrack")
			}
		}
	}
}

// endpoints are a concatenated set, or a rule each where nothing is a set.
func (w *nftText) endpoints(to *bytes.Buffer, b Bypass, address, port string) {
	type kind struct {
		four     bool
		protocol uint8
	}
	elements := map[kind][]string{}
	var order []kind
	here := func(four bool) bool { return w.only == 0 || four == (w.only == 4) }
	if w.layout == oneSet {
		if rules, is := everyPort(b.Endpoints); is {
			for _, r := range rules {
				if !here(r.addresses[0].From.Is4()) {
					continue
				}
				f := ipOf(r.addresses[0].From.Is4())
				fmt.Fprintf(to, "\t\t%s %s %s %s %s %s notrack\n", protocolName(r.protocol), port, nftPorts(r.ports), f, address, nftList(r.addresses))
			}
			return
		}
	}
	for _, e := range b.Endpoints {
		k := kind{e.Address.From.Is4(), e.Protocol}
		if !here(k.four) {
			continue
		}
		if w.layout == linear || w.layout == chainPer8 {
			fmt.Fprintf(to, "\t\t%s %s %s %s %s %d notrack\n", ipOf(k.four), address, e.Address, protocolName(e.Protocol), port, e.Port)
			continue
		}
		if elements[k] == nil {
			order = append(order, k)
		}
		elements[k] = append(elements[k], fmt.Sprintf("%s . %d", e.Address, e.Port))
	}
	for _, k := range order {
		name := fmt.Sprintf("listeners_%s%s", protocolName(k.protocol), map[bool]string{true: "4", false: "6"}[k.four])
		if !w.named[name] {
			w.named[name] = true
			kind := map[bool]string{true: "ipv4_addr", false: "ipv6_addr"}[k.four]
			flags := ""
			if slices.ContainsFunc(elements[k], func(s string) bool { return strings.ContainsAny(s, "/-") }) {
				flags = " flags interval;"
			}
			fmt.Fprintf(&w.sets, "\tset %s { type %s . inet_service;%s elements = { %s }; }\n", name, kind, flags, strings.Join(elements[k], ", "))
		}
		fmt.Fprintf(to, "\t\t%s %s . %s %s @%s notrack\n", ipOf(k.four), address, protocolName(k.protocol), port, name)
	}
}
