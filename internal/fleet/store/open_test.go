package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sluice/internal/lab/testnet"
)

func TestMain(m *testing.M) {
	if database := os.Getenv(writerOf); database != "" {
		writeOn(database)
		return
	}
	defer server.stop()
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
	bin, err := postgresDir()
	if err != nil {
		testnet.Lacks(t, "PostgreSQL", err)
	}
	server.once.Do(func() { server.err = server.start(bin) })
	if server.err != nil {
		t.Fatal(server.err)
	}
	name := fmt.Sprintf("t%d", server.schemas.Add(1))
	server.exec(t, "create schema "+name)
	return server.address("postgres") + "&search_path=" + name
}

// postgresDir is where PostgreSQL's programs are: Debian has a directory for each version.
func postgresDir() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		return "", errors.New("no /usr/lib/postgresql/*/bin/postgres; apt-get install postgresql")
	}
	slices.Sort(found)
	return filepath.Dir(found[len(found)-1]), nil
}

// cluster is a PostgreSQL server of the tests' own, on a Unix socket in its folder.
type cluster struct {
	once     sync.Once
	err      error
	bin, dir string
	cmd      *exec.Cmd
	output   bytes.Buffer
	schemas  atomic.Int64
}

var server cluster

// nobody runs PostgreSQL where root runs the tests: it refuses to be root's.
const nobody = 65534

func (c *cluster) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(c.bin, name), args...)
	// SIGQUIT ends the server and all its processes, should the tests be killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGQUIT}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir, &c.output, &c.output
	return cmd
}

func (c *cluster) start(bin string) (err error) {
	c.bin = bin
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "sluice-postgres-"); err != nil { // shorter than a test's folder: it holds a socket
			return err
		}
	}
	if os.Getuid() == 0 {
		if err := os.Chown(c.dir, nobody, nobody); err != nil {
			return err
		}
	}
	data := filepath.Join(c.dir, "data")
	if err := c.command("initdb", "--pgdata", data, "--username", "fleet", "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions", "--wal-segsize=1").Run(); err != nil {
		return fmt.Errorf("make a database cluster: %w\n%s", err, &c.output)
	}
	return c.run()
}

// run starts the server and waits until it answers.
func (c *cluster) run() error {
	args := []string{"-D", filepath.Join(c.dir, "data")}
	sync := "off" // nobody's machine dies here
	if flag.Lookup("test.bench").Value.String() != "" {
		sync = "on"
	}
	for _, setting := range []string{
		"listen_addresses=", "unix_socket_directories=" + c.dir, "fsync=" + sync, "jit=off", "autovacuum=off",
		"max_connections=200", "shared_buffers=32MB", "log_timezone=GMT", "timezone=GMT",
	} {
		args = append(args, "-c", setting)
	}
	c.cmd = c.command("postgres", args...)
	if err := c.cmd.Start(); err != nil {
		return err
	}
	db, err := sql.Open("pgx", c.address("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if err = db.Ping(); err == nil {
			return nil
		}
		if time.Since(begun) > time.Minute {
			return fmt.Errorf("PostgreSQL does not answer: %w\n%s", err, &c.output)
		}
	}
}

// halt ends the server as if its machine had died.
func (c *cluster) halt() error {
	err := c.cmd.Process.Signal(syscall.SIGQUIT)
	_ = c.cmd.Wait() // it says that it was killed
	return err
}

func (c *cluster) stop() {
	if c.cmd != nil {
		_ = c.halt()
	}
	if c.dir != "" {
		_ = os.RemoveAll(c.dir)
	}
}

func (c *cluster) address(database string) string {
	return (&url.URL{Scheme: "postgres", User: url.User("fleet"), Path: "/" + database, RawQuery: url.Values{"host": {c.dir}}.Encode()}).String()
}

func (c *cluster) exec(t testing.TB, statement string) {
	t.Helper()
	db, err := sql.Open("pgx", c.address("postgres"))
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
