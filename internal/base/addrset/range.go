package addrset

import (
	"fmt"
	"net/netip"
	"strings"
)

// Range is the addresses From to To, both included, of one family. From and To
// carry no zone and are not IPv4-mapped. Ranges made by [ParseRange], [NewRange]
// and the methods of [Set] are valid; [Builder.AddRange] panics on others.
type Range struct{ From, To netip.Addr }

// NewRange returns the range from, to. It fails when the addresses are invalid,
// of different families, IPv4-mapped, zoned or in reverse order.
func NewRange(from, to netip.Addr) (Range, error) {
	r := Range{from, to}
	if !r.IsValid() {
		return Range{}, fmt.Errorf("%s-%s is not a range of addresses", from, to)
	}
	return r, nil
}

// PrefixRange returns the addresses of a valid prefix, host bits ignored.
// An IPv4-mapped prefix of 96 bits or more becomes the IPv4 range it stands for.
func PrefixRange(p netip.Prefix) Range {
	p = p.Masked()
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	from := p.Addr()
	if from.Is4() {
		return Range{from, key4Of(from).fill(32 - p.Bits()).addr()}
	}
	return Range{from, key6Of(from).fill(128 - p.Bits()).addr()}
}

// IsValid reports whether r fulfils what the type promises.
func (r Range) IsValid() bool {
	for _, a := range [...]netip.Addr{r.From, r.To} {
		if !a.IsValid() || a.Zone() != "" {
			return false
		}
	}
	// A range may run over the mapped block, as the one of ::/0 does, but a
	// range within it is IPv4 in disguise.
	if r.From.Is4In6() && r.To.Is4In6() {
		return false
	}
	return r.From.BitLen() == r.To.BitLen() && r.From.Compare(r.To) <= 0
}

// Prefixes returns the fewest prefixes that cover r exactly, in order.
func (r Range) Prefixes() []netip.Prefix {
	var out []netip.Prefix
	r.eachPrefix(func(p netip.Prefix) bool {
		out = append(out, p)
		return true
	})
	return out
}

func (r Range) eachPrefix(yield func(netip.Prefix) bool) bool {
	if r.From.Is4() {
		return prefixes(r.span4(), yield)
	}
	return prefixes(r.span6(), yield)
}

// Prefix returns r as a prefix, and whether r is exactly one.
func (r Range) Prefix() (netip.Prefix, bool) {
	var first netip.Prefix
	n := 0
	r.eachPrefix(func(p netip.Prefix) bool {
		first = p
		n++
		return n < 2
	})
	if n != 1 {
		return netip.Prefix{}, false
	}
	return first, true
}

// String returns the shortest form that [ParseRange] reads: an address, a
// prefix, or from-to.
func (r Range) String() string {
	if r.From == r.To {
		return r.From.String()
	}
	if p, ok := r.Prefix(); ok {
		return p.String()
	}
	return r.From.String() + "-" + r.To.String()
}

func (r Range) span4() span[key4] { return span[key4]{key4Of(r.From), key4Of(r.To)} }
func (r Range) span6() span[key6] { return span[key6]{key6Of(r.From), key6Of(r.To)} }

// ParseError says why a text is not a range of addresses.
type ParseError struct {
	Text    string // what was given
	Problem string // what is wrong with it
	Hint    string // what to write instead; may be empty
}

// Error returns the problem and, on a line of its own, the hint.
func (e *ParseError) Error() string {
	if e.Hint == "" {
		return e.Problem
	}
	return e.Problem + "\nhint: " + e.Hint
}

// ParseRange reads an address, a prefix, or two addresses with a hyphen between
// them. Errors are of type [*ParseError].
func ParseRange(s string) (Range, error) {
	bad := func(hint, format string, args ...any) (Range, error) {
		return Range{}, &ParseError{Text: s, Problem: fmt.Sprintf(format, args...), Hint: hint}
	}
	if s == "" {
		return bad("write an address, a prefix such as 203.0.113.0/24, or a range such as 203.0.113.1-203.0.113.9", "address is empty")
	}
	if strings.ContainsAny(s, " \t\r\n") {
		if t := strings.Join(strings.Fields(s), ""); t != "" && t != s {
			if _, err := ParseRange(t); err == nil {
				return bad("write "+t, "%q has blanks in it", s)
			}
		}
		return bad("", "%q has blanks in it", s)
	}
	if addr, length, ok := strings.Cut(s, "/"); ok {
		return parsePrefix(s, addr, length)
	}
	first, last, ok := strings.Cut(s, "-")
	if !ok {
		a, err := parseAddr(s, s)
		return Range{a, a}, err
	}
	from, err := parseAddr(s, first)
	if err != nil {
		return Range{}, err
	}
	to, err := parseAddr(s, last)
	if err != nil {
		if whole := first[:strings.LastIndexAny(first, ".:")+1] + last; strings.Trim(last, "0123456789") == "" {
			if _, err := ParseRange(first + "-" + whole); err == nil {
				return bad("write "+first+"-"+whole, "%q is not an IP address", last)
			}
		}
		return Range{}, err
	}
	switch {
	case from.BitLen() != to.BitLen():
		return bad("give two addresses of one family", "range %s mixes IPv4 and IPv6", s)
	case from.Compare(to) > 0:
		return bad(fmt.Sprintf("write %s-%s", to, from), "range %s is reversed", s)
	}
	return Range{from, to}, nil
}

// MustParseRange is ParseRange of a text that is known to be right; it panics where it is not.
func MustParseRange(s string) Range {
	r, err := ParseRange(s)
	if err != nil {
		panic(err)
	}
	return r
}

func parsePrefix(s, addr, length string) (Range, error) {
	a, err := parseAddr(s, addr)
	if err != nil {
		return Range{}, err
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		problem := fmt.Sprintf("%q is not a prefix length from 0 to %d", length, a.BitLen())
		hint := ""
		if m, err := netip.ParseAddr(length); err == nil && m.Is4() && a.Is4() {
			if n, ok := maskLength(m); ok {
				hint = "write " + netip.PrefixFrom(a, n).Masked().String()
			}
		}
		return Range{}, &ParseError{Text: s, Problem: problem, Hint: hint}
	}
	if m := p.Masked(); m != p {
		return Range{}, &ParseError{
			Text:    s,
			Problem: fmt.Sprintf("prefix %s has bits set beyond its length", s),
			Hint:    fmt.Sprintf("write %s for the network or %s for the one address", m, a),
		}
	}
	return PrefixRange(p), nil
}

// maskLength returns the prefix length of a dotted netmask.
func maskLength(m netip.Addr) (int, bool) {
	host := ^key4Of(m)
	n := 32 - host.Next().TrailingZeros()
	if host == host.max() {
		n = 0
	}
	return n, key4(0).fill(32-n) == host
}

func parseAddr(s, addr string) (netip.Addr, error) {
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return netip.Addr{}, &ParseError{Text: s, Problem: fmt.Sprintf("%q is not an IP address", addr), Hint: addrHint(addr)}
	}
	if zone := a.Zone(); zone != "" {
		return netip.Addr{}, &ParseError{
			Text:    s,
			Problem: fmt.Sprintf("address %s has a zone", addr),
			Hint:    fmt.Sprintf("write %s and name the interface with a zone of the policy", a.WithZone("")),
		}
	}
	if a.Is4In6() {
		return netip.Addr{}, &ParseError{
			Text:    s,
			Problem: fmt.Sprintf("address %s is IPv4 in IPv6 notation", addr),
			Hint:    "write " + mappedAs4(s, a),
		}
	}
	return a, nil
}

// mappedAs4 returns the IPv4 form of s, in which the IPv4-mapped a was found.
func mappedAs4(s string, a netip.Addr) string {
	if p, err := netip.ParsePrefix(s); err == nil && p.Bits() >= 96 {
		return PrefixRange(p).String()
	}
	if first, last, ok := strings.Cut(s, "-"); ok {
		from, err1 := netip.ParseAddr(first)
		to, err2 := netip.ParseAddr(last)
		if err1 == nil && err2 == nil && to.Is4In6() {
			return from.Unmap().String() + "-" + to.Unmap().String()
		}
	}
	return a.Unmap().String()
}

// addrHint explains the usual ways to get an address wrong.
func addrHint(s string) string {
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		if a, err := netip.ParseAddr(s[1 : len(s)-1]); err == nil {
			return "write " + a.String() + " without brackets"
		}
	}
	parts := strings.Split(s, ".")
	if len(parts) != 4 {
		return ""
	}
	for i, p := range parts {
		if t := strings.TrimLeft(p, "0"); t != p && t != "" {
			parts[i] = t
		}
	}
	if a, err := netip.ParseAddr(strings.Join(parts, ".")); err == nil {
		return fmt.Sprintf("numbers with leading zeros are octal to some programs; write %s", a)
	}
	return ""
}

// Contains reports whether a is in r.
func (r Range) Contains(a netip.Addr) bool { return r.From.Compare(a) <= 0 && a.Compare(r.To) <= 0 }

// ContainsRange reports whether all of o is in r.
func (r Range) ContainsRange(o Range) bool {
	return r.From.Compare(o.From) <= 0 && o.To.Compare(r.To) <= 0
}

// Compare orders ranges as those of a set are: IPv4 first, then by where they begin.
func (r Range) Compare(o Range) int {
	if c := r.From.Compare(o.From); c != 0 {
		return c
	}
	return r.To.Compare(o.To)
}

// Holds reports whether r has at least as many addresses as a prefix of so many
// bits, of its own family.
func (r Range) Holds(bits4, bits6 int) bool {
	if r.From.Is4() {
		return uint64(r.span4().to-r.span4().from)+1 >= 1<<(32-bits4)
	}
	size := r.span6().to.Sub(r.span6().from)
	least := key6{}.fill(128 - bits6)
	return size.Compare(least) >= 0
}
