package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
)

// Guest is a machine on a host.
type Guest struct {
	ID string `json:"id"`
	Placement
	Addresses []netip.Addr      `json:"addresses"`
	Public    []netip.Addr      `json:"public,omitempty"`
	Labels    map[string]string `json:"labels"`
	Rules     string            `json:"rules,omitempty"` // of its owner, in the policy language
	// Leaving is where it was before: it stays there too until its host has proved it, see
	// [Store.SettleGuest].
	Leaving  []Placement `json:"leaving,omitempty"`
	Revision int64       `json:"revision,omitempty"` // at which it became this; written by the store
}

// Placement is where a guest is.
type Placement struct {
	Host      string `json:"host"`
	Interface string `json:"interface"`
	Netns     string `json:"netns,omitempty"`
}

// Guests are those of the names given, or all, in the order of their names.
func (s *Store) Guests(ctx context.Context, ids ...string) ([]Guest, error) {
	return s.guests(ctx, s.reader, ids)
}

func (s *Store) guests(ctx context.Context, q querier, ids []string) ([]Guest, error) {
	where, args, err := named("id", ids)
	if err != nil {
		return nil, err
	}
	var out []Guest
	err = s.query(ctx, q, func(scan func(...any) error) error {
		var g Guest
		var addresses, public, labels, leaving string
		if err := scan(&g.ID, &g.Host, &g.Interface, &g.Netns, &addresses, &public, &labels, &g.Rules, &leaving, &g.Revision); err != nil {
			return err
		}
		err := errors.Join(json.Unmarshal([]byte(addresses), &g.Addresses), json.Unmarshal([]byte(public), &g.Public),
			json.Unmarshal([]byte(labels), &g.Labels), json.Unmarshal([]byte(leaving), &g.Leaving))
		if len(g.Leaving) == 0 {
			g.Leaving = nil
		}
		out = append(out, g)
		return err
	}, `select id, host, interface, netns, addresses, public, labels, rules, leaving, revision from guest`+where+` order by id`, args...)
	return out, err
}

// PutGuest makes a guest or changes it, and returns what it is now: Leaving and Revision are
// the store's. The same again is no change. ErrTaken: an address, or the interface of its
// host, is that of another guest; ErrRevoked: the host is.
func (s *Store) PutGuest(ctx context.Context, who string, g Guest) (now Guest, err error) {
	labels, err := labelText(g.Labels)
	if err != nil {
		return g, err
	}
	addresses, err := list(g.Addresses)
	if err != nil {
		return g, err
	}
	public, err := list(g.Public)
	if err != nil {
		return g, err
	}
	return now, s.write(ctx, func(t *tx) error {
		h, err := t.host(g.Host)
		if err != nil {
			return err
		}
		found, err := s.guests(ctx, t, []string{g.ID})
		if err != nil {
			return err
		}
		var before Guest
		now = g
		now.Leaving, now.Revision = nil, 0
		if len(found) > 0 {
			before = found[0]
			now.Leaving, now.Revision = before.Leaving, before.Revision
			if alike(before, now) {
				now = before
				return nil
			}
			if before.Host != g.Host {
				now.Leaving = append(slices.Clone(before.Leaving), before.Placement)
			}
			now.Leaving = slices.DeleteFunc(slices.Clone(now.Leaving), func(p Placement) bool { return p.Host == g.Host })
		}
		if !h.Revoked.IsZero() {
			return fmt.Errorf("host %s: %w", g.Host, ErrRevoked)
		}
		leaving, err := list(now.Leaving)
		if err != nil {
			return err
		}
		_, err = t.do(`insert into guest (id, host, interface, netns, addresses, public, labels, rules, leaving) values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
			on conflict (id) do update set host = excluded.host, interface = excluded.interface, netns = excluded.netns,
			addresses = excluded.addresses, public = excluded.public, labels = excluded.labels, rules = excluded.rules, leaving = excluded.leaving`,
			g.ID, g.Host, g.Interface, g.Netns, addresses, public, labels, g.Rules, leaving)
		if err != nil {
			return err
		}
		if err := t.claim(g); err != nil {
			return err
		}
		t.changed("guest", g.ID)
		t.atLast(func(revision int64) error {
			now.Revision = revision
			_, err := t.do(`update guest set revision = $1 where id = $2`, revision, g.ID)
			return err
		})
		diff := map[string]any{"to": g}
		if len(found) > 0 {
			diff["from"] = before
		}
		return t.tell(who, "guest.put", diff)
	})
}

// alike says that nothing of a guest would change, whatever is empty or not there.
func alike(a, b Guest) bool {
	for _, g := range []*Guest{&a, &b} {
		if len(g.Labels) == 0 {
			g.Labels = nil
		}
		if len(g.Public) == 0 {
			g.Public = nil
		}
		if len(g.Addresses) == 0 {
			g.Addresses = nil
		}
	}
	return reflect.DeepEqual(a, b)
}

// claim makes the addresses, and the interface of its host, a guest's own.
func (t *tx) claim(g Guest) error {
	if _, err := t.do(`delete from guest_claim where guest = $1`, g.ID); err != nil {
		return err
	}
	at := "interface " + g.Interface + " of host " + g.Host
	if g.Netns != "" {
		at += " in network namespace " + g.Netns
	}
	claims := []string{at}
	for _, a := range slices.Concat(g.Addresses, g.Public) {
		claims = append(claims, "address "+a.String())
	}
	for _, what := range claims {
		var owner string
		err := t.one([]any{&owner}, `select guest from guest_claim where what = $1`, what)
		switch {
		case err == nil:
			return fmt.Errorf("%s: %w: guest %s", what, ErrTaken, owner)
		case !errors.Is(err, ErrNotFound):
			return err
		}
		// Another one may have come first that is not committed yet.
		err = t.must(ErrTaken, `insert into guest_claim (what, guest) values ($1, $2) on conflict (what) do nothing`, what, g.ID)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

// SettleGuest has a guest be nowhere but on its host, unless it has changed since a revision.
func (s *Store) SettleGuest(ctx context.Context, who, id string, revision int64) error {
	return s.write(ctx, func(t *tx) error {
		found, err := s.guests(ctx, t, []string{id})
		if err != nil || len(found) == 0 || found[0].Revision != revision || len(found[0].Leaving) == 0 {
			return err
		}
		if _, err := t.do(`update guest set leaving = '[]' where id = $1`, id); err != nil {
			return err
		}
		t.changed("guest", id)
		return t.tell(who, "guest.moved", map[string]any{"guest": id, "from": found[0].Leaving, "to": found[0].Placement})
	})
}

// RemoveGuest forgets a guest.
func (s *Store) RemoveGuest(ctx context.Context, who, id string) error {
	return s.write(ctx, func(t *tx) error {
		before, err := s.guests(ctx, t, []string{id})
		if err != nil {
			return err
		}
		if len(before) == 0 {
			return fmt.Errorf("guest %.253q: %w", id, ErrNotFound)
		}
		if _, err := t.do(`delete from guest where id = $1`, id); err != nil {
			return err
		}
		t.changed("guest", id)
		return t.tell(who, "guest.remove", before[0])
	})
}
