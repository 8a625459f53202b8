package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/program"
	"sluice/internal/system/host"
)

// Standing is how the host compares with what the running policy was loaded with.
type Standing struct {
	// Moved is what sets do not hold yet; Taken is what was applied since the
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
	out.Fixed = s.fixed(facts, true)
	follower, can := s.Backend.(backend.Follower)
	if !can || f.Mark != mark || len(f.Sets) == 0 {
		return out, nil
	}
	now := heldNow(facts, f.Sets, f.Held)
	out.Lost, out.Taken = lost(facts, now), f.Moves
	for _, set := range f.Sets {
		have, err := follower.Holds(ctx, set)
		if errors.Is(err, backend.ErrNotThere) {
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

// fixed is what the running rules name themselves and the host has otherwise by now;
// what it lacks only where that is asked for.
func (s *session) fixed(now *host.Facts, lacks bool) []string {
	g, err := s.generation(s.cur.Running)
	if err != nil || len(g.Facts) == 0 {
		return nil
	}
	var then host.Facts
	p, err := s.store.program(g)
	if err != nil || json.Unmarshal(g.Facts, &then) != nil || !then.Known {
		return nil
	}
	if len(now.DefaultRoute) == 0 {
		known := *now
		known.DefaultRoute = s.lastKnown()[program.DefaultRouteSet].Names
		now = &known
	}
	var out []string
	for _, r := range p.Rests {
		if r.Unbanned {
			out = append(out, nowBanned(p, &then, now)...)
		}
		for _, text := range changedRest(&r, &then, now, lacks) {
			if !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return out
}

// nowBanned names addresses of the host's that it had not when a program was made, and
// that the program bans.
func nowBanned(p *program.Program, then, now *host.Facts) (out []string) {
	had, _ := then.Addresses()
	banned := bannedBy(p).Difference(had)
	for _, a := range now.Own(nil) {
		if banned.Contains(a) {
			out = append(out, "the host got the banned address "+a.String())
		}
	}
	return out
}

// changedRest says what of the host is not any more what rules name; what it lacks only
// where that is asked for.
func changedRest(r *program.Rest, then, now *host.Facts, lacks bool) []string {
	var out []string
	changed := func(what, how string) {
		if how != "" {
			out = append(out, what+" changed ("+how+")")
		}
	}
	switch {
	case len(r.Devices) > 0:
		// Of what is gone altogether drift says so.
		had := slices.DeleteFunc(then.Devices(fitting(r.Devices, then.DefaultRoute)), func(name string) bool { return !now.Has(name) })
		changed("the interfaces that accelerate: true is for", cameAndWent(had, now.Devices(fitting(r.Devices, now.DefaultRoute)), lacks))
	case r.Beside.IsValid():
		changed("the networks beside "+r.Beside.String(), cameAndWent(then.Beside(r.Beside), now.Beside(r.Beside), lacks))
	case len(r.Kept) > 0 && lacks:
		for _, a := range gone(r.Kept, then, now) {
			out = append(out, "the host lost the address "+a.String()+" of a bypassed service")
		}
	case len(r.Spared) > 0 && lacks:
		for _, a := range gone(r.Spared, then, now) {
			out = append(out, "the host lost the banned address "+a.String())
		}
	case r.Named != "":
		if name := renamed(r.Named, then, now); name != "" {
			out = append(out, "the interface "+r.Named+", which the policy names, is now called "+name)
		}
	case r.NoBridge:
		for _, i := range now.Interfaces {
			if i.Kind == "bridge" {
				out = append(out, "the bridge "+i.Name+" appeared")
			}
		}
	}
	return out
}

// gone is the addresses among ranges that the host had and has not any more.
func gone(among []addrset.Range, then, now *host.Facts) []netip.Addr {
	return slices.DeleteFunc(then.Own(nil), func(a netip.Addr) bool {
		return slices.Contains(now.Own(nil), a) || !slices.ContainsFunc(among, func(r addrset.Range) bool { return r.Contains(a) })
	})
}

// renamed is what an interface is called that had a name; "" where it has it still, or is
// gone, as one of a tunnel or a telephone line may be.
func renamed(name string, then, now *host.Facts) string {
	i := slices.IndexFunc(then.Interfaces, func(i host.Interface) bool { return i.Name == name })
	if i < 0 || now.Has(name) {
		return ""
	}
	for _, other := range now.Interfaces {
		if other.Index == then.Interfaces[i].Index && !then.Has(other.Name) {
			return other.Name
		}
	}
	return ""
}

// cameAndWent is what is in one list alone.
func cameAndWent[T comparable](from, to []T, went bool) string {
	var parts []string
	for _, v := range to {
		if !slices.Contains(from, v) {
			parts = append(parts, fmt.Sprintf("+%v", v))
		}
	}
	for _, v := range from {
		if went && !slices.Contains(to, v) {
			parts = append(parts, fmt.Sprintf("-%v", v))
		}
	}
	return strings.Join(parts, ", ")
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
	s := h.session(st, cur)
	mark, err := s.mark(ctx)
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
