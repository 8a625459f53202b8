package apply

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"sluice/internal/backend"
	"sluice/internal/language/bans"
	"sluice/internal/system/kernel/nfset"
)

// Unasked is a set of bans by command that no rule asks, and that holds what no
// command banned: somebody else put it there. It does nothing, and the next ban of
// its family takes it out.
type Unasked struct {
	Set       string       `json:"set"`
	Addresses []netip.Addr `json:"addresses"` // the first ones alone
	Count     int          `json:"count"`
}

// unaskedBans finds what other hands put into sets of single addresses that no rule
// asks. Sets of ranges that are not asked may hold what was asked before.
func (s *session) unaskedBans(ctx context.Context, a backend.Artifact) ([]Unasked, error) {
	with, is := a.(backend.Commanded)
	if !is || a == nil {
		return nil, nil
	}
	c := with.Commands()
	if c == nil {
		return nil, nil
	}
	list, err := bans.Open(s.dir).Read()
	if err != nil {
		return nil, err
	}
	var out []Unasked
	for _, set := range c.Sets {
		if set.Ranges != backend.Neither || s.asked.Asks(set) {
			continue
		}
		// What a command banned and no rule asks is a difference.
		if exact, _ := wanted(list.Bans, set.Family, c.Never, s.now()); len(exact) > 0 {
			continue
		}
		conn, err := nfset.Open()
		if err != nil {
			return nil, err
		}
		have, err := dump(ctx, conn, setOf(c, set))
		_ = conn.Close()
		if err != nil {
			return nil, err
		}
		if len(have) > 0 {
			all := slices.SortedFunc(maps.Keys(have), netip.Addr.Compare)
			out = append(out, Unasked{Set: set.Name, Addresses: all[:min(len(all), maxShown)], Count: len(all)})
		}
	}
	return out, nil
}
