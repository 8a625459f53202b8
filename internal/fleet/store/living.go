package store

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"sluice/internal/base/addrset"
)

// Living is an entry of the log of bans and allows: what was banned or allowed, or lifted.
// Its times are by the database's clock.
type Living struct {
	Seq     int64     `json:"seq"`
	ID      string    `json:"id"` // what has the same takes its place
	Kind    string    `json:"kind"`
	What    string    `json:"what"` // as addrset.Range writes it
	Service string    `json:"service,omitempty"`
	Hosts   string    `json:"hosts,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Who     string    `json:"who,omitempty"`
	Made    time.Time `json:"made"`
	Expires time.Time `json:"expires"`
}

// Clock is where a log of bans and allows is, and when.
type Clock struct {
	Incarnation int64
	Seq         int64     // of the last entry
	Now         time.Time // of the database
}

// LivingLog is what a log has behind a number.
type LivingLog struct {
	Clock
	Entries []Living
	Whole   bool // it does not reach back so far: only [Store.Holding] says what holds
}

// Of the log so many entries are kept at least, and it is cut once in so many.
const (
	keptLiving = 20_000
	tidyLiving = 1000
)

// Hold is what [Store.Hold] is to write.
type Hold struct {
	Living
	For time.Duration // from now
}

// Hold writes bans, or allows: ErrTooLarge where more than most of the kind would hold in
// the end. It returns them as they were written. With keepLonger those are left out
// that hold already, and for no shorter time.
func (s *Store) Hold(ctx context.Context, who string, most int, keepLonger bool, holds []Hold) (written []Living, err error) {
	if len(holds) == 0 {
		return nil, nil
	}
	err = s.livingly(ctx, func(t *tx, at Clock) ([]Living, error) {
		written = nil
		has := map[string]Living{}
		if keepLonger {
			ids := make([]string, len(holds))
			for i, h := range holds {
				ids[i] = h.ID
			}
			if has, err = t.holding(at, ids); err != nil {
				return nil, err
			}
		}
		last := map[string]int{}
		for i, h := range holds {
			last[h.ID] = i
		}
		var rows [][]any
		for i, h := range holds {
			h.Made, h.Expires = at.Now, at.Now.Add(h.For)
			if last[h.ID] != i || keepLonger && !has[h.ID].Expires.Before(h.Expires) {
				continue
			}
			low, high, err := ends(h.What)
			if err != nil {
				return nil, err
			}
			h.Seq, h.Who = at.Seq+int64(len(written))+1, who
			entry, err := json.Marshal(h.Living)
			if err != nil {
				return nil, err
			}
			written = append(written, h.Living)
			rows = append(rows, []any{h.ID, h.Kind, low, high, column(h.Expires), string(entry)})
		}
		if len(written) == 0 {
			return nil, nil
		}
		text, err := list(rows)
		if err != nil {
			return nil, err
		}
		if _, err := t.do(`insert into ban (id, kind, low, high, expires, entry)
			select v.value->>0, v.value->>1, v.value->>2, v.value->>3, cast(v.value->>4 as bigint), v.value->>5 from EACH($1) v where true
			on conflict (id) do update set expires = excluded.expires, entry = excluded.entry`, text); err != nil {
			return nil, err
		}
		if err := t.fits(at, written[0].Kind, len(written), most); err != nil {
			return nil, err
		}
		return written, t.tell(who, written[0].Kind, map[string]any{"entries": written})
	})
	return written, err
}

// countEvery is how often what holds is counted, and what has ended is removed, at least.
const countEvery = 10 * time.Second

// bound is how many of a kind hold at most.
type bound struct {
	n  int
	at time.Time
}

// fits says whether so many may hold, of which some were written now. They are counted again
// where that could matter, since of a hundred thousand it takes longer than all else here.
func (t *tx) fits(at Clock, kind string, written, most int) error {
	is, known := t.store.bounds.Load(kind)
	b, _ := is.(bound)
	b.n += written
	if age := at.Now.Sub(b.at); !known || b.n > most || age < 0 || age > countEvery {
		if _, err := t.do(`delete from ban where expires <= $1`, column(at.Now)); err != nil {
			return err
		}
		if err := t.one([]any{&b.n}, `select count(*) from ban where kind = $1`, kind); err != nil {
			return err
		}
		b.at = at.Now
	}
	if b.n > most {
		return fmt.Errorf("there would be %d of them, at most %d: %w", b.n, most, ErrTooLarge)
	}
	t.store.bounds.Store(kind, b) // too many, where the transaction fails
	return nil
}

// Lift ends what has these IDs and holds. The entries of it have the kind, the reason and
// the name that are given, and are returned. What does not hold is skipped.
func (s *Store) Lift(ctx context.Context, who, kind, reason string, ids []string) (lifted []Living, err error) {
	err = s.livingly(ctx, func(t *tx, at Clock) ([]Living, error) {
		lifted = nil
		has, err := t.holding(at, ids)
		if err != nil {
			return nil, err
		}
		var everywhere [][]any
		for _, id := range ids {
			e, holds := has[id]
			if !holds {
				continue
			}
			delete(has, id)
			if e.Kind == "ban" && e.Hosts == "" {
				everywhere = append(everywhere, []any{e.What})
			}
			e.Seq, e.Kind, e.Reason, e.Who, e.Made = at.Seq+int64(len(lifted))+1, kind, reason, who, at.Now
			lifted = append(lifted, e)
		}
		if len(lifted) == 0 {
			return nil, nil
		}
		names, err := list(ids)
		if err != nil {
			return nil, err
		}
		if _, err := t.do(`delete from ban where id in NAMES($1)`, names); err != nil {
			return nil, err
		}
		text, err := list(everywhere)
		if err != nil {
			return nil, err
		}
		if _, err := t.do(`insert into lifted (what, at) select distinct v.value->>0, cast($2 as bigint) from EACH($1) v where true
			on conflict (what) do update set at = excluded.at`, text, column(at.Now)); err != nil {
			return nil, err
		}
		return lifted, t.tell(who, kind, map[string]any{"entries": lifted})
	})
	return lifted, err
}

// livingly has f change what holds, and writes the entries that it returns behind the log.
// The row that all transactions share is locked meanwhile, so the entries become visible in
// their order, without a gap. It is ErrRestored where hosts may have other entries of the
// same numbers.
func (s *Store) livingly(ctx context.Context, f func(t *tx, at Clock) ([]Living, error)) error {
	err := s.write(ctx, func(t *tx) error {
		var incarnation, restored int64
		if err := t.one([]any{&incarnation, &restored}, `select incarnation, restored from fleet where id = 1 LOCKED`); err != nil {
			return fmt.Errorf("the fleet: %w", err)
		}
		if incarnation <= restored {
			return ErrRestored
		}
		at, err := s.clock(ctx, t)
		if err != nil {
			return err
		}
		at.Incarnation = incarnation
		entries, err := f(t, at)
		if err != nil || len(entries) == 0 {
			return err
		}
		rows := make([][]any, len(entries))
		for i, e := range entries {
			entry, err := json.Marshal(e)
			if err != nil {
				return err
			}
			rows[i] = []any{e.Seq, string(entry)}
		}
		text, err := list(rows)
		if err != nil {
			return err
		}
		if _, err := t.do(`insert into living (seq, entry) select cast(v.value->>0 as bigint), v.value->>1 from EACH($1) v`, text); err != nil {
			return err
		}
		if last := at.Seq + int64(len(entries)); last/tidyLiving != at.Seq/tidyLiving {
			if _, err := t.do(`delete from living where seq <= $1`, last-keptLiving); err != nil {
				return err
			}
		}
		if s.dialect.notify == "" {
			return nil
		}
		_, err = t.do(s.dialect.notify)
		return err
	})
	if err == nil {
		s.lively.ring()
	}
	return err
}

// clock reads it, except for the incarnation.
func (s *Store) clock(ctx context.Context, q querier) (at Clock, err error) {
	if err := s.one(ctx, q, []any{&at.Seq}, `select coalesce(max(seq), 0) from living`); err != nil {
		return at, err
	}
	now := s.micros()
	if s.Clock != nil {
		now = s.Clock().UnixMicro()
	}
	if s.dialect.clock != "" {
		err = s.one(ctx, q, []any{&now}, s.dialect.clock)
	}
	at.Now = moment(now)
	return at, err
}

// LivingAfter is what the log has behind a number, so many entries of it at most.
func (s *Store) LivingAfter(ctx context.Context, after int64, most int) (log LivingLog, err error) {
	err = s.consistent(ctx, func(q querier) error {
		if log.Clock, err = s.clockOf(ctx, q); err != nil {
			return err
		}
		log.Entries, err = s.living(ctx, q, `select entry from living where seq > $1 order by seq limit $2`, after, most)
		behind := log.Seq > after && (len(log.Entries) == 0 || log.Entries[0].Seq != after+1)
		if log.Whole = behind || log.Seq < after; log.Whole {
			log.Entries = nil
		}
		return err
	})
	return log, err
}

func (s *Store) clockOf(ctx context.Context, q querier) (Clock, error) {
	f, err := s.fleet(ctx, q)
	if err != nil {
		return Clock{}, err
	}
	at, err := s.clock(ctx, q)
	at.Incarnation = f.Incarnation
	return at, err
}

// Holding is what holds now of a kind, "" being all, in the order of IDs, behind one, and so
// many at most.
func (s *Store) Holding(ctx context.Context, kind, behind string, most int) (at Clock, entries []Living, err error) {
	err = s.consistent(ctx, func(q querier) error {
		if at, err = s.clockOf(ctx, q); err != nil {
			return err
		}
		entries, err = s.living(ctx, q, `select entry from ban where id > $1 and (kind = $2 or $2 = '') and expires > $3 order by id limit $4`, behind, kind, column(at.Now), most)
		return err
	})
	return at, entries, err
}

// CountHolding is how much of each kind holds now.
func (s *Store) CountHolding(ctx context.Context) (map[string]int64, error) {
	out := map[string]int64{}
	at, err := s.clock(ctx, s.reader)
	if err != nil {
		return nil, err
	}
	return out, s.query(ctx, s.reader, func(scan func(...any) error) error {
		var kind string
		var n int64
		err := scan(&kind, &n)
		out[kind] = n
		return err
	}, `select kind, count(*) from ban where expires > $1 group by kind`, column(at.Now))
}

// Held is what holds now and has an ID, or ErrNotFound.
func (s *Store) Held(ctx context.Context, kind, id string) (Living, error) {
	var found []Living
	err := s.consistent(ctx, func(q querier) error {
		at, err := s.clockOf(ctx, q)
		if err == nil {
			found, err = s.living(ctx, q, `select entry from ban where id = $1 and kind = $2 and expires > $3`, id, kind, column(at.Now))
		}
		return err
	})
	if err == nil && len(found) == 0 {
		return Living{}, fmt.Errorf("%s %s: %w", kind, id, ErrNotFound)
	}
	if err != nil {
		return Living{}, err
	}
	return found[0], nil
}

// Within is what of a kind holds now and lies within each of some ranges, in the order of
// IDs.
func (s *Store) Within(ctx context.Context, kind string, of ...addrset.Range) (found [][]Living, err error) {
	err = s.consistent(ctx, func(q querier) error {
		at, err := s.clockOf(ctx, q)
		if err != nil {
			return err
		}
		found = make([][]Living, len(of))
		// The sign keeps SQLite from the index of expires, by which it would read all.
		for i, r := range of {
			found[i], err = s.living(ctx, q, `select entry from ban where kind = $3 and low >= $1 and low <= $2 and high <= $2 and +expires > $4 order by id`,
				key(r.From), key(r.To), kind, column(at.Now))
			if err != nil {
				return err
			}
		}
		return nil
	})
	return found, err
}

// holding is what of these IDs holds.
func (t *tx) holding(at Clock, ids []string) (map[string]Living, error) {
	names, err := list(ids)
	if err != nil {
		return nil, err
	}
	entries, err := t.store.living(t.ctx, t, `select entry from ban where id in NAMES($1) and expires > $2`, names, column(at.Now))
	out := map[string]Living{}
	for _, e := range entries {
		out[e.ID] = e
	}
	return out, err
}

func (s *Store) living(ctx context.Context, q querier, text string, args ...any) (entries []Living, err error) {
	err = s.query(ctx, q, func(scan func(...any) error) error {
		var text string
		if err := scan(&text); err != nil {
			return err
		}
		var e Living
		err := json.Unmarshal([]byte(text), &e)
		entries = append(entries, e)
		return err
	}, text, args...)
	return entries, err
}

// ends are the first and the last address of a range, by which the table orders it.
func ends(what string) (low, high string, err error) {
	r, err := addrset.ParseRange(what)
	if err != nil {
		return "", "", err
	}
	return key(r.From), key(r.To), nil
}

// key orders addresses: first those of IPv4.
func key(a netip.Addr) string {
	bytes := a.As16()
	family := "6"
	if a.Is4() {
		family = "4"
	}
	return family + hex.EncodeToString(bytes[:])
}

// WaitLiving returns when the log may have more than this number, or starts again: it is
// woken as [Store.Wait] is.
func (s *Store) WaitLiving(ctx context.Context, is Clock) error {
	for {
		rung := s.lively.next()
		at, err := s.clockOf(ctx, s.reader)
		if err != nil || at.Seq != is.Seq || at.Incarnation != is.Incarnation {
			return err
		}
		again := time.NewTimer(poll)
		select {
		case <-rung:
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return ctx.Err()
		}
		again.Stop()
	}
}

// Applied is what a host last said of the bans and allows that it has.
type Applied struct {
	Host string
	Said string
	At   time.Time
	Seen time.Time // when the host was last heard: read, not kept
}

// PutApplied keeps what hosts said, the newest of each, as [Store.PutStatus] does.
func (s *Store) PutApplied(ctx context.Context, of []Applied) error {
	return batches(of, func(some []Applied) error {
		rows := newest(some, func(a Applied) string { return a.Host }, func(a, b Applied) bool { return !a.At.Before(b.At) })
		values := make([][]any, len(rows))
		for i, r := range rows {
			values[i] = []any{r.Host, r.Said, column(r.At)}
		}
		text, err := list(values)
		if err != nil {
			return err
		}
		return s.write(ctx, func(t *tx) error {
			_, err := t.do(`insert into applied (host, said, at) select host.id, v.value->>1, cast(v.value->>2 as bigint)
				from EACH($1) v join host on host.id = v.value->>0 where true order by host.id
				on conflict (host) do update set said = excluded.said, at = excluded.at where excluded.at >= applied.at`, text)
			return err
		})
	})
}

// Applied is what the hosts of the names given, or all, last said.
func (s *Store) Applied(ctx context.Context, hosts ...string) (out []Applied, err error) {
	where, args, err := named("host", hosts)
	if err != nil {
		return nil, err
	}
	err = s.query(ctx, s.reader, func(scan func(...any) error) error {
		var a Applied
		var at, seen int64
		err := scan(&a.Host, &a.Said, &at, &seen)
		a.At, a.Seen = moment(at), moment(seen)
		out = append(out, a)
		return err
	}, `select host, said, at, coalesce((select h.seen from host h where h.id = applied.host), 0) from applied`+where+` order by host`, args...)
	return out, err
}
