package apply

import (
	"context"
	"net/netip"

	"sluice/internal/backend"
)

// Unasked is a set of bans by command that no rule asks, and that holds what no
// command banned: somebody else put it there. It does nothing, and the next ban of
// its family takes it out.
type Unasked struct {
	Set       string       `json:"set"`
	Addresses []netip.Addr `json:"addresses"` // the first ones alone
	Count     int          `json:"count"`
}

// unaskedBans finds what other hands put where no rule asks for single addresses.
func (s *session) unaskedBans(ctx context.Context, a backend.Artifact) ([]Unasked, error) {
	store := s.banStore(a)
	if store == nil {
		return nil, nil
	}
	list, err := s.banJournal.Read()
	if err != nil {
		return nil, err
	}
	found, err := store.Unasked(ctx, wanted(list, store.Never(), s.now()))
	var out []Unasked
	for _, u := range found {
		out = append(out, Unasked{Set: u.Set, Addresses: u.Addresses[:min(len(u.Addresses), maxShown)], Count: len(u.Addresses)})
	}
	return out, err
}
