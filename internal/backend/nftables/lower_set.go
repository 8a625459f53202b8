package nftables

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strings"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/base/sorting"
	"sluice/internal/program"
)

// parts is what a set of the program became. A key is in the set when it is in
// one of the parts of its family.
type parts struct {
	set    *program.Set
	byFam  map[int][]*Set // 4, 6; 0 for sets without an address
	masked bool           // keys are cut by keyMask
	laid   map[int]*laid  // families that are laid out in chains; byFam has none of these until a rule needs it
}

// families of addresses, in the order in which things stand.
var families = []int{4, 6}

// sourceMask takes of an IPv6 source what stands for it: a host that has one
// address of a network of 64 bits has them all.
const sourceMask = "ffff:ffff:ffff:ffff::"

// keyMask is what takes of an address what stands for it in a set that the kernel fills.
func keyMask(id string, family int) string {
	switch wide := program.IsWide(id); {
	case wide && family == 4:
		return "255.255.255.0"
	case wide:
		return "ffff:ffff:ffff::"
	case family == 6:
		return sourceMask
	}
	return ""
}

func (l *lowering) sets() {
	for i := range l.program.Sets {
		s := &l.program.Sets[i]
		if l.parts[s.ID] != nil {
			l.failed = fmt.Errorf("duplicate set %s", s.ID)
			return
		}
		p := &parts{set: s, byFam: map[int][]*Set{}, laid: l.laid[s.ID]}
		l.parts[s.ID] = p
		if err := l.layoutSet(p); err != nil {
			l.failed = fmt.Errorf("set %s: %w", s.ID, err)
			return
		}
		for _, f := range []int{0, 4, 6} {
			l.tree.Sets = append(l.tree.Sets, p.byFam[f]...)
		}
	}
}

func (l *lowering) layoutSet(p *parts) error {
	s := p.set
	switch {
	case mapped(s):
		return l.layoutTuples(p)
	case s.Life == program.Followed:
		return l.layoutFollowed(p)
	case len(s.Key) == 1 && isAddress(s.Key[0]):
		if s.Commands {
			l.layoutCommands(p)
			return nil
		}
		if s.Others {
			layoutOthers(p)
			return nil
		}
		if s.Life == program.Dynamic {
			p.masked = true
			l.layoutDynamic(p)
			return nil
		}
		return l.layoutAddresses(p)
	case s.Life == program.Dynamic:
		return l.layoutDynamicTuples(p)
	}
	return l.layoutTuples(p)
}

func isAddress(f program.Field) bool {
	switch f {
	case program.Source, program.Destination, program.OriginalSource, program.OriginalDestination:
		return true
	}
	return false
}

func addressType(family int) string { return fmt.Sprintf("ipv%d_addr", family) }

// layoutDynamic makes the sets that the kernel fills. Their names end in a hash
// of the layout, since the kernel does not change the layout of a set.
func (l *lowering) layoutDynamic(p *parts) {
	for _, f := range families {
		k := &Set{
			ID: p.set.ID, Life: program.Dynamic, Types: []string{addressType(f)}, Size: p.set.Size,
			Counted: p.set.Counters && l.can[backend.SetElementCounters] != backend.No,
			Timeout: (p.set.Timeout + 999) / 1000 * 1000, // nft lists whole seconds
			Comment: describe(p.set, f, "filled by the kernel"), Origin: p.set.Origin,
		}
		sum := sha256.Sum256([]byte(k.definition()))
		k.Name = fmt.Sprintf("%s_v%d_%s", stem(p.set.ID), f, hex.EncodeToString(sum[:4]))
		p.byFam[f] = []*Set{k}
	}
}

// layoutDynamicTuples makes a set that the kernel fills of keys without an address.
func (l *lowering) layoutDynamicTuples(p *parts) error {
	k := &Set{
		ID: p.set.ID, Life: program.Dynamic, Size: p.set.Size,
		Counted: p.set.Counters && l.can[backend.SetElementCounters] != backend.No,
		Timeout: (p.set.Timeout + 999) / 1000 * 1000,
		Comment: describe(p.set, 0, "filled by the kernel"), Origin: p.set.Origin,
	}
	for _, f := range p.set.Key {
		if keyTypes[f] == "" {
			return fmt.Errorf("%s cannot be part of the key of a set that the kernel fills", f)
		}
		k.Types = append(k.Types, keyTypes[f])
	}
	sum := sha256.Sum256([]byte(k.definition()))
	k.Name = stem(p.set.ID) + "_" + hex.EncodeToString(sum[:4])
	p.byFam[0] = []*Set{k}
	return nil
}

func describe(s *program.Set, family int, what string) string {
	text := s.ID
	if family != 0 {
		text += fmt.Sprintf(", IPv%d", family)
	}
	if what != "" {
		text += ": " + what
	}
	if s.Origin.File != "" {
		text += " (" + origin(program.Origin{File: s.Origin.File, Line: s.Origin.Line}, "") + ")"
	}
	return text
}

// layoutAddresses makes the sets of one address key. Ranges need an interval
// set; single addresses alone are a hash set, which costs a tenth to ask. Of a
// living set single addresses and ranges are kept apart: the former are edited
// in place, the latter replaced as a whole.
func (l *lowering) layoutAddresses(p *parts) error {
	s := p.set
	counted := s.Counters && l.can[backend.SetElementCounters] != backend.No
	if s.Life == program.Static && !counted {
		l.layoutPlain(p)
		return nil
	}
	ranges, err := elementsOf(s, counted)
	if err != nil {
		return err
	}
	for _, f := range families {
		if l.laid[s.ID][f] != nil {
			continue
		}
		mine := inFamily(ranges, f)
		var singles, wide []addrset.Range
		switch {
		case s.Expires:
			p.byFam[f] = expiring(s, f)
			continue
		case s.Life == program.Living && !counted:
			singles, wide = singly(mine)
		default:
			for _, r := range mine {
				if r.From == r.To {
					singles = append(singles, r)
				} else {
					wide = append(wide, r)
				}
			}
		}
		n := stem(s.ID)
		if s.Life == program.Living {
			exact := &Set{
				Name: fmt.Sprintf("%s_v%d", n, f), ID: s.ID, Life: program.Living, Types: []string{addressType(f)}, Counted: counted,
				Elements: elementsFrom(singles, counted), Comment: describe(s, f, "exact addresses, edited in place"), Origin: s.Origin,
			}
			if counted {
				exact.Name += "_counted"
			}
			p.byFam[f] = []*Set{exact}
			if len(wide) > 0 {
				p.byFam[f] = append(p.byFam[f], static(s, f, n+"_net", elementsFrom(wide, counted), counted))
			}
			continue
		}
		if all := len(singles) + len(wide); all > 0 {
			p.byFam[f] = []*Set{static(s, f, n, elementsFrom(mine, counted), counted)}
		}
	}
	return nil
}

// layoutPlain makes the sets of addresses that carry nothing, of which there may
// be a million: they stay as they are.
func (l *lowering) layoutPlain(p *parts) {
	all := allAddresses(p.set)
	for family, one := range map[int]addrset.Set{4: all.Only4(), 6: all.Only6()} {
		if l.laid[p.set.ID][family] != nil {
			continue
		}
		if !one.IsEmpty() {
			p.byFam[family] = []*Set{static(p.set, family, stem(p.set.ID), Elements{Addresses: one}, false)}
		}
	}
}

func inFamily(ranges []addrset.Range, family int) []addrset.Range {
	var out []addrset.Range
	for _, r := range ranges {
		if r.From.Is4() == (family == 4) {
			out = append(out, r)
		}
	}
	return out
}

// static makes a set whose elements never change.
func static(s *program.Set, family int, prefix string, elements Elements, counted bool) *Set {
	k := &Set{
		ID: s.ID, Life: program.Static, Types: []string{addressType(family)}, Counted: counted,
		Interval: hasRanges(elements.Addresses) || slices.ContainsFunc(elements.Ranges, func(r addrset.Range) bool { return r.From != r.To }),
		Elements: elements, Origin: s.Origin,
	}
	k.Comment = describe(s, family, english.Plural(elements.Len(), "element"))
	k.Name = prefix + fmt.Sprint(family) + "_" + k.sealed()
	return k
}

// network is the one address or network of a set that never changes: a rule
// compares it in less time than it looks it up.
func (s *Set) network() (string, bool) {
	if a := s.Elements.Addresses; s.Life != program.Static || s.Expires || a.Len4()+a.Len6() != 1 {
		return "", false
	}
	value := addressValues(s.Elements.Addresses)[0]
	return value, !strings.Contains(value, "-") && !strings.HasSuffix(value, "/0")
}

func hasRanges(s addrset.Set) bool {
	for r := range s.Each() {
		if r.From != r.To {
			return true
		}
	}
	return false
}

func elementsFrom(ranges []addrset.Range, counted bool) Elements {
	if counted {
		return Elements{Ranges: ranges}
	}
	return Elements{Addresses: addrset.Of(ranges...)}
}

// sealed is the hash of a set whose elements never change. Where it has no
// ranges the kernel is told how many they are, and keeps them in a table of that
// size (nft_hash_select_ops of net/netfilter/nft_set_hash.c) instead of one that
// grows: quicker to fill and to ask.
func (s *Set) sealed() string {
	if !s.Interval {
		s.Size = s.Len()
	}
	return s.hash()
}

// hash is 64 bits of everything that the set is, in hexadecimal digits.
func (s *Set) hash() string {
	h := sha256.New()
	b := append(make([]byte, 0, hashedAtOnce), s.definition()...)
	b = append(b, '\n')
	for r := range s.ranges() {
		b = appendAddress(appendAddress(b, r.From), r.To)
		b = flush(h, b)
	}
	for _, e := range s.Elements.Ends {
		b = flush(h, append(e.Until.UTC().AppendFormat(b, time.RFC3339Nano), '\n'))
	}
	for i, t := range s.Elements.Tuples {
		b = append(append(b, t...), '\n')
		if s.Verdicts {
			b = append(append(b, s.Elements.Verdicts[i]...), '\n')
		}
		b = flush(h, b)
	}
	for _, element := range slices.Sorted(maps.Keys(s.Elements.Counters)) {
		b = append(append(append(append(b, element...), ' '), s.Elements.Counters[element]...), '\n')
		b = flush(h, b)
	}
	_, _ = h.Write(b) // never fails, says package hash
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// hashedAtOnce is how many bytes are hashed at once.
const hashedAtOnce = 4096

// flush hashes what has come together, where it is enough.
func flush(h hash.Hash, b []byte) []byte {
	if len(b) < hashedAtOnce-512 {
		return b
	}
	_, _ = h.Write(b) // never fails, says package hash
	return b[:0]
}

// allAddresses is everything in a set of one address key.
func allAddresses(s *program.Set) addrset.Set {
	if len(s.Elements) == 0 {
		return s.Addresses
	}
	var b addrset.Builder
	for _, e := range s.Elements {
		b.AddRange(addrset.Range{From: e.Parts[0].Addresses.From, To: e.Parts[0].Addresses.To})
	}
	return b.Set().Union(s.Addresses)
}

// elementsOf gives the elements as the kernel holds them. Elements that are
// counted stay as they were written, as far as they do not overlap; the others
// are merged.
func elementsOf(s *program.Set, counted bool) ([]addrset.Range, error) {
	if !counted {
		return allAddresses(s).Ranges(), nil
	}
	out := s.Addresses.Ranges()
	for _, e := range s.Elements {
		r, err := addrset.NewRange(e.Parts[0].Addresses.From, e.Parts[0].Addresses.To)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	sorting.By(out, func(a, b addrset.Range) int {
		if c := a.From.Compare(b.From); c != 0 {
			return c
		}
		return b.To.Compare(a.To)
	})
	kept := out[:0]
	for _, r := range out {
		if n := len(kept); n > 0 && kept[n-1].From.BitLen() == r.From.BitLen() && r.From.Compare(kept[n-1].To) <= 0 {
			if r.To.Compare(kept[n-1].To) <= 0 {
				continue
			}
			r.From = kept[n-1].To.Next()
		}
		kept = append(kept, r)
	}
	return kept, nil
}

// keyTypes are nft's types of what a set's key may be made of.
var keyTypes = map[program.Field]string{
	program.Protocol: "inet_proto", program.Port: "inet_service", program.SourcePort: "inet_service",
	program.InInterface: "ifname", program.OutInterface: "ifname", program.Mark: "mark", program.OriginalPort: "inet_service",
}

// errProtocolOfRanges: for the one byte of a protocol in a key with ranges, nft
// 1.0.6 writes a byteorder of size 2 over 1 byte, which Linux 6.12.117 refuses.
var errProtocolOfRanges = errors.New("a set with ranges cannot have the protocol as a part of its key")

// apart makes elements that differ in the address alone disjoint, since the
// kernel takes no overlapping ones.
func apart(key []program.Field, elements []string) []string {
	at := slices.IndexFunc(key, isAddress)
	if at < 0 {
		return elements
	}
	groups := map[string]*addrset.Builder{}
	for _, e := range elements {
		parts := strings.Split(e, " . ")
		r, err := addrset.ParseRange(parts[at])
		if err != nil {
			return elements
		}
		parts[at] = "%s"
		pattern := strings.Join(parts, " . ")
		if groups[pattern] == nil {
			groups[pattern] = &addrset.Builder{}
		}
		groups[pattern].AddRange(r)
	}
	var out []string
	for pattern, b := range groups {
		for r := range b.Set().Each() {
			out = append(out, strings.Replace(pattern, "%s", r.String(), 1))
		}
	}
	return out
}

func tuplePart(f program.Field, v program.Value) (text string, family int, wide bool, err error) {
	switch {
	case isAddress(f):
		r, err := addrset.NewRange(v.Addresses.From, v.Addresses.To)
		if err != nil {
			return "", 0, false, err
		}
		family = 6
		if r.From.Is4() {
			family = 4
		}
		return r.String(), family, r.From != r.To, nil
	case keyTypes[f] == "ifname":
		if !validInterface(v.Name) || strings.HasSuffix(v.Name, "*") {
			return "", 0, false, fmt.Errorf("%q is not the name of an interface", v.Name)
		}
		return v.Name, 0, false, nil
	}
	return numberValue(v.Numbers), 0, v.Numbers.From != v.Numbers.To, nil
}
