package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/internal/base/sorting"
)

// Desired is which bundle a host is to run, and the roll-out (or 0) and revision that said
// so.
type Desired struct {
	Host     string `json:"host"`
	Bundle   int64  `json:"bundle"`
	Rollout  int64  `json:"rollout,omitempty"`
	Revision int64  `json:"revision,omitempty"` // written by the store
}

// SetDesired says which bundles hosts are to run; those that are said to already stay at
// their revision. What is the name of it in the audit. Hosts that there are not are skipped:
// somebody removed them at the same time.
func (s *Store) SetDesired(ctx context.Context, who, what string, desired []Desired) error {
	return s.write(ctx, func(t *tx) error {
		changed, err := t.desired(desired)
		if err != nil || len(changed) == 0 {
			return err
		}
		return t.tell(who, what, map[string]any{"desired": changed})
	})
}

// desired writes what of it is new, and returns that.
func (t *tx) desired(desired []Desired) ([]Desired, error) {
	if len(desired) == 0 {
		return nil, nil
	}
	if err := t.bundlesExist(desired); err != nil {
		return nil, err
	}
	hosts := make([]string, len(desired))
	for i, d := range desired {
		hosts[i] = d.Host
	}
	has, err := t.store.desired(t.ctx, t, hosts)
	if err != nil {
		return nil, err
	}
	now := map[string]Desired{}
	for _, d := range has {
		now[d.Host] = d
	}
	var changed []Desired
	var ids []string
	var values [][]any
	for _, d := range newest(desired, func(d Desired) string { return d.Host }, func(Desired, Desired) bool { return true }) {
		if was, ok := now[d.Host]; ok && was.Bundle == d.Bundle && was.Rollout == d.Rollout {
			continue
		}
		d.Revision = 0
		changed = append(changed, d)
		ids = append(ids, d.Host)
		values = append(values, []any{d.Host, d.Bundle, d.Rollout})
	}
	if len(changed) == 0 {
		return nil, nil
	}
	rows, err := list(values)
	if err != nil {
		return nil, err
	}
	t.changed("desired", ids...)
	t.atLast(func(revision int64) error {
		_, err := t.do(`insert into desired (host, bundle, rollout, revision)
			select host.id, cast(v.value->>1 as bigint), cast(v.value->>2 as bigint), cast($2 as bigint)
			from EACH($1) v join host on host.id = v.value->>0 where true
			on conflict (host) do update set bundle = excluded.bundle, rollout = excluded.rollout, revision = excluded.revision`, rows, revision)
		return err
	})
	return changed, nil
}

func (t *tx) bundlesExist(desired []Desired) error {
	known := map[int64]bool{}
	for _, d := range desired {
		if known[d.Bundle] {
			continue
		}
		var n int
		if err := t.one([]any{&n}, `select count(*) from bundle where number = $1`, d.Bundle); err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("bundle %d: %w", d.Bundle, ErrNotFound)
		}
		known[d.Bundle] = true
	}
	return nil
}

// Desired is what the hosts of the names given, or all, are to run, in the order of their
// names.
func (s *Store) Desired(ctx context.Context, hosts ...string) ([]Desired, error) {
	return s.desired(ctx, s.reader, hosts)
}

func (s *Store) desired(ctx context.Context, q querier, hosts []string) ([]Desired, error) {
	where, args, err := named("host", hosts)
	if err != nil {
		return nil, err
	}
	var out []Desired
	err = s.query(ctx, q, func(scan func(...any) error) error {
		var d Desired
		err := scan(&d.Host, &d.Bundle, &d.Rollout, &d.Revision)
		out = append(out, d)
		return err
	}, `select host, bundle, rollout, revision from desired`+where+` order by host`, args...)
	return out, err
}

// Status is what a host last said of itself.
type Status struct {
	Host       string    `json:"host"`
	Bundle     int64     `json:"bundle"`
	Rollout    int64     `json:"rollout,omitempty"`
	Revision   int64     `json:"revision"` // of the desired state that it acts on
	Generation string    `json:"generation,omitempty"`
	Mark       string    `json:"mark,omitempty"`
	Proof      string    `json:"proof,omitempty"`
	State      string    `json:"state"`
	Reason     string    `json:"reason,omitempty"`
	Since      time.Time `json:"since"` // when bundle and state became what they are; none: At
	At         time.Time `json:"at"`    // when it was said
}

// PutStatus keeps what hosts said, the newest of each, some in a transaction. Since stays
// while bundle and state do. It is no change of desired state, and in no audit. Hosts that
// there are not are skipped.
func (s *Store) PutStatus(ctx context.Context, statuses []Status) error {
	return batches(statuses, func(some []Status) error {
		rows := newest(some, func(s Status) string { return s.Host }, func(a, b Status) bool { return !a.At.Before(b.At) })
		values := make([][]any, len(rows))
		for i, r := range rows {
			if r.Since.IsZero() {
				r.Since = r.At
			}
			values[i] = []any{
				r.Host, r.Bundle, r.Rollout, r.Revision, r.Generation, r.Mark, r.Proof, r.State, r.Reason,
				column(r.Since), column(r.At),
			}
		}
		rowsText, err := list(values)
		if err != nil {
			return err
		}
		return s.write(ctx, func(t *tx) error {
			_, err := t.do(`insert into status (host, bundle, rollout, revision, generation, mark, proof, state, reason, since, at)
				select host.id, cast(v.value->>1 as bigint), cast(v.value->>2 as bigint), cast(v.value->>3 as bigint),
				v.value->>4, v.value->>5, v.value->>6, v.value->>7, v.value->>8, cast(v.value->>9 as bigint), cast(v.value->>10 as bigint)
				from EACH($1) v join host on host.id = v.value->>0 where true order by host.id
				on conflict (host) do update set bundle = excluded.bundle, rollout = excluded.rollout, revision = excluded.revision,
				generation = excluded.generation, mark = excluded.mark, proof = excluded.proof, state = excluded.state, reason = excluded.reason,
				since = case when status.bundle = excluded.bundle and status.state = excluded.state then status.since else excluded.since end,
				at = excluded.at where excluded.at >= status.at`, rowsText)
			return err
		})
	})
}

// Statuses are what the hosts of the names given, or all, last said, in the order of their
// names. A host that has said nothing yet is not among them.
func (s *Store) Statuses(ctx context.Context, hosts ...string) ([]Status, error) {
	where, args, err := named("host", hosts)
	if err != nil {
		return nil, err
	}
	var out []Status
	err = s.query(ctx, s.reader, func(scan func(...any) error) error {
		var r Status
		var since, at int64
		err := scan(&r.Host, &r.Bundle, &r.Rollout, &r.Revision, &r.Generation, &r.Mark, &r.Proof, &r.State, &r.Reason, &since, &at)
		r.Since, r.At = moment(since), moment(at)
		out = append(out, r)
		return err
	}, `select host, bundle, rollout, revision, generation, mark, proof, state, reason, since, at from status`+where+` order by host`, args...)
	return out, err
}

// batch is how many rows one transaction takes of those that come in numbers.
const batch = 500

func batches[T any](of []T, write func([]T) error) error {
	for some := range slices.Chunk(of, batch) {
		if err := write(some); err != nil {
			return err
		}
	}
	return nil
}

// newest keeps of several with one name the one that is newer, a later one being asked
// about an earlier one, and sorts them, so that transactions lock rows in one order.
func newest[T any](of []T, name func(T) string, newer func(later, earlier T) bool) []T {
	at := map[string]int{}
	var out []T
	for _, v := range of {
		i, is := at[name(v)]
		switch {
		case !is:
			at[name(v)] = len(out)
			out = append(out, v)
		case newer(v, out[i]):
			out[i] = v
		}
	}
	sorting.By(out, func(a, b T) int { return strings.Compare(name(a), name(b)) })
	return out
}
