package nftables

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// What a program with large sets was lowered to is remembered as a whole, without
// what is in the living sets: their elements come and go, and decide nothing else
// of the tree. So one address more in a set file costs no layout.

// sideBySide is how many addresses may stand side by side in a living set and still
// be an element each, which is edited in place: a range that they would make is in a
// set that is replaced as a whole.
const sideBySide = 16

// singly takes the addresses of a living set apart: those that are elements of their
// own, and the ranges that are not.
func singly(ranges []addrset.Range) (singles, wide []addrset.Range) {
	var few []addrset.Range
	for _, r := range ranges {
		few = few[:0]
		for a := range single(r) {
			if few = append(few, addrset.Range{From: a, To: a}); len(few) > sideBySide {
				break
			}
		}
		if len(few) > sideBySide {
			wide = append(wide, r)
		} else {
			singles = append(singles, few...)
		}
	}
	return singles, wide
}

// filled says whether the single addresses of a set decide nothing but what is in
// the set of the kernel that layoutAddresses makes of them.
func filled(s *program.Set) bool {
	return s.Life == program.Living && !s.Counters && !s.Commands && !s.Verdicts && len(s.Elements) == 0 && len(s.Key) == 1 && isAddress(s.Key[0])
}

// lowered is a program as it is remembered.
type lowered struct {
	memory  Memory
	costs   *CostModel
	key     string
	program *program.Program
}

// remembered is the way to the memory of a program; nil where it is not worth it,
// or what the program is cannot be summed up.
func (n nftables) remembered(p *program.Program, can backend.Capabilities) *lowered {
	large := func(s program.Set) bool {
		return s.Life == program.Static && max(s.Addresses.Len4(), s.Addresses.Len6()) >= layoutFrom
	}
	if n.memory == nil || n.choices != nil || !slices.ContainsFunc(p.Sets, large) {
		return nil
	}
	program.RegisterActions()
	h := sha256.New()
	light := *p
	light.Sets = slices.Clone(p.Sets)
	for i := range light.Sets {
		s := &light.Sets[i]
		decides := s.Addresses
		if filled(s) {
			decides = addrset.Set{}
			for _, f := range families {
				_, wide := singly(inFamily(s.Addresses.Ranges(), f))
				decides = decides.Union(addrset.Of(wide...))
			}
		}
		counts := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(decides.Len4())), uint64(decides.Len6())) //nolint:gosec // not negative
		_, _ = h.Write(counts)                                                                                    // never fails, says package hash
		_ = decides.WriteRanges(h)
		s.Addresses = addrset.Set{}
	}
	if gob.NewEncoder(h).Encode(&light) != nil || json.NewEncoder(h).Encode(can) != nil {
		return nil
	}
	return &lowered{n.memory, n.costs, fmt.Sprintf("artifact of %x, costs %x", h.Sum(nil), n.costs.sum()), p}
}

// recall gives what the program was lowered to before; nil where it was not.
func (l *lowered) recall() *artifact {
	if l == nil {
		return nil
	}
	data, ok := l.memory.Get(l.key)
	if !ok {
		return nil
	}
	parts, err := backend.Split(data)
	if err != nil || len(parts) != 2 {
		return nil
	}
	a, err := decode(parts[0])
	if err != nil || json.Unmarshal(parts[1], &a.layouts) != nil {
		return nil
	}
	written, err := backend.Split(parts[0])
	if err != nil {
		return nil
	}
	for i, k := range a.Tree.Sets {
		if s := l.program.Set(k.ID); s != nil && filled(s) && k.Life == program.Living {
			singles, _ := singly(inFamily(s.Addresses.Ranges(), k.family()))
			k.Elements = elementsFrom(singles, false)
			if written[1+2*i], err = k.Elements.Addresses.MarshalBinary(); err != nil {
				return nil
			}
		}
	}
	a.written, a.costs = written, l.costs
	return a
}

// remember keeps what the program was lowered to.
func (l *lowered) remember(a *artifact) {
	if l == nil {
		return
	}
	empty, tree := *a, *a.Tree
	empty.Tree, tree.Sets = &tree, slices.Clone(tree.Sets)
	for i, k := range tree.Sets {
		if s := l.program.Set(k.ID); s != nil && filled(s) && k.Life == program.Living {
			without := *k
			without.Elements = Elements{}
			tree.Sets[i] = &without
		}
	}
	encoded, err := empty.Encode()
	if err != nil {
		return
	}
	if layouts, err := json.Marshal(a.layouts); err == nil {
		l.memory.Put(l.key, backend.Join(encoded, layouts))
	}
}

// family is that of a set with one address as key.
func (s *Set) family() int {
	if slices.ContainsFunc(s.Types, func(t string) bool { return strings.HasPrefix(t, addressType(6)) }) {
		return 6
	}
	return 4
}
