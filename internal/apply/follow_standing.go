package apply

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/host"
	"sluice/internal/kernel/nfset"
	"sluice/internal/program"
)

// Standing is how the host compares with what the running policy was loaded with.
type Standing struct {
	// Moved is what sets do not hold yet; Taken is what was brought in since the
	// generation was loaded.
	Moved []Move `json:"moved,omitempty"`
	Taken []Move `json:"taken,omitempty"`
	// Fixed is what rules name themselves and the host has otherwise by now: only an
	// apply takes it in.
	Fixed []string `json:"fixed,omitempty"`
	// Lost: there is no default route, and these interfaces are taken for its own.
	Lost []string `json:"lost,omitempty"`
}

// standing compares the kernel's sets with the host as it is.
func (s *session) standing(ctx context.Context, mark string) (out Standing, err error) {
	f, err := s.followed()
	if err != nil {
		return out, err
	}
	facts, err := s.sides()
	if err != nil {
		return out, err
	}
	out.Fixed = s.fixed(facts)
	follower, can := s.Backend.(backend.Follower)
	if !can || f.Mark != mark || len(f.Sets) == 0 {
		return out, nil
	}
	now := heldNow(facts, f.Sets, f.Held)
	out.Lost, out.Taken = lost(facts, now), f.Moves
	for _, set := range f.Sets {
		have, err := follower.Holds(ctx, set)
		if errors.Is(err, nfset.ErrNoSet) {
			continue // drift says so
		}
		if err != nil {
			return out, err
		}
		// What somebody else put there is drift, whatever the host is.
		if want := now[set.ID]; !have.Equal(want) && have.Equal(set.Part(f.Held[set.ID])) {
			out.Moved = append(out.Moved, Move{Set: set.ID, From: have, To: want})
		}
	}
	return out, nil
}

// fixed is what the running rules name themselves and the host has otherwise by now.
func (s *session) fixed(now *host.Facts) []string {
	g, err := s.generation(s.cur.Running)
	if err != nil || len(g.Facts) == 0 {
		return nil
	}
	var then host.Facts
	p, err := s.store.program(g)
	if err != nil || json.Unmarshal(g.Facts, &then) != nil || !then.Known {
		return nil
	}
	var out []string
	for _, r := range p.Rests {
		var text string
		switch {
		case r.Own != nil:
			m := Move{Set: program.OwnPrefix, From: program.Held{Addresses: ownAddresses(&then, *r.Own, then.DefaultRoute)}, To: program.Held{Addresses: ownAddresses(now, *r.Own, now.DefaultRoute)}}
			known := len(now.DefaultRoute) > 0 || !slices.Contains(r.Own.Interfaces, program.DefaultRoute)
			if known && !m.From.Equal(m.To) {
				text = "the addresses that a redirect is on changed (" + m.changed() + ")"
			}
		case len(r.Kept) > 0:
			for _, a := range ownAddresses(&then, program.Following{}, nil) {
				kept := slices.ContainsFunc(r.Kept, func(k program.AddressRange) bool { return k.From.Compare(a) <= 0 && a.Compare(k.To) <= 0 })
				if kept && !slices.Contains(ownAddresses(now, program.Following{}, nil), a) {
					text = "the host lost the address " + a.String() + " of a bypassed service"
				}
			}
		default:
			for _, i := range now.Interfaces {
				if i.Kind == "bridge" {
					text = "the bridge " + i.Name + " appeared"
				}
			}
		}
		if text != "" && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// Standing compares, without the lock, the kernel's sets with the host as it is. Where
// there is no state, or it may not be read, there is nothing to compare.
func (h *Host) Standing(ctx context.Context) (generation int, out Standing, err error) {
	if readable := needRoot() == nil; !readable || !h.known() {
		return 0, out, nil
	}
	st, cur, err := h.peek()
	if err != nil || cur.Running == 0 {
		return 0, out, err
	}
	s := &session{Host: h, store: st, cur: cur}
	mark, err := s.Kernel.Mark(ctx)
	if err == nil {
		out, err = s.standing(ctx, mark)
	}
	return cur.Running, out, err
}

// withoutMoves leaves out of what differs the sets that the host has moved away from.
func (st Standing) withoutMoves(list []backend.Difference) []backend.Difference {
	return slices.DeleteFunc(list, func(d backend.Difference) bool {
		name, _, _ := strings.Cut(d.Name, " (")
		return d.Kind == "element" && slices.ContainsFunc(st.Moved, func(m Move) bool { return m.Set == name })
	})
}
