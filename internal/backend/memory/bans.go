package memory

import (
	"context"
	"encoding/json"
	"net/netip"
	"reflect"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
)

// banStore is what a Backend holds of bans.
type banStore struct {
	b     *Backend
	room  bool
	asked bool // by the rules
	never addrset.Set
}

type encodedStore struct {
	Room  bool   `json:"room"`
	Asked bool   `json:"asked"`
	Never []byte `json:"never"`
}

// BanStore is that of an artifact.
func (b *Backend) BanStore(a backend.Artifact, like backend.BanStore) backend.BanStore {
	s := &banStore{b: b}
	if other, is := like.(*banStore); is {
		s.asked = other.asked
	}
	if own, is := a.(*artifact); is {
		for _, set := range own.program.Sets {
			if set.Commands {
				s.room, s.never = true, set.Never
			}
		}
	}
	return s
}

// BanStoreIn is that of an artifact, asked for as the loaded rules do.
func (b *Backend) BanStoreIn(a backend.Artifact, have backend.State) backend.BanStore {
	s := b.BanStore(a, nil).(*banStore)
	if own, is := a.(*artifact); is {
		with := *own
		with.asks = true
		_, held, err := ours(nil, have)
		s.asked = err == nil && held.rules == with.rules()
	}
	return s
}

// DecodeBanStore reads what Encode wrote.
func (b *Backend) DecodeBanStore(data []byte) (backend.BanStore, error) {
	var in encodedStore
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, err
	}
	s := &banStore{b: b, room: in.Room, asked: in.Asked}
	return s, s.never.UnmarshalBinary(in.Never)
}

func (s *banStore) Encode() ([]byte, error) {
	never, err := s.never.MarshalBinary()
	if err != nil {
		return nil, err
	}
	return json.Marshal(encodedStore{s.room, s.asked, never})
}

func (s *banStore) Same(other backend.BanStore) bool {
	o, is := other.(*banStore)
	return is && s.asked == o.asked && s.never.Equal(o.never)
}

func (s *banStore) Holding(backend.Bans) backend.ReadBans { return nil }

func (s *banStore) Room() bool         { return s.room }
func (s *banStore) Never() addrset.Set { return s.never }

func (s *banStore) Asking(a backend.Artifact) backend.Artifact {
	own, is := a.(*artifact)
	if !is {
		return a
	}
	with := *own
	with.asks = s.asked
	return &with
}

func (s *banStore) Fill(_ context.Context, want backend.Bans, _ time.Time) (backend.BanPlan, error) {
	return s.plan(want, want.Len() > 0), nil
}

func (s *banStore) Edit(_ context.Context, e backend.BanEdit, _ time.Time) (backend.BanPlan, error) {
	want, err := e.All()
	return s.plan(want, s.asked || want.Len() > 0), err
}

func (s *banStore) plan(want backend.Bans, asked bool) backend.BanPlan {
	after := *s
	after.asked = asked
	p := backend.BanPlan{After: &after}
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if want.Len()+s.b.bans.Len() > 0 && !reflect.DeepEqual(want, s.b.bans) {
		p.Fill = transaction{s.b, "bans", func(b *Backend) { b.bans = want }}
		p.Differences = []backend.Difference{{Kind: "set", Name: "bans by command", Want: "what was banned", Have: "something else"}}
	}
	if asked != s.asked {
		p.Turn = transaction{s.b, "ask for bans", func(b *Backend) { b.held.rules = turned(b.held.rules, s.asked, asked) }}
	}
	return p
}

func (s *banStore) Held(context.Context) (*backend.HeldBans, error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	out := &backend.HeldBans{Single: map[netip.Addr]backend.HeldBan{}}
	if !s.asked {
		return out, nil
	}
	for _, of := range []backend.FamilyBans{s.b.bans.IPv4, s.b.bans.IPv6} {
		for _, b := range of.Single {
			out.Single[b.Addr] = backend.HeldBan{Range: addrset.Range{From: b.Addr, To: b.Addr}}
		}
		for _, r := range of.Ranges {
			out.Ranges = append(out.Ranges, backend.HeldBan{Range: r.Range})
		}
	}
	sorting.By(out.Ranges, func(a, b backend.HeldBan) int { return a.From.Compare(b.From) })
	return out, nil
}

// Limits are none: packets are not counted here.
func (*banStore) Limits(context.Context) ([]backend.LimitBans, error) { return nil, nil }

// AskedIn is true: nobody else is at the rules.
func (*banStore) AskedIn(backend.State) bool { return true }

func (*banStore) LiftLimits(context.Context, func(addrset.Range) bool) (int, error) { return 0, nil }

func (*banStore) Unasked(context.Context, backend.Bans) ([]backend.UnaskedBans, error) {
	return nil, nil
}
