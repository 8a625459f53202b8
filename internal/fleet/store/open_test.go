package store

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"sluice/internal/lab/testnet"
)

func TestMain(m *testing.M) {
	if database := os.Getenv(writerOf); database != "" {
		writeOn(database)
		return
	}
	defer server.Stop()
	m.Run()
}

// each runs a test on a new database of either kind.
func each(t *testing.T, test func(t *testing.T, s *Store)) {
	t.Helper()
	for name, database := range map[string]func(testing.TB) string{"sqlite": sqliteDatabase, "postgres": postgresDatabase} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, database(t)))
		})
	}
}

func open(t testing.TB, database string) *Store {
	t.Helper()
	s, err := Open(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func sqliteDatabase(t testing.TB) string {
	t.Helper()
	return "sqlite:" + filepath.Join(t.TempDir(), "fleet.db")
}

// postgresDatabase is the address of a schema of the test's own, which takes less than a
// database.
func postgresDatabase(t testing.TB) string {
	t.Helper()
	if err := testnet.PostgresHere(); err != nil {
		testnet.Lacks(t, "PostgreSQL", err)
	}
	server.once.Do(func() {
		server.Sync = flag.Lookup("test.bench").Value.String() != ""
		server.err = server.Start()
	})
	if server.err != nil {
		t.Fatal(server.err)
	}
	name := fmt.Sprintf("t%d", server.schemas.Add(1))
	server.exec(t, "create schema "+name)
	return server.Address("postgres") + "&search_path=" + name
}

// cluster is a PostgreSQL server of the tests' own.
type cluster struct {
	testnet.Postgres

	once    sync.Once
	err     error
	schemas atomic.Int64
}

var server cluster

func (c *cluster) exec(t testing.TB, statement string) {
	t.Helper()
	db, err := sql.Open("pgx", c.Address("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(context.WithoutCancel(t.Context()), statement); err != nil {
		t.Fatal(err)
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	for database, want := range map[string]string{
		"mysql://localhost/fleet": `no database is called "mysql"`,
		"sqlite:":                 "needs a path",
		"sqlite:/nowhere/f.db":    "open the database: open /nowhere/f.db: no such file or directory",
		"postgres://:secret@127.0.0.1:1/fleet?connect_timeout=1": "connection refused",
		"postgres://:secret@[::1/fleet":                          "the address of the database",
	} {
		s, err := Open(t.Context(), database)
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %s", database, err, want)
		}
	}
}

func TestForeignAndNewer(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		if err := s.migrate(t.Context(), migrations[:0]); !errors.Is(err, ErrNewer) {
			t.Errorf("newer tables: %v", err)
		}
		if _, err := s.writer.ExecContext(t.Context(), "drop table sluice_schema"); err != nil {
			t.Fatal(err)
		}
		if err := s.migrate(t.Context(), migrations); !errors.Is(err, ErrForeign) {
			t.Errorf("tables of something else: %v", err)
		}
	})
}

func TestRightsOfTheFile(t *testing.T) {
	t.Parallel()
	database := sqliteDatabase(t)
	fleet(t, open(t, database))
	files, err := filepath.Glob(strings.TrimPrefix(database, "sqlite:") + "*")
	if err != nil || len(files) != 3 {
		t.Fatalf("%v: %v", files, err)
	}
	for _, name := range files {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
}
