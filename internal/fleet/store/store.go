package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// What a store answers. Every other error of it means that the database did not answer:
// the caller keeps what it knew, and computes nothing from it.
var (
	ErrNotFound error = answerError("not found")
	ErrConflict error = answerError("somebody else was quicker") // a compare-and-set that lost
	ErrExists   error = answerError("it exists already")
	ErrTooMany  error = answerError("there are too many")
	ErrTried    error = answerError("it was only tried")
	ErrTaken    error = answerError("taken by another")
	ErrRevoked  error = answerError("revoked")
	ErrToken    error = answerError("the token is not good")
	ErrPending  error = answerError("a person has to approve it")
	ErrMissing  error = answerError("blobs are missing")
	ErrHash     error = answerError("the content is not what its SHA-256 says")
	ErrTooLarge error = answerError("too large")
	ErrNewer    error = answerError("the database was made by a newer version of this program")
	ErrOlder    error = answerError("the database was made by an older version of this program, and is brought up when the controller starts")
	ErrForeign  error = answerError("the database holds tables of something else")
	ErrNotEmpty error = answerError("the database is not empty")
	ErrMoved    error = answerError("the fleet is in another database now")
	ErrRestored error = answerError("the database was restored from a backup, so what is banned and let in changes again only when a new incarnation was signed and published")
	ErrComing   error = answerError("the fleet was to be moved into this database, and has not come whole")
)

// answerError is one of the errors above.
type answerError string

func (e answerError) Error() string { return string(e) }

// Answered says that an error is an answer of the database, which is there.
func Answered(err error) bool {
	var e answerError
	return errors.As(err, &e)
}

// Store is a fleet's database. Its methods may be called at the same time, and several
// processes may have the same database open.
type Store struct {
	// Now is the clock, set before the store is used.
	Now func() time.Time
	// Clock is that of an SQLite database, by which bans begin and end; nil: Now.
	Clock func() time.Time

	dialect dialect
	writer  *sql.DB
	reader  *sql.DB // the same as writer for PostgreSQL
	texts   sync.Map
	still   func() error // says that the file is another one than was opened; nil: there is none
	bell    bell         // of revisions
	lively  bell         // of the log of bans and allows
	bounds  sync.Map     // how many bans and allows hold at most: bound by kind
	stop    context.CancelFunc
	stopped sync.WaitGroup
}

// Open opens a database, "sqlite:PATH" or "postgres://…", and brings its tables up to
// what this program has. An SQLite file is made where there is none.
func Open(ctx context.Context, database string) (*Store, error) {
	return opened(ctx, database, os.O_CREATE, func(s *Store) error { return s.migrate(ctx, migrations) })
}

// OpenExisting opens a database beside the controller that it belongs to: it makes no
// file (fs.ErrNotExist) and leaves the tables as they are (ErrOlder, ErrNewer).
func OpenExisting(ctx context.Context, database string) (*Store, error) {
	return opened(ctx, database, 0, func(s *Store) error {
		switch version, err := s.version(ctx, s.reader); {
		case err != nil:
			return err
		case version < len(migrations):
			return ErrOlder
		case version > len(migrations):
			return ErrNewer
		}
		return nil
	})
}

func opened(ctx context.Context, database string, create int, prepare func(*Store) error) (*Store, error) {
	s := &Store{Now: time.Now}
	var err error
	switch scheme, path, _ := strings.Cut(database, ":"); scheme {
	case "sqlite":
		err = s.openSQLite(path, create)
	case "postgres", "postgresql":
		err = s.openPostgres(ctx, database)
	default:
		return nil, fmt.Errorf("no database is called %q: it is sqlite:PATH or postgres://USER@HOST/NAME", scheme)
	}
	if err != nil {
		return nil, err
	}
	if err := prepare(s); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	if s.dialect.listen != nil {
		s.stopped.Go(func() { s.dialect.listen(background, s.writer, func() { s.bell.ring(); s.lively.ring() }) })
	}
	return s, nil
}

// Close ends what waits, and closes the database.
func (s *Store) Close() error {
	if s.stop != nil {
		s.stop()
	}
	s.stopped.Wait()
	err := s.writer.Close()
	if s.reader != s.writer {
		err = errors.Join(err, s.reader.Close())
	}
	return err
}

// querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// query reads rows. Each is given to scan by what takes its columns.
func (s *Store) query(ctx context.Context, q querier, row func(scan func(...any) error) error, text string, args ...any) (err error) {
	rows, err := q.QueryContext(ctx, s.text(text), texts(args)...)
	if err != nil {
		return fmt.Errorf("ask the database: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return fmt.Errorf("read the database's answer: %w", err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read the database's answer: %w", err)
	}
	return nil
}

// one reads the row that there is to be one of; without it the answer is ErrNotFound.
func (s *Store) one(ctx context.Context, q querier, into []any, text string, args ...any) error {
	found := false
	err := s.query(ctx, q, func(scan func(...any) error) error {
		found = true
		return scan(into...)
	}, text, args...)
	if err == nil && !found {
		return ErrNotFound
	}
	return err
}

// text is a statement in the database's own words.
func (s *Store) text(statement string) string {
	if own, ok := s.texts.Load(statement); ok {
		return own.(string)
	}
	own := s.dialect.words.Replace(statement)
	s.texts.Store(statement, own)
	return own
}

// bell wakes those who wait for a change.
type bell struct {
	mu   sync.Mutex
	rung chan struct{}
}

// next is closed by the next ring.
func (b *bell) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung == nil {
		b.rung = make(chan struct{})
	}
	return b.rung
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung != nil {
		close(b.rung)
		b.rung = nil
	}
}
