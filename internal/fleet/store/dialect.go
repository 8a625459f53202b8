package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

// dialect is what the two databases say differently. Statements are written in
// PostgreSQL's words, which SQLite knows too, except for these:
//
//	BYTES            the type of bytes
//	EACH(…)          the elements of a JSON list, each in the column value
//	NAMES(…)         the same of a list of strings, as what is behind "in"
//	LOCKED           reads rows that nobody else changes until the transaction ends
type dialect struct {
	words    *strings.Replacer
	snapshot *sql.TxOptions // of a transaction whose reads see one state
	tables   string         // the names of the tables that there are
	lock     string         // held while tables are made
	moving   *sql.TxOptions // of a transaction that reads one state, and lets nobody else change it
	freeze   string         // its first statement
	notify   string         // tells other processes of something new
	clock    string         // the time in microseconds since 1970; "": this process's is the database's
	listen   func(ctx context.Context, db *sql.DB, ring func())
}

var sqlite = dialect{
	words:    strings.NewReplacer("BYTES", "blob", "EACH($1)", "json_each($1)", "NAMES($1)", "(select value from json_each($1))", "LOCKED", ""),
	snapshot: &sql.TxOptions{ReadOnly: true},
	tables:   `select name from sqlite_master where type = 'table' and name not like 'sqlite\_%' escape '\'`,
}

var postgres = dialect{
	words:    strings.NewReplacer("BYTES", "bytea", "EACH($1)", "jsonb_array_elements($1::jsonb)", "NAMES($1)", "(select value from jsonb_array_elements_text($1::jsonb))", "LOCKED", "for update"),
	snapshot: &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead},
	tables:   `select table_name as name from information_schema.tables where table_schema = current_schema()`,
	moving:   &sql.TxOptions{Isolation: sql.LevelRepeatableRead},
	freeze:   `lock table fleet in exclusive mode`,       // which the last step of each change waits for
	lock:     `select pg_advisory_xact_lock(6004238176)`, // any number that is always the same
	notify:   `select pg_notify('sluice', '')`,
	clock:    `select cast(extract(epoch from clock_timestamp()) * 1000000 as bigint)`,
	listen:   listen,
}

// sqliteReaders is how many connections read an SQLite file at the same time. One
// writes, as SQLite has it.
const sqliteReaders = 4

// openSQLite opens a file with a write-ahead log. A transaction that was committed is on
// the disk: synchronous=full has the log flushed by each.
func (s *Store) openSQLite(path string, create int) error {
	if path == "" {
		return errors.New("an SQLite database needs a path: sqlite:PATH")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	// SQLite would make it readable to all, and gives its log the rights of the file.
	made, err := os.OpenFile(path, os.O_RDWR|create, 0o600)
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	opened, err := made.Stat()
	if err := errors.Join(err, made.Close()); err != nil {
		return err
	}
	// What is written to a file that somebody has removed, or put another in place of,
	// nobody reads again.
	s.still = func() error {
		now, err := os.Stat(path)
		if err == nil && !os.SameFile(opened, now) {
			err = fmt.Errorf("%s was replaced while it was open", path)
		}
		return err
	}
	open := func(connections int, pragmas ...string) (*sql.DB, error) {
		values := url.Values{"_txlock": {"immediate"}, "_pragma": append([]string{
			"busy_timeout(10000)", "journal_mode(wal)", "synchronous(full)", "foreign_keys(1)",
		}, pragmas...)}
		db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: values.Encode()}).String())
		if err != nil {
			return nil, fmt.Errorf("open the database: %w", err)
		}
		db.SetMaxOpenConns(connections)
		db.SetMaxIdleConns(connections)
		return db, nil
	}
	s.dialect = sqlite
	if s.writer, err = open(1); err != nil {
		return err
	}
	s.reader, err = open(sqliteReaders, "query_only(1)")
	return err
}

// Connections to PostgreSQL: at most, and left open while nothing is to be done.
const (
	postgresConnections = 16
	postgresIdle        = 4
)

// oldestPostgres is the oldest version that is tried, as server_version_num says it.
const oldestPostgres = 140000

func (s *Store) openPostgres(ctx context.Context, address string) error {
	config, err := pgx.ParseConfig(address)
	if err != nil {
		return fmt.Errorf("the address of the database: %w", err) // without the password
	}
	// A role or a database may say that commits need not wait for the disk. More than
	// the disk, as the standby's apply, may be asked for.
	durable := stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, `select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') in ('off', 'local')`)
		return err
	})
	db := stdlib.OpenDB(*config, durable)
	db.SetMaxOpenConns(postgresConnections)
	db.SetMaxIdleConns(postgresIdle)
	s.dialect, s.writer, s.reader = postgres, db, db
	var version int
	if err := db.QueryRowContext(ctx, `select current_setting('server_version_num')::int`).Scan(&version); err != nil {
		return errors.Join(fmt.Errorf("ask the database: %w", err), db.Close())
	}
	if version < oldestPostgres {
		return errors.Join(fmt.Errorf("PostgreSQL %d is too old: it needs %d or newer", version/10000, oldestPostgres/10000), db.Close())
	}
	return nil
}

// listenAgain is how long after an error the next try to listen begins. Until then the
// poll of [Store.Wait] is what notices a change.
const listenAgain = time.Second

// listen rings whenever another process has made a revision.
func listen(ctx context.Context, db *sql.DB, ring func()) {
	for ctx.Err() == nil {
		_ = listenOnce(ctx, db, ring) // the poll reports a database that is gone
		select {
		case <-ctx.Done():
		case <-time.After(listenAgain):
		}
	}
}

func listenOnce(ctx context.Context, db *sql.DB, ring func()) error {
	c, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return c.Raw(func(driver any) error {
		own, ok := driver.(*stdlib.Conn)
		if !ok {
			return fmt.Errorf("a connection of type %T", driver)
		}
		defer func() { _ = own.Conn().Close(context.WithoutCancel(ctx)) }() // it would go on listening
		if _, err := own.Conn().Exec(ctx, "listen sluice"); err != nil {
			return err
		}
		for {
			ring()
			if _, err := own.Conn().WaitForNotification(ctx); err != nil {
				return err
			}
		}
	})
}

// again says that a transaction was undone because of others at the same time, and
// nothing else is wrong: a deadlock, a serialization failure, or a row that another one
// has made since this one looked.
func again(err error) bool {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return false // SQLite has one writer
	}
	return refused.Code == "40P01" || refused.Code == "40001" || refused.Code == "23505"
}
