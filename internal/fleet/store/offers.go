package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Offer is what a limit of a host has banned.
type Offer struct {
	What string // as addrset.Range writes it
	Host string
}

// Offered is what limits of several hosts have banned.
type Offered struct {
	What  string
	Hosts []string // by name
}

// Offer keeps what limits of hosts have banned, the newest of each host up to most, and says
// what of it, or of all that was kept, limits of so many hosts have by now, which were told of
// within a time and are not revoked. Of one host each ban counts once. A host that is not
// known, or was revoked, is skipped, and so is what was lifted on all hosts within rest.
func (s *Store) Offer(ctx context.Context, offers []Offer, all bool, within, rest time.Duration, after, most int) (out []Offered, err error) {
	rows := make([][]any, len(offers))
	whats, hosts := map[string]bool{}, map[string]bool{}
	for i, o := range offers {
		rows[i], whats[o.What], hosts[o.Host] = []any{o.What, o.Host}, true, true
	}
	text, err := list(rows)
	if err != nil {
		return nil, err
	}
	named, err := list(slices.Sorted(maps.Keys(whats)))
	if err != nil {
		return nil, err
	}
	every := 0
	if all {
		every = 1
	}
	by, err := list(slices.Sorted(maps.Keys(hosts)))
	if err != nil {
		return nil, err
	}
	return out, s.write(ctx, func(t *tx) error {
		// One controller after the other: each sees what those before have written.
		var one int
		if err := t.one([]any{&one}, `select id from fleet where id = 1 LOCKED`); err != nil {
			return fmt.Errorf("the fleet: %w", err)
		}
		at, err := s.clock(ctx, t)
		if err != nil {
			return err
		}
		if _, err := t.do(`delete from offered where at <= $1 or at > $2`, column(at.Now.Add(-within)), column(at.Now)); err != nil {
			return err
		}
		if _, err := t.do(`insert into offered (what, host, at) select distinct v.value->>0, host.id, cast($2 as bigint)
			from EACH($1) v join host on host.id = v.value->>1 where host.revoked = 0
			on conflict (what, host) do update set at = excluded.at`, text, column(at.Now)); err != nil {
			return err
		}
		if _, err := t.do(`delete from lifted where at <= $1`, column(at.Now.Add(-rest))); err != nil {
			return err
		}
		if _, err := t.do(`delete from offered where what in (select what from lifted)`); err != nil {
			return err
		}
		if _, err := t.do(`delete from offered where (what, host) in (select what, host from
			(select what, host, row_number() over (partition by host order by at desc, what) n from offered where host in NAMES($1)) ranked
			where n > $2)`, by, most); err != nil {
			return err
		}
		out = nil
		return s.query(ctx, t, func(scan func(...any) error) error {
			var what, host string
			if err := scan(&what, &host); err != nil {
				return err
			}
			if n := len(out); n == 0 || out[n-1].What != what {
				out = append(out, Offered{What: what})
			}
			last := &out[len(out)-1]
			last.Hosts = append(last.Hosts, host)
			return nil
		}, `select o.what, o.host from offered o join host h on h.id = o.host where h.revoked = 0 and o.what in
			(select x.what from offered x join host y on y.id = x.host where y.revoked = 0 and ($3 = 1 or x.what in NAMES($1)) group by x.what having count(*) >= $2)
			order by o.what, o.host`, named, after, every)
	})
}

// Unoffer forgets what limits of hosts have banned: it counts again from now on.
func (s *Store) Unoffer(ctx context.Context, what []string) error {
	named, err := list(what)
	if err != nil {
		return err
	}
	return s.write(ctx, func(t *tx) error {
		_, err := t.do(`delete from offered where what in NAMES($1)`, named)
		return err
	})
}
