package nftables

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// asks notes the address that is asked for, which is one in the whole layout.
func (k *walker) asks(field program.Field) error {
	if k.field != "" && k.field != field {
		return errors.New("it matches parts of both addresses")
	}
	k.field = field
	return nil
}

// matching are the addresses of some that fit a condition.
func (k *walker) matching(s Statement, in addrset.Set) (addrset.Set, error) {
	var fit addrset.Set
	if field := addressField(s.Field); field != "" {
		if err := k.asks(field); err != nil {
			return fit, err
		}
		some, err := k.addresses(s)
		if err != nil {
			return fit, err
		}
		fit = in.Intersect(some)
	} else {
		values, err := k.values(s)
		if err != nil {
			return fit, err
		}
		var b addrset.Builder
		err = k.blocks(s.Field, in, func(value uint64, block addrset.Range) {
			if values[value] {
				b.AddRange(block)
			}
		})
		if err != nil {
			return fit, err
		}
		fit = b.Set()
	}
	if s.Op == "!=" {
		fit = in.Difference(fit)
	}
	return fit, nil
}

// addresses are those of a set or in the condition itself.
func (k *walker) addresses(s Statement) (addrset.Set, error) {
	if s.Set == "" {
		var b addrset.Builder
		for _, v := range s.Values {
			r, err := addrset.ParseRange(v)
			if err != nil {
				return addrset.Set{}, err
			}
			b.AddRange(r)
		}
		return b.Set(), nil
	}
	set := k.tree.set(s.Set)
	switch {
	case set == nil:
		return addrset.Set{}, fmt.Errorf("there is no set %s", s.Set)
	case set.Life == program.Dynamic || set.Elements.Unknown || set.Asks || len(set.Elements.Counters)+len(set.Elements.Tuples) > 0:
		return addrset.Set{}, errUnread
	}
	return set.Elements.all(), nil
}

// values are those of a set of parts or in the condition itself.
func (k *walker) values(s Statement) (map[uint64]bool, error) {
	texts := s.Values
	if s.Set != "" {
		set := k.tree.set(s.Set)
		if set == nil {
			return nil, fmt.Errorf("there is no set %s", s.Set)
		}
		if set.Elements.Unknown || set.Asks || set.Life == program.Dynamic || !set.Elements.all().IsEmpty() {
			return nil, errUnread
		}
		texts = set.Elements.Tuples
	}
	out := make(map[uint64]bool, len(texts))
	for _, text := range texts {
		n, ok := parseNumberValue(text)
		if !ok || n.To-n.From > math.MaxUint16 {
			return nil, fmt.Errorf("the value %q is not a number", text)
		}
		for v := n.From; ; v++ {
			out[v] = true
			if v == n.To {
				break
			}
		}
	}
	return out, nil
}

// each gives what a verdict map does with addresses: those of one verdict
// together.
func (k *walker) each(s Statement, in addrset.Set, verdict func(Statement, addrset.Set) error) error {
	verdicts := map[uint64]string{}
	add := func(text, verdict string) error {
		n, err := strconv.ParseUint(text, 10, 64)
		verdicts[n] = verdict
		return err
	}
	for text, v := range s.Map {
		if err := add(text, v); err != nil {
			return err
		}
	}
	if s.Set != "" {
		set := k.tree.set(s.Set)
		if set == nil || set.Elements.Unknown || set.Asks || len(set.Elements.Verdicts) != len(set.Elements.Tuples) {
			return errUnread
		}
		for i, text := range set.Elements.Tuples {
			if err := add(text, set.Elements.Verdicts[i]); err != nil {
				return err
			}
		}
	}
	found := map[string]*addrset.Builder{}
	err := k.blocks(s.Field, in, func(value uint64, block addrset.Range) {
		v, is := verdicts[value]
		if !is {
			return
		}
		if found[v] == nil {
			found[v] = &addrset.Builder{}
		}
		found[v].AddRange(block)
	})
	if err != nil {
		return err
	}
	for text, where := range found {
		v, err := verdictOf(text)
		if err != nil {
			return err
		}
		to := Statement{Kind: Verdict, Name: text}
		if verb, _, leads := strings.Cut(text, " "); leads {
			to = Statement{Kind: Kind(verb), Name: v.Chain}
		}
		if err := verdict(to, where.Set()); err != nil {
			return err
		}
	}
	return nil
}

// blocks cuts addresses where a part of them changes, and gives each block with the
// part's value.
func (k *walker) blocks(field string, in addrset.Set, give func(value uint64, block addrset.Range)) error {
	f, p, ok := partOf(field, k.family)
	if !ok {
		return errors.New("a part of the header that is not part of an address")
	}
	if err := k.asks(f); err != nil {
		return err
	}
	end := p.at + p.width // of an address's bits from the left
	for _, s := range spansOf(in, k.family) {
		for at := s.from; ; {
			if k.work++; k.work > maxWork {
				return errTooMuch
			}
			last := at.filled(end)
			if s.to.less(last) {
				last = s.to
			}
			give(at.bits(p), addrset.Range{From: at.address(k.family), To: last.address(k.family)})
			if last == s.to {
				break
			}
			at = last.next()
		}
	}
	return nil
}

// filled is the last position that has the same first n bits.
func (a position) filled(n int) position {
	switch {
	case n >= 128:
		return a
	case n >= 64:
		return position{a.hi, a.lo | ^uint64(0)>>(n-64)}
	}
	return position{a.hi | ^uint64(0)>>n, math.MaxUint64}
}

// bits are those of a part, which is at most 64 wide.
func (a position) bits(p part) uint64 {
	v := a
	if p.at >= 64 {
		v = position{a.lo << (p.at - 64), 0}
	} else if p.at > 0 {
		v = position{a.hi<<p.at | a.lo>>(64-p.at), 0}
	}
	return v.hi >> (64 - p.width)
}
