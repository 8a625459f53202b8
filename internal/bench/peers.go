package bench

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"

	"sluice/internal/addrset"
	"sluice/internal/measure"
)

// peer is one way to have "drop what comes from the set" in the input hook of a
// lab, and nothing else.
type peer struct {
	name string
	load func(b *bench, l *measure.Lab, blocked addrset.Set) error
	// both is for peers that have the addresses of both families, as in a policy;
	// the others have those of the family that is measured.
	both bool
}

// Names that the figures refer to.
const (
	bare     = "no rules"
	oneSet   = "one interval set"
	oneAgain = "one interval set, again"
	ours     = "sluice"

	byHand      = "one interval set behind ct state, by hand"
	wholePolicy = "sluice, a whole policy with that rule"
)

// words are those of nft and of ipset for a family.
type words struct {
	family addrset.Family
	addr   string // ip, ip6
	kind   string // ipv4_addr
	ipset  string // inet, inet6
}

func wordsOf(s addrset.Set) words {
	if s.Has6() {
		return words{addrset.IPv6, "ip6", "ipv6_addr", "inet6"}
	}
	return words{addrset.IPv4, "ip", "ipv4_addr", "inet"}
}

const inputChain = "type filter hook input priority 0; policy accept;"

// elements writes ranges as nft reads them.
func elements(ranges []addrset.Range) string {
	var b bytes.Buffer
	for i, r := range ranges {
		if i > 0 {
			b.WriteString(",\n")
		}
		b.WriteString(r.String())
	}
	return b.String()
}

// intervalSets are one interval set a family, and the rules that drop what comes
// from them.
func intervalSets(s addrset.Set) (sets, rules string) {
	var text bytes.Buffer
	for _, part := range []addrset.Set{s.Only4(), s.Only6()} {
		if part.IsEmpty() {
			continue
		}
		w := wordsOf(part)
		fmt.Fprintf(&text, "set blocked%d { type %s; flags interval; elements = { %s }\n}\n", w.family, w.kind, elements(part.Ranges()))
		rules += fmt.Sprintf("%s saddr @blocked%d drop\n", w.addr, w.family)
	}
	return text.String(), rules
}

// singleSet is the ruleset that most people write: everything in one set a family.
func singleSet(s addrset.Set) []byte {
	sets, rules := intervalSets(s)
	return fmt.Appendf(nil, "table inet single {\n%schain input { %s\n%s}\n}\n", sets, inputChain, rules)
}

func loadSingleSet(b *bench, l *measure.Lab, s addrset.Set) error {
	_, err := b.nft(l, singleSet(s))
	return err
}

// loadPrefixLengths has a hash set for each prefix length, asked one after the
// other.
func loadPrefixLengths(b *bench, l *measure.Lab, s addrset.Set) error {
	w := wordsOf(s)
	byLength := map[int][]netip.Prefix{}
	for p := range s.EachPrefix() {
		byLength[p.Bits()] = append(byLength[p.Bits()], p)
	}
	var sets, rules bytes.Buffer
	for bits := range 129 {
		prefixes := byLength[bits]
		if len(prefixes) == 0 {
			continue
		}
		fmt.Fprintf(&sets, "set p%d { type %s; size %d; elements = { ", bits, w.kind, len(prefixes))
		for i, p := range prefixes {
			if i > 0 {
				sets.WriteString(",\n")
			}
			sets.WriteString(p.Addr().String())
		}
		sets.WriteString(" }\n}\n")
		fmt.Fprintf(&rules, "%s saddr & %s @p%d drop\n", w.addr, mask(w.family, bits), bits)
	}
	_, err := b.nft(l, fmt.Appendf(nil, "table inet lengths {\n%schain input { %s\n%s}\n}\n", sets.Bytes(), inputChain, rules.Bytes()))
	return err
}

func mask(f addrset.Family, bits int) netip.Addr {
	all := netip.AddrFrom4([4]byte{255, 255, 255, 255})
	if f == addrset.IPv6 {
		all = netip.AddrFrom16([16]byte(bytes.Repeat([]byte{255}, 16)))
	}
	p, _ := all.Prefix(bits)
	return p.Addr()
}

// slash8 groups the prefixes of an IPv4 set by their /8. A prefix shorter than
// that stands in each that it covers.
func slash8(s addrset.Set) (order []int, prefixes map[int][]netip.Prefix) {
	prefixes = map[int][]netip.Prefix{}
	for p := range s.EachPrefix() {
		first := int(p.Addr().As4()[0])
		for i := range max(1, 1<<8>>p.Bits()) {
			if p.Bits() < 8 {
				prefixes[first+i] = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(first + i)}), 8)}
			} else {
				prefixes[first] = append(prefixes[first], p)
			}
		}
	}
	for n := range prefixes {
		order = append(order, n)
	}
	slices.Sort(order)
	return order, prefixes
}

// loadChainPer8 has one chain of linear rules for each /8, reached by a verdict
// map: the remedy of iptables with what nftables can do better.
func loadChainPer8(b *bench, l *measure.Lab, s addrset.Set) error {
	order, prefixes := slash8(s)
	var chains, jumps bytes.Buffer
	for i, n := range order {
		fmt.Fprintf(&chains, "chain c%d {\n", n)
		for _, p := range prefixes[n] {
			fmt.Fprintf(&chains, "ip saddr %s drop\n", p)
		}
		chains.WriteString("}\n")
		if i > 0 {
			jumps.WriteString(", ")
		}
		fmt.Fprintf(&jumps, "%d.0.0.0 : jump c%d", n, n)
	}
	_, err := b.nft(l, fmt.Appendf(nil, "table inet chains {\n%schain input { %s\nip saddr & 255.0.0.0 vmap { %s }\n}\n}\n", chains.Bytes(), inputChain, jumps.Bytes()))
	return err
}

// loadChainPer8Legacy is the remedy as it was: iptables, a jump for each /8.
func loadChainPer8Legacy(b *bench, l *measure.Lab, s addrset.Set) error {
	order, prefixes := slash8(s)
	var declared, jumps, rules bytes.Buffer
	for _, n := range order {
		fmt.Fprintf(&declared, ":c%d - [0:0]\n", n)
		fmt.Fprintf(&jumps, "-A INPUT -s %d.0.0.0/8 -j c%d\n", n, n)
		for _, p := range prefixes[n] {
			fmt.Fprintf(&rules, "-A c%d -s %s -j DROP\n", n, p)
		}
	}
	_, err := b.inside(l, fmt.Appendf(nil, "*filter\n%s%s%sCOMMIT\n", declared.Bytes(), jumps.Bytes(), rules.Bytes()), "iptables-legacy-restore")
	return err
}

func loadIPSet(b *bench, l *measure.Lab, s addrset.Set) error {
	w := wordsOf(s)
	n4, n6 := s.CountPrefixes()
	var text bytes.Buffer
	fmt.Fprintf(&text, "create blocked hash:net family %s maxelem %d hashsize %d\n", w.ipset, n4+n6, (n4+n6)/4)
	for p := range s.EachPrefix() {
		fmt.Fprintf(&text, "add blocked %s\n", p)
	}
	if _, err := b.inside(l, text.Bytes(), "ipset", "restore"); err != nil {
		return err
	}
	restore := "iptables-legacy-restore"
	if w.family == addrset.IPv6 {
		restore = "ip6tables-legacy-restore"
	}
	_, err := b.inside(l, []byte("*filter\n-A INPUT -m set --match-set blocked src -j DROP\nCOMMIT\n"), restore)
	return err
}

// loadLinear has a rule for each range.
func loadLinear(b *bench, l *measure.Lab, s addrset.Set) error {
	w := wordsOf(s)
	var rules bytes.Buffer
	for r := range s.Each() {
		fmt.Fprintf(&rules, "%s saddr %s drop\n", w.addr, r)
	}
	_, err := b.nft(l, fmt.Appendf(nil, "table inet linear {\nchain input { %s\n%s}\n}\n", inputChain, rules.Bytes()))
	return err
}

func loadNothing(*bench, *measure.Lab, addrset.Set) error { return nil }
