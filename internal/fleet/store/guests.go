package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
)

// Guest is a machine on a host.
type Guest struct {
	ID        string            `json:"id"`
	Host      string            `json:"host"`
	Interface string            `json:"interface"`
	Netns     string            `json:"netns,omitempty"`
	Addresses []netip.Addr      `json:"addresses"`
	Public    []netip.Addr      `json:"public,omitempty"`
	Labels    map[string]string `json:"labels"`
}

// Guests are all guests, in the order of their names.
func (s *Store) Guests(ctx context.Context) ([]Guest, error) { return s.guests(ctx, s.reader, nil) }

func (s *Store) guests(ctx context.Context, q querier, ids []string) ([]Guest, error) {
	where, args, err := named("id", ids)
	if err != nil {
		return nil, err
	}
	var out []Guest
	err = s.query(ctx, q, func(scan func(...any) error) error {
		var g Guest
		var addresses, public, labels string
		if err := scan(&g.ID, &g.Host, &g.Interface, &g.Netns, &addresses, &public, &labels); err != nil {
			return err
		}
		err := errors.Join(json.Unmarshal([]byte(addresses), &g.Addresses), json.Unmarshal([]byte(public), &g.Public),
			json.Unmarshal([]byte(labels), &g.Labels))
		out = append(out, g)
		return err
	}, `select id, host, interface, netns, addresses, public, labels from guest`+where+` order by id`, args...)
	return out, err
}

// PutGuest makes a guest or changes it. The same again is no change.
func (s *Store) PutGuest(ctx context.Context, who string, g Guest) error {
	labels, err := labelText(g.Labels)
	if err != nil {
		return err
	}
	addresses, err := list(g.Addresses)
	if err != nil {
		return err
	}
	public, err := list(g.Public)
	if err != nil {
		return err
	}
	return s.write(ctx, func(t *tx) error {
		if _, err := t.host(g.Host); err != nil {
			return err
		}
		before, err := s.guests(ctx, t, []string{g.ID})
		if err != nil {
			return err
		}
		_, err = t.do(`insert into guest (id, host, interface, netns, addresses, public, labels) values ($1, $2, $3, $4, $5, $6, $7)
			on conflict (id) do update set host = excluded.host, interface = excluded.interface, netns = excluded.netns,
			addresses = excluded.addresses, public = excluded.public, labels = excluded.labels`,
			g.ID, g.Host, g.Interface, g.Netns, addresses, public, labels)
		if err != nil {
			return err
		}
		after, err := s.guests(ctx, t, []string{g.ID})
		if err != nil || reflect.DeepEqual(before, after) {
			return err
		}
		t.changed("guest", g.ID)
		diff := map[string]any{"to": g}
		if len(before) > 0 {
			diff["from"] = before[0]
		}
		return t.tell(who, "guest.put", diff)
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
			return fmt.Errorf("guest %s: %w", id, ErrNotFound)
		}
		if _, err := t.do(`delete from guest where id = $1`, id); err != nil {
			return err
		}
		t.changed("guest", id)
		return t.tell(who, "guest.remove", before[0])
	})
}
