package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// tx is a transaction that writes.
type tx struct {
	*sql.Tx

	store   *Store
	ctx     context.Context //nolint:containedctx // it lives as long as the transaction
	changes []Change
	told    []Entry
	last    []func(revision int64) error
}

// tries is how often a transaction is done that others at the same time undo.
const tries = 10

type trialKey struct{}

// Trial is a context in which no transaction writes: one that the database would take is undone,
// ends in [ErrTried], and sets took.
func Trial(ctx context.Context, took *bool) context.Context {
	return context.WithValue(ctx, trialKey{}, took)
}

// IsTrial says whether a context is one of [Trial].
func IsTrial(ctx context.Context) bool { return ctx.Value(trialKey{}) != nil }

// Tried says, of a context of [Trial], that what is tried would change something elsewhere than in
// the database, where it cannot be undone: it is not done.
func Tried(ctx context.Context) error {
	if took, is := ctx.Value(trialKey{}).(*bool); is {
		*took = true
	}
	return ErrTried
}

// write does f in a transaction, which f may be called for several times. What f has said
// by changed and tell is written last, so that the row that all transactions share is
// locked for a short time, and the order of revisions and of the audit is that of commits.
func (s *Store) write(ctx context.Context, f func(*tx) error) error {
	for try := 1; ; try++ {
		changed, err := s.writeOnce(ctx, f)
		if err == nil {
			if changed {
				s.bell.ring()
			}
			return nil
		}
		if try == tries || !again(err) {
			return err
		}
	}
}

func (s *Store) writeOnce(ctx context.Context, f func(*tx) error) (changed bool, err error) {
	if s.still != nil {
		if err := s.still(); err != nil {
			return false, fmt.Errorf("the database: %w", err)
		}
	}
	begun, err := s.writer.BeginTx(ctx, nil)
	if err != nil {
		return false, fmt.Errorf("begin a transaction: %w", err)
	}
	t := &tx{Tx: begun, store: s, ctx: ctx}
	if err := f(t); err != nil {
		_ = begun.Rollback() // what f says is the reason
		return false, err
	}
	err = t.seal()
	if took, is := ctx.Value(trialKey{}).(*bool); is && err == nil {
		*took, err = true, ErrTried
	}
	if err != nil {
		_ = begun.Rollback()
		return false, err
	}
	if err := begun.Commit(); err != nil {
		return false, fmt.Errorf("commit: %w", err)
	}
	return len(t.changes) > 0, nil
}

// do runs a statement and returns how many rows it changed.
func (t *tx) do(text string, args ...any) (int64, error) {
	result, err := t.ExecContext(t.ctx, t.store.text(text), texts(args)...)
	if err != nil {
		return 0, fmt.Errorf("write to the database: %w", err)
	}
	return result.RowsAffected()
}

// must runs a statement that changes a row; without one the answer is otherwise.
func (t *tx) must(otherwise error, text string, args ...any) error {
	n, err := t.do(text, args...)
	if err == nil && n == 0 {
		return otherwise
	}
	return err
}

func (t *tx) one(into []any, text string, args ...any) error {
	return t.store.one(t.ctx, t, into, text, args...)
}

// changed says that desired state has changed: the transaction gets a revision.
func (t *tx) changed(kind string, ids ...string) {
	t.changes = append(t.changes, Change{Kind: kind, IDs: ids})
}

// tell puts an entry into the audit.
func (t *tx) tell(who, what string, diff any) error {
	text, err := json.Marshal(diff)
	if err != nil {
		return fmt.Errorf("the audit of %s: %w", what, err)
	}
	t.told = append(t.told, Entry{Who: plain(who), What: what, Diff: text})
	return nil
}

// atLast is done when the transaction knows its revision.
func (t *tx) atLast(f func(revision int64) error) { t.last = append(t.last, f) }

// The feed of changes reaches back so many revisions at least, and is cut once in so many.
const (
	kept = 10_000
	tidy = 100
)

// seal gives the transaction its revision and its place in the audit.
func (t *tx) seal() error {
	if len(t.changes) == 0 && len(t.told) == 0 {
		return nil
	}
	bump := 0
	if len(t.changes) > 0 {
		bump = 1
		if t.store.dialect.notify != "" { // others hear of it when it is committed
			if _, err := t.do(t.store.dialect.notify); err != nil {
				return err
			}
		}
	}
	var revision int64
	var head Head
	err := t.one([]any{&revision, &head.Seq, &head.Hash},
		`update fleet set revision = revision + $1 where id = 1 and moved = '' returning revision, audit_seq, audit_hash`, bump)
	if errors.Is(err, ErrNotFound) {
		if _, err := t.store.fleet(t.ctx, t); !errors.Is(err, ErrNotFound) {
			return err
		}
		return fmt.Errorf("the database holds no fleet yet: %w", err)
	}
	if err != nil {
		return err
	}
	for _, f := range t.last {
		if err := f(revision); err != nil {
			return err
		}
	}
	if bump > 0 {
		if err := t.feed(revision); err != nil {
			return err
		}
	}
	return t.chain(head)
}

// feed writes what [Store.Changes] reads.
func (t *tx) feed(revision int64) error {
	entries, err := json.Marshal(t.changes)
	if err != nil {
		return err
	}
	if _, err := t.do(`insert into change (revision, at, entries) values ($1, $2, $3)`, revision, t.store.micros(), string(entries)); err != nil {
		return err
	}
	if revision%tidy != 0 {
		return nil
	}
	_, err = t.do(`delete from change where revision <= $1`, revision-kept)
	return err
}

// micros is now, as a column has it: microseconds since 1970.
func (s *Store) micros() int64 { return s.Now().UnixMicro() }

// column is a time as a column has it: 0 for none.
func column(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// moment is the time that a column has.
func moment(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}

// list is what EACH and NAMES take.
func list[T any](of []T) (string, error) {
	if of == nil {
		return "[]", nil
	}
	text, err := json.Marshal(of)
	return strings.ReplaceAll(string(text), `\u0000`, `\ufffd`), err // PostgreSQL has no text with it
}

// texts are arguments of a statement with plain texts.
func texts(args []any) []any {
	for i, a := range args {
		if text, is := a.(string); is {
			args[i] = plain(text)
		}
	}
	return args
}

// plain is what people and agents say, without the byte that PostgreSQL has no text with.
func plain(said string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(said, "\ufffd"), "\x00", "\ufffd")
}
