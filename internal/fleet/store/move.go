package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
)

// coming is in the column moved of a database into which a fleet is being moved. Else that is
// "", or where the fleet went.
const coming = "coming"

// MoveTo moves a fleet to another database, which must be empty or be left of a move that was
// killed; both have names that people know. From then on everybody who has the store open gets
// ErrMoved. At no moment can both be used: the other one cannot (ErrComing) until nobody
// changes this one any more.
func (s *Store) MoveTo(ctx context.Context, to *Store, who, named, toNamed string) (out Copied, err error) {
	_, there, err := to.fleetRow(ctx, to.reader)
	if err == nil && there != coming {
		_, err := s.fleet(ctx, s.reader) // which may have gone there before
		return out, cmp.Or(err, fmt.Errorf("%w: it holds a fleet", ErrNotEmpty))
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return out, err
	}
	from, err := s.writer.BeginTx(ctx, s.dialect.moving)
	if err != nil {
		return out, fmt.Errorf("begin a transaction: %w", err)
	}
	defer func() { _ = from.Rollback() }() // nothing, once it is committed
	if s.dialect.freeze != "" {
		if _, err := from.ExecContext(ctx, s.dialect.freeze); err != nil {
			return out, fmt.Errorf("write to the database: %w", err)
		}
	}
	f, moved, err := s.fleetRow(ctx, from)
	if err != nil {
		return out, err
	}
	if moved != "" && (moved != toNamed || there != coming) {
		_, err := s.fleet(ctx, from)
		return out, err
	}
	out.Fleet = f
	err = to.write(ctx, func(t *tx) (err error) {
		if there == coming {
			if err := s.clear(ctx, t); err != nil {
				return err
			}
		}
		if out.Rows, err = s.copyAll(ctx, from, t); err != nil {
			return err
		}
		_, err = t.do(`update fleet set moved = $1 where id = 1`, coming)
		return err
	})
	if err != nil {
		return out, err
	}
	if _, err := from.ExecContext(ctx, s.text(`update fleet set moved = $1 where id = 1`), toNamed); err != nil {
		return out, fmt.Errorf("write to the database: %w", err)
	}
	if err := from.Commit(); err != nil {
		return out, fmt.Errorf("commit: %w", err)
	}
	return out, to.write(ctx, func(t *tx) error {
		if _, err := t.do(`update fleet set moved = '' where id = 1`); err != nil {
			return err
		}
		return t.tell(who, "fleet.move", map[string]any{"database": named, "into": toNamed, "revision": f.Revision})
	})
}

// clear empties all tables.
func (s *Store) clear(ctx context.Context, t *tx) error {
	tables, err := t.store.inOrder(ctx, t)
	if err != nil {
		return err
	}
	for _, table := range slices.Backward(tables) {
		if _, err := t.do("delete from " + table); err != nil {
			return err
		}
	}
	return nil
}
