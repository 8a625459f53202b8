package classes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/system/host"
)

// outline is what is known of a host with its addresses apart: hosts of the same text differ in
// these alone.
type outline struct {
	text     string
	prefixes []netip.Prefix // by the numbers that the text has in their place
}

// outlineOf tells the text of facts from their addresses. Sizes are as powers of two.
func outlineOf(f *host.Facts) outline {
	of := *f
	for _, n := range []*uint64{&of.MemoryBytes, &of.ConntrackMax, &of.ConntrackBuckets} {
		*n = uint64(bits.Len64(*n))
	}
	of.Namespace = "" // names tables, and no packet
	of.Interfaces = slices.Clone(of.Interfaces)
	for i := range of.Interfaces {
		of.Interfaces[i].Index = 0 // of no meaning to a policy
	}
	data, err := json.Marshal(of)
	if err != nil {
		panic(err) // they came from JSON
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		panic(err)
	}
	o := outliner{numbers: map[netip.Prefix]int{}}
	o.write(tree)
	return outline{o.text.String(), o.prefixes}
}

type outliner struct {
	text     strings.Builder
	numbers  map[netip.Prefix]int
	prefixes []netip.Prefix
}

func (o *outliner) write(n any) {
	switch v := n.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			o.text.WriteString(strconv.Quote(key) + ":")
			o.write(v[key])
		}
		o.text.WriteByte(';')
	case []any:
		for _, e := range v {
			o.write(e)
		}
		o.text.WriteByte(';')
	case string:
		if p, err := netip.ParsePrefix(v); err == nil {
			o.address(p)
		} else if a, err := netip.ParseAddr(v); err == nil {
			o.address(netip.PrefixFrom(a, a.BitLen()))
		} else if at, err := netip.ParseAddrPort(v); err == nil {
			o.address(netip.PrefixFrom(at.Addr(), at.Addr().BitLen()))
			fmt.Fprintf(&o.text, "%d,", at.Port())
		} else {
			o.text.WriteString(strconv.Quote(v) + ",")
		}
	default:
		fmt.Fprintf(&o.text, "%v,", v)
	}
}

func (o *outliner) address(p netip.Prefix) {
	number, known := o.numbers[p]
	if !known {
		number = len(o.prefixes)
		o.numbers[p] = number
		o.prefixes = append(o.prefixes, p)
	}
	fmt.Fprintf(&o.text, "@%d,", number)
}

// symbols are all that a policy can tell addresses apart by.
type symbols struct {
	sets  []addrset.Set
	known map[netip.Prefix]string

	addresses, public addrset.Set // that guests may have
	fleet             *policy.Fleet
}

// ownGuests is the set of a host's own guests, which all of them are in.
const ownGuests = "guests"

// symbolsOf collects them of a policy whose names are resolved. What is in the inventory
// is what guests of the host have, and tells them apart from no others.
func symbolsOf(r *resolve.Resolved, inventory string) *symbols {
	s := &symbols{known: map[netip.Prefix]string{}}
	s.addresses, s.public = r.Policy.GuestBounds()
	s.fleet = r.Policy.Fleet
	of := *r.Policy
	of.Sets, of.Zones, of.Fleet = nil, nil, nil
	names, literals := map[string]bool{}, map[addrset.Range]bool{}
	asked(reflect.ValueOf(of), inventory, names, literals)
	delete(names, ownGuests)
	for name := range r.Zones {
		names[name] = true // where its interfaces are asked for, its networks are too
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if set := r.Sets[name]; set != nil {
			s.sets = append(s.sets, set.Addresses)
			for _, e := range set.Endpoints {
				literals[e.Address] = true
			}
		}
		if zone := r.Zones[name]; zone != nil && zone.HasNetworks {
			s.sets = append(s.sets, zone.Networks)
		}
	}
	sorted := slices.SortedFunc(maps.Keys(literals), addrset.Range.Compare)
	for _, l := range sorted {
		s.sets = append(s.sets, addrset.Of(l))
	}
	return s
}

// asked collects the names and the literal addresses that are in a policy, except for those of
// the inventory.
func asked(v reflect.Value, inventory string, names map[string]bool, literals map[addrset.Range]bool) {
	switch v.Kind() { //nolint:exhaustive // of the kinds that a policy is made of
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			asked(v.Elem(), inventory, names, literals)
		}
	case reflect.Slice:
		for i := range v.Len() {
			asked(v.Index(i), inventory, names, literals)
		}
	case reflect.Struct:
		switch x := interfaceOf(v).(type) {
		case addrset.Range:
			if x.IsValid() {
				literals[x] = true
			}
			return
		case policy.Range:
			if x.Pos.File == inventory {
				return
			}
		case policy.Word:
			names[x.Text] = true
			return
		case policy.WhoItem:
			if x.Name != "" {
				names[x.Name] = true
				return
			}
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				asked(v.Field(i), inventory, names, literals)
			}
		}
	}
}

func interfaceOf(v reflect.Value) any {
	if v.CanInterface() {
		return v.Interface()
	}
	return nil
}

// of says all that matters of an address, or of a network.
func (s *symbols) of(p netip.Prefix) string {
	if text, known := s.known[p]; known {
		return text
	}
	a, r := p.Addr(), addrset.PrefixRange(p.Masked())
	in := make([]byte, 0, len(s.sets))
	for _, set := range s.sets {
		switch one := set.Contains(a); {
		case r.From == r.To && one, r.From != r.To && set.ContainsSet(addrset.Of(r)):
			in = append(in, '1')
		case r.From == r.To, !set.Overlaps(addrset.Of(r)):
			in = append(in, '0')
		case one:
			in = append(in, '+')
		default:
			in = append(in, '-')
		}
	}
	s.known[p] = fmt.Sprintf("%s/%d/%d%t%t%t%t%t%t", in, a.BitLen(), p.Bits(),
		a.IsUnspecified(), a.IsLoopback(), a.IsLinkLocalUnicast(), a.IsMulticast(), a.Is4In6(), p == p.Masked())
	return s.known[p]
}

// host says all that matters of a host's addresses.
func (s *symbols) host(o *outline) string {
	var b strings.Builder
	for _, p := range o.prefixes {
		b.WriteString(s.of(p))
		for i, q := range o.prefixes {
			if q.Bits() < p.Bits() && q.Bits() > 0 && q.Contains(p.Addr()) {
				fmt.Fprintf(&b, "<%d", i)
			}
		}
		b.WriteByte(',')
	}
	return b.String()
}

// guests says all that matters of the guests of a host: of each kind, whether there is one or
// are more.
func (s *symbols) guests(list []policy.Guest) string {
	count := map[string]int{}
	for i := range list {
		kinds := []string{fmt.Sprint(within(s.addresses, list[i].Addresses), within(s.public, list[i].Public), s.fleet.Attaches(&list[i]))}
		for _, r := range slices.Concat(list[i].Addresses, list[i].Public) {
			for _, p := range r.Range.Prefixes() {
				kinds = append(kinds, s.of(p))
			}
		}
		count[fmt.Sprint(len(list[i].Addresses), kinds)]++
	}
	var b strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(count)) {
		fmt.Fprintf(&b, "%s*%d;", kind, min(count[kind], 2))
	}
	return b.String()
}

func within(all addrset.Set, ranges []policy.Range) bool {
	return !slices.ContainsFunc(ranges, func(r policy.Range) bool { return !all.ContainsSet(addrset.Of(r.Range)) })
}
