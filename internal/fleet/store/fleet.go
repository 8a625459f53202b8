package store

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// Position is how far a fleet's desired state has come. The incarnation decides first: it
// rises when an older database was restored, and the policy key signs it.
type Position struct {
	Incarnation int64 `json:"incarnation"`
	Revision    int64 `json:"revision"`
}

// Compare is -1 where p is before o, 1 where it is behind.
func (p Position) Compare(o Position) int {
	return cmp.Or(cmp.Compare(p.Incarnation, o.Incarnation), cmp.Compare(p.Revision, o.Revision))
}

// Fleet is what a database holds.
type Fleet struct {
	Name string `json:"name"`
	Position
	Created time.Time `json:"created"`
	Head    Head      `json:"head"`
	// Floor is the last entry of the audit that was taken elsewhere and removed.
	Floor Head `json:"floor,omitzero"`
	// Restored says that it is an older copy, and of no newer incarnation yet.
	Restored bool `json:"restored,omitempty"`
}

// Create makes the one fleet of a database that has none, else ErrExists.
func (s *Store) Create(ctx context.Context, who, name string, incarnation int64) error {
	return s.write(ctx, func(t *tx) error {
		err := t.must(ErrExists, `insert into fleet (id, name, incarnation, revision, created, audit_seq, audit_hash)
			values (1, $1, $2, 0, $3, 0, '') on conflict (id) do nothing`, name, incarnation, s.micros())
		if err != nil {
			return err
		}
		t.changed("fleet")
		return t.tell(who, "fleet.create", map[string]any{"name": name, "incarnation": incarnation})
	})
}

// Fleet is the fleet of the database, or ErrNotFound.
func (s *Store) Fleet(ctx context.Context) (Fleet, error) { return s.fleet(ctx, s.reader) }

func (s *Store) fleet(ctx context.Context, q querier) (Fleet, error) {
	f, moved, err := s.fleetRow(ctx, q)
	switch {
	case err != nil || moved == "":
		return f, err
	case moved == coming:
		return f, ErrComing
	}
	return f, fmt.Errorf("%w: %s", ErrMoved, moved)
}

// fleetRow is the fleet, also of a database that is not its own any more: moved says so.
func (s *Store) fleetRow(ctx context.Context, q querier) (f Fleet, moved string, err error) {
	if s.still != nil {
		if err := s.still(); err != nil {
			return f, "", fmt.Errorf("the database: %w", err)
		}
	}
	var created, restored int64
	err = s.one(ctx, q, []any{&f.Name, &f.Incarnation, &f.Revision, &created, &f.Head.Seq, &f.Head.Hash, &f.Floor.Seq, &f.Floor.Hash, &restored, &moved},
		`select name, incarnation, revision, created, audit_seq, audit_hash, audit_floor, audit_floor_hash, restored, moved from fleet where id = 1`)
	f.Created, f.Restored = moment(created), restored > 0 && f.Incarnation <= restored
	return f, moved, err
}

// WentBack has bans and allows be refused until there is a newer incarnation, as after RestoreTo:
// an older copy of the database was put in its place. It says whether nobody had said so before.
func (s *Store) WentBack(ctx context.Context, who string, diff any) (news bool, err error) {
	err = s.write(ctx, func(t *tx) error {
		n, err := t.do(`update fleet set restored = incarnation where id = 1 and restored < incarnation`)
		if news = n > 0; err != nil || !news {
			return err
		}
		t.changed("fleet")
		return t.tell(who, "fleet.went-back", diff)
	})
	return news && err == nil, err
}

// NewIncarnation is for a database that was restored from an older copy: agents take its
// revisions again, though they are lower than those they know. What was desired is
// forgotten, since hosts may run something newer: they keep it until a roll-out tells them
// otherwise. The caller has verified the signature of the policy key. One that is not
// higher is ErrConflict.
func (s *Store) NewIncarnation(ctx context.Context, who string, incarnation int64) error {
	defer s.lively.ring()
	return s.write(ctx, func(t *tx) error {
		var before int64
		if err := t.one([]any{&before}, `select incarnation from fleet where id = 1`); err != nil {
			return err
		}
		err := t.must(ErrConflict, `update fleet set incarnation = $1 where id = 1 and incarnation < $1`, incarnation)
		if err != nil {
			return fmt.Errorf("incarnation %d: %w: the database has %d", incarnation, err, before)
		}
		if _, err := t.do(`delete from desired`); err != nil {
			return err
		}
		t.changed("fleet")
		return t.tell(who, "fleet.incarnation", map[string]any{"from": before, "to": incarnation})
	})
}
