package peers

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
)

// nftTest asks for one side of one family.
type nftTest struct {
	family int
	field  string // saddr, daddr
	*Addresses
}

func (t nftTest) ip() string { return ipOfFamily(t.family) }

func (t nftTest) key() string { return t.ip() + " " + t.field }

func (t nftTest) of() addrset.Family { return addrset.Family(t.family) }

// emit writes one rule: the conditions, then a test of each side, then what is done.
// A layout may need several rules, or chains of its own.
func (w *nftText) emit(to *bytes.Buffer, pre []string, tests []nftTest, do string) {
	if len(tests) == 0 {
		fmt.Fprintf(to, "\t\t%s\n", strings.Join(append(slices.Clone(pre), do), " "))
		return
	}
	t := tests[0]
	ranges := t.Set.Ranges()
	switch {
	case w.layout == linear && len(ranges) > 1:
		w.members(to, pre, t, texts(ranges), tests[1:], do)
	case len(ranges) <= inline && !(t.counts && w.layout == oneSet):
		w.emit(to, append(slices.Clone(pre), t.key()+t.not()+nftList(ranges)), tests[1:], do)
	case w.layout == chainPer8:
		w.per8(to, pre, t, tests[1:], do)
	case w.layout == hashByLength:
		w.lengths(to, pre, t, tests[1:], do)
	default:
		w.emit(to, append(slices.Clone(pre), t.key()+t.not()+"@"+w.set(t)), tests[1:], do)
	}
}

func (t nftTest) not() string {
	if t.Not {
		return " != "
	}
	return " "
}

func texts(ranges []addrset.Range) []string {
	out := make([]string, len(ranges))
	for i, r := range ranges {
		out[i] = r.String()
	}
	return out
}

// set is one set of the family; an interval set where single addresses are not all.
func (w *nftText) set(t nftTest) string {
	name := w.nameOf(t, "")
	if w.named[name] {
		return name
	}
	w.named[name] = true
	flags := ""
	if slices.ContainsFunc(t.Set.Ranges(), func(r addrset.Range) bool { return r.From != r.To }) {
		flags = " flags interval;"
	}
	if t.counts {
		flags += " counter;"
	}
	fmt.Fprintf(&w.sets, "\tset %s { type ipv%d_addr;%s elements = { %s }; }\n", name, t.family, flags, Elements(t.Set.Ranges()))
	return name
}

// nameOf is a name for what belongs to the addresses of a test.
func (w *nftText) nameOf(t nftTest, kind string) string {
	name := identifier(t.Name)
	if name == "" {
		w.counted++
		name = fmt.Sprintf("group%d_", w.counted)
	}
	return fmt.Sprintf("%s%s%d", name, kind, t.family)
}

// identifier makes a name that all programs take.
func identifier(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '_':
			return r
		case r == '+': // between names, which do not have it
			return '.'
		}
		return '_'
	}, strings.ToLower(name))
}

// Elements writes ranges as nft reads them in a set, some on a line.
func Elements(ranges []addrset.Range) string {
	var b strings.Builder
	for i, r := range ranges {
		switch {
		case i > 0 && i%8 == 0:
			b.WriteString(",\n\t\t")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(r.String())
	}
	return b.String()
}

// then is where a member of a set goes: what is done, where nothing more is asked,
// else a chain that asks it.
func (w *nftText) then(rest []nftTest, do string) string {
	if len(rest) == 0 {
		return do
	}
	var body bytes.Buffer
	w.emit(&body, nil, rest, do)
	return "jump " + w.body("rest", body)
}

// body makes a chain of what was written.
func (w *nftText) body(kind string, body bytes.Buffer) string {
	w.counted++
	name := fmt.Sprintf("%s%d", kind, w.counted)
	fmt.Fprintf(&w.chains, "\tchain %s {\n%s\t}\n", name, body.Bytes())
	return name
}

// members has a rule for each member. The opposite is a chain that members leave.
func (w *nftText) members(to *bytes.Buffer, pre []string, t nftTest, members []string, rest []nftTest, do string) {
	do = w.then(rest, do)
	if !t.Not {
		before := strings.Join(append(slices.Clone(pre), t.key()), " ")
		for _, m := range members {
			fmt.Fprintf(to, "\t\t%s %s %s\n", before, m, do)
		}
		return
	}
	var body bytes.Buffer
	for _, m := range members {
		fmt.Fprintf(&body, "\t\t%s %s return\n", t.key(), m)
	}
	w.others(to, pre, t, body, do)
}

// others does something with those whom a chain does not send back.
func (w *nftText) others(to *bytes.Buffer, pre []string, t nftTest, chain bytes.Buffer, do string) {
	fmt.Fprintf(&chain, "\t\t%s\n", do)
	family := fmt.Sprintf("meta nfproto ipv%d", t.family) // nothing else asks for it
	w.emit(to, append([]string{family}, pre...), nil, "jump "+w.body("without", chain))
}

// per8 has a chain of rules for each /8 (of IPv6: for each first 16 bits), reached
// by a verdict map.
func (w *nftText) per8(to *bytes.Buffer, pre []string, t nftTest, rest []nftTest, do string) {
	do = w.then(rest, do)
	verb, member := "jump", do
	if t.Not {
		verb, member = "goto", "return" // back to where the set was asked
	}
	mask := mask(t.of(), blockBits(t.of()))
	w.counted++
	number := w.counted
	var jumps []string
	for _, b := range blocks(t.Set) {
		name := fmt.Sprintf("of%d_%s", number, b.name())
		fmt.Fprintf(&w.chains, "\tchain %s {\n", name)
		for _, p := range b.prefixes {
			fmt.Fprintf(&w.chains, "\t\t%s %s %s\n", t.key(), p, member)
		}
		if t.Not {
			fmt.Fprintf(&w.chains, "\t\t%s\n", do)
		}
		w.chains.WriteString("\t}\n")
		jumps = append(jumps, fmt.Sprintf("%s : %s %s", b.first, verb, name))
	}
	ask := fmt.Sprintf("%s & %s vmap { %s }", t.key(), mask, strings.Join(jumps, ", "))
	if !t.Not {
		fmt.Fprintf(to, "\t\t%s\n", strings.Join(append(slices.Clone(pre), ask), " "))
		return
	}
	var body bytes.Buffer
	fmt.Fprintf(&body, "\t\t%s\n", ask)
	w.others(to, pre, t, body, do)
}

// lengths has a hash set for each prefix length, asked one after the other.
func (w *nftText) lengths(to *bytes.Buffer, pre []string, t nftTest, rest []nftTest, do string) {
	byLength := map[int][]netip.Prefix{}
	for p := range t.Set.EachPrefix() {
		byLength[p.Bits()] = append(byLength[p.Bits()], p)
	}
	base := w.nameOf(t, "_by_")
	var asked []string
	for bits := range 129 {
		prefixes := byLength[bits]
		if len(prefixes) == 0 {
			continue
		}
		name := fmt.Sprintf("%s_%d", base, bits)
		if !w.named[name] {
			w.named[name] = true
			addresses := make([]addrset.Range, len(prefixes))
			for i, p := range prefixes {
				addresses[i] = addrset.Range{From: p.Addr(), To: p.Addr()}
			}
			fmt.Fprintf(&w.sets, "\tset %s { type ipv%d_addr; size %d; elements = { %s }; }\n", name, t.family, len(prefixes), Elements(addresses))
		}
		asked = append(asked, fmt.Sprintf("%s & %s @%s", t.key(), mask(t.of(), bits), name))
	}
	do = w.then(rest, do)
	if t.Not {
		var body bytes.Buffer
		for _, ask := range asked {
			fmt.Fprintf(&body, "\t\t%s return\n", ask)
		}
		w.others(to, pre, t, body, do)
		return
	}
	for _, ask := range asked {
		fmt.Fprintf(to, "\t\t%s\n", strings.Join(append(slices.Clone(pre), ask, do), " "))
	}
}

func mask(f addrset.Family, bits int) netip.Addr {
	all := netip.AddrFrom4([4]byte{255, 255, 255, 255})
	if f == addrset.IPv6 {
		all = netip.AddrFrom16([16]byte(bytes.Repeat([]byte{255}, 16)))
	}
	p, _ := all.Prefix(bits)
	return p.Addr()
}

// block is the prefixes of a set that begin alike.
type block struct {
	first    netip.Addr // the block's lowest address
	bits     int
	prefixes []netip.Prefix
}

// name is the block's number, of IPv6 in hexadecimal.
func (b block) name() string {
	a := b.first.AsSlice()
	if b.bits == 8 {
		return fmt.Sprint(a[0])
	}
	return fmt.Sprintf("%02x%02x", a[0], a[1])
}

// blockBits is how long the common beginning is.
func blockBits(f addrset.Family) int {
	if f == addrset.IPv6 {
		return 16
	}
	return 8
}

// blocks groups the prefixes of a set of one family. A prefix shorter than a block
// is in each that it covers.
func blocks(s addrset.Set) []block {
	var out []block
	at := map[netip.Addr]int{}
	add := func(first netip.Addr, bits int, p netip.Prefix) {
		i, there := at[first]
		if !there {
			i = len(out)
			at[first] = i
			out = append(out, block{first: first, bits: bits})
		}
		out[i].prefixes = append(out[i].prefixes, p)
	}
	for p := range s.EachPrefix() {
		bits := 8
		if p.Addr().Is6() {
			bits = 16
		}
		if p.Bits() >= bits {
			b, _ := p.Addr().Prefix(bits)
			add(b.Addr(), bits, p)
			continue
		}
		first := p.Addr().AsSlice()
		number := int(first[0])<<8 | int(first[1])
		step := 1
		if bits == 8 {
			step = 1 << 8
		}
		for i := range 1 << (bits - p.Bits()) {
			n := number + i*step
			first[0], first[1] = byte(n>>8), byte(n)
			a, _ := netip.AddrFromSlice(first)
			add(a, bits, netip.PrefixFrom(a, bits))
		}
	}
	slices.SortFunc(out, func(a, b block) int { return a.first.Compare(b.first) })
	return out
}
