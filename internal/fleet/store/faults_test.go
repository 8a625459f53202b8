package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/base/testseed"
	"sluice/internal/lab/testnet"
)

// fails says that each way to use a store is an error that is not an answer.
func fails(t *testing.T, s *Store, what string, writesAlone bool) {
	t.Helper()
	ctx := t.Context()
	ways := map[string]func() error{
		"labels": func() error {
			return s.SetLabels(ctx, operator, "web-1", map[string]string{"a": strings.Repeat("x", 9000)}, nil)
		},
		"status": func() error { return s.PutStatus(ctx, []Status{{Host: "web-1", Mark: strings.Repeat("x", 9000)}}) },
		"enrol": func() error {
			_, err := s.Enrol(ctx, Enrolment{Secret: secretOf("all"), Host: "new", Key: hashOf("new")})
			return err
		},
		"blob": func() error { return s.PutBlob(ctx, hashOf("blob"), 10, strings.NewReader("blob")) },
		"publish": func() error {
			return s.Publish(ctx, operator, Publication{Metadata: []Metadata{{"timestamp", 9, make([]byte, 9000)}}})
		},
	}
	if !writesAlone {
		reads := map[string]func() error{
			"hosts":        func() error { _, err := s.Hosts(ctx); return err },
			"authenticate": func() error { _, err := s.Authenticate(ctx, "nowhere", hashOf("x")); return err },
			"desired":      func() error { _, err := s.Desired(ctx); return err },
			"changes":      func() error { _, err := s.Changes(ctx, 0); return err },
			"snapshot":     func() error { _, err := s.Snapshot(ctx); return err },
			"wait":         func() error { _, err := s.Wait(ctx, 1<<40); return err },
			"known":        func() error { _, err := s.Known(ctx, Head{1, hashOf("")}); return err },
			"missing":      func() error { _, err := s.MissingBlobs(ctx, []string{hashOf("x")}); return err },
		}
		for name, f := range reads {
			ways[name] = f
		}
	}
	for name, f := range ways {
		if err := f(); err == nil || Answered(err) {
			t.Errorf("%s: %s: %v", what, name, err)
		}
	}
}

// whole says that a store holds what it held and a new write works.
func whole(t *testing.T, s *Store, want Snapshot) {
	t.Helper()
	got := good[Snapshot](t)(s.Snapshot(t.Context()))
	same(t, "what is kept", got, want)
	if r := good[Report](t)(s.Verify(t.Context(), want.Fleet.Head)); len(r.Findings) > 0 {
		t.Errorf("audit: %v", r.Findings)
	}
	revises(t, s, "a write", 1, func() error {
		return s.SetLabels(t.Context(), operator, "web-1", map[string]string{"after": "it"}, nil)
	})
}

// TestDiskFull has the disk take so many bytes more, from none on: what does not fit is an
// error, and nothing of it is kept.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("sluice-test", dir, "tmpfs", 0, "size=16m"); err != nil {
		testnet.Lacks(t, "file systems to mount", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	s := open(t, "sqlite:"+filepath.Join(dir, "fleet.db"))
	fleet(t, s)
	enrolled(t, s, "web-1")
	ballast := filepath.Join(dir, "ballast")
	for room := range 9 { // in pages of the file system; a transaction takes at least that many more
		file, err := os.Create(ballast)
		if err != nil {
			t.Fatal(err)
		}
		page, n := make([]byte, 4096), 0
		for ; err == nil; n++ {
			_, err = file.Write(page)
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		if err := errors.Join(file.Truncate(int64(4096*(n-1-room))), file.Close()); err != nil {
			t.Fatal(err)
		}
		before := good[Snapshot](t)(s.Snapshot(t.Context()))
		if room == 0 {
			fails(t, s, "full", true)
			same(t, "read meanwhile", good[Snapshot](t)(s.Snapshot(t.Context())), before)
		} else {
			labels := map[string]string{"a": strings.Repeat("x", MaxLabels-100)}
			if err := s.SetLabels(t.Context(), operator, "web-1", labels, make([]byte, 1<<16)); err == nil || Answered(err) {
				t.Errorf("with %d pages: %v", room, err)
			}
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		whole(t, s, before)
	}
}

// TestReplaced removes an SQLite file, and puts a copy in its place, while it is open.
func TestReplaced(t *testing.T) {
	t.Parallel()
	database := sqliteDatabase(t)
	path := strings.TrimPrefix(database, "sqlite:")
	s := open(t, database)
	fleet(t, s)
	enrolled(t, s, "web-1")
	before := good[Snapshot](t)(s.Snapshot(t.Context()))
	move := func(from, to string) {
		for _, part := range []string{"", "-wal", "-shm"} {
			if err := os.Rename(from+part, to+part); err != nil {
				t.Fatal(err)
			}
		}
	}
	move(path, path+".away")
	refused := func(what string) {
		t.Helper()
		err := s.SetLabels(t.Context(), operator, "web-1", nil, nil)
		_, reads := s.Wait(t.Context(), 1<<40)
		if err == nil || Answered(err) || reads == nil || Answered(reads) {
			t.Errorf("%s: %v, %v", what, err, reads)
		}
	}
	refused("gone")
	other := open(t, database)
	fleet(t, other)
	refused("another one")
	move(path+".away", path)
	whole(t, s, before)
}

// TestServerGone kills PostgreSQL under a store, and starts it again.
func TestServerGone(t *testing.T) {
	t.Parallel()
	if err := testnet.PostgresHere(); err != nil {
		testnet.Lacks(t, "PostgreSQL", err)
	}
	var own testnet.Postgres
	t.Cleanup(own.Stop)
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	s := open(t, own.Address("postgres"))
	fleet(t, s)
	enrolled(t, s, "web-1")
	for range 2 {
		before := good[Snapshot](t)(s.Snapshot(t.Context()))
		waited := make(chan error, 1)
		go func() {
			_, err := s.Wait(t.Context(), before.Fleet.Revision)
			waited <- err
		}()
		if err := own.Halt(); err != nil {
			t.Fatal(err)
		}
		if err := <-waited; err == nil || Answered(err) {
			t.Errorf("who waited: %v", err)
		}
		fails(t, s, "gone", false)
		if err := own.Run(); err != nil {
			t.Fatal(err)
		}
		whole(t, s, before)
	}
	// It listens again: what another process writes wakes it.
	b := open(t, own.Address("postgres"))
	at := good[Fleet](t)(s.Fleet(t.Context())).Revision
	woken := make(chan Position)
	go func() { woken <- good[Position](t)(s.Wait(t.Context(), at)) }()
	is(t, "change", b.NewIncarnation(t.Context(), operator, 2), nil)
	same(t, "position", <-woken, Position{2, at + 1})
}

// TestServerDiskFull fills the disk of a PostgreSQL that writes: it ends all connections, or
// itself, and goes on once there is room.
func TestServerDiskFull(t *testing.T) {
	if testing.Short() {
		t.Skip("long form only: it makes a database server of its own")
	}
	t.Parallel()
	if err := testnet.PostgresHere(); err != nil {
		testnet.Lacks(t, "PostgreSQL", err)
	}
	dir, err := os.MkdirTemp("", "sluice-postgres-") //nolint:usetesting // another user passes through it
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("sluice-test", dir, "tmpfs", 0, "size=64m"); err != nil {
		testnet.Lacks(t, "file systems to mount", err)
	}
	own := testnet.Postgres{Dir: dir}
	t.Cleanup(func() {
		own.Stop()
		_ = unix.Unmount(dir, unix.MNT_DETACH)
		_ = os.Remove(dir)
	})
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	s := open(t, own.Address("postgres"))
	fleet(t, s)
	enrolled(t, s, "web-1")
	ballast := filepath.Join(dir, "ballast")
	file, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	for page := make([]byte, 4096); err == nil; {
		_, err = file.Write(page)
	}
	if !errors.Is(errors.Join(err, file.Close()), unix.ENOSPC) {
		t.Fatal(err)
	}
	var before Snapshot
	refused := 0
	for n := 0; refused < 20; n++ { // what it has room for in its files it takes
		kept, reads := s.Snapshot(t.Context())
		if reads == nil {
			before = kept
		}
		err := s.Publish(t.Context(), operator, Publication{Metadata: []Metadata{{"timestamp", int64(n + 1), make([]byte, 1<<20)}}})
		if err != nil {
			refused++
		}
		if Answered(err) || Answered(reads) {
			t.Fatalf("%v, %v", err, reads)
		}
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if _, err := s.Fleet(t.Context()); err == nil {
			break
		} else if time.Since(begun) > time.Minute {
			if err := own.Run(); err != nil { // it had ended itself
				t.Fatal(err)
			}
		}
	}
	whole(t, s, before)
}

// TestCommitsWait has a role whose commits do not wait for the disk: the store's do.
func TestCommitsWait(t *testing.T) {
	t.Parallel()
	_ = postgresDatabase(t) // starts the server
	server.exec(t, "create database hurried")
	database := server.Address("hurried")
	for setting, want := range map[string]string{"off": "on", "local": "on", "remote_apply": "remote_apply"} {
		server.exec(t, "alter database hurried set synchronous_commit = "+setting)
		s := open(t, database)
		var got string
		is(t, "setting", s.one(t.Context(), s.writer, []any{&got}, "select current_setting('synchronous_commit')"), nil)
		same(t, setting, got, want)
	}
	s := open(t, sqliteDatabase(t))
	for pragma, want := range map[string]string{"synchronous": "2", "journal_mode": "wal"} {
		var got string
		is(t, "setting", s.one(t.Context(), s.writer, []any{&got}, "pragma "+pragma), nil)
		same(t, pragma, got, want)
	}
}

// TestUpgradeFails has the last of several steps fail: none was done.
func TestUpgradeFails(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		steps := append(migrations[:len(migrations):len(migrations)], "create table a (b bigint)", "create nonsense")
		if err := s.migrate(t.Context(), steps); err == nil || Answered(err) {
			t.Error(err)
		}
		same(t, "version", good[int](t)(s.version(t.Context(), s.reader)), len(migrations))
		fleet(t, s)
		is(t, "brought up", s.migrate(t.Context(), steps[:len(migrations)+1]), nil)
	})
}

// writerOf is the environment variable by which this program is the process that
// [TestKilled] kills: the database, and behind a space the host that it writes to.
const writerOf = "SLUICE_TEST_STORE_WRITER"

// writeOn writes for ever, and says what was acknowledged.
func writeOn(how string) {
	database, host, _ := strings.Cut(how, " ")
	ctx := context.Background()
	s, err := Open(ctx, database)
	for n := 1; err == nil; n++ {
		if err = s.SetLabels(ctx, operator, host, map[string]string{"n": strconv.Itoa(n)}, nil); err == nil {
			_, err = fmt.Println(n)
		}
	}
	fmt.Fprintln(os.Stderr, err)
}

// TestKilled kills two processes that write to one database: what was acknowledged is
// there, and what was not is there or not.
func TestKilled(t *testing.T) {
	for name, database := range map[string]func(testing.TB) string{"sqlite": sqliteDatabase, "postgres": postgresDatabase} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(testseed.Of(t), 0))
			address := database(t)
			s := open(t, address)
			fleet(t, s)
			for range testseed.Rounds(2, 50) {
				hosts := []string{fmt.Sprint("web-", random.Uint32()), fmt.Sprint("web-", random.Uint32())}
				enrolled(t, s, hosts...)
				begin := good[Fleet](t)(s.Fleet(t.Context())).Head.Seq
				until := 1 + random.IntN(40)
				wrote := 0
				acknowledged := make(chan int)
				for _, host := range hosts {
					cmd := exec.Command(os.Args[0])
					cmd.Env = append(os.Environ(), writerOf+"="+address+" "+host)
					cmd.Stderr = os.Stderr
					cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
					out, err := cmd.StdoutPipe()
					if err != nil {
						t.Fatal(err)
					}
					if err := cmd.Start(); err != nil {
						t.Fatal(err)
					}
					go func() { acknowledged <- killAfter(cmd, out, until) }()
				}
				last := []int{<-acknowledged, <-acknowledged} // in no order
				for _, h := range good[[]Host](t)(s.Hosts(t.Context(), hosts...)) {
					n, err := strconv.Atoi(h.Labels["n"])
					if err != nil || n < until {
						t.Errorf("%s has %v, and %d was acknowledged", h.ID, h.Labels, until)
					}
					wrote += n
				}
				if sum := last[0] + last[1]; wrote < sum || wrote > sum+2 {
					t.Errorf("%d writes are there, and %d were acknowledged", wrote, sum)
				}
				r := good[Report](t)(s.Verify(t.Context()))
				if len(r.Findings) > 0 || r.Head.Seq != begin+int64(wrote) {
					t.Errorf("%d writes, and entries from %d to %d: %v", wrote, begin, r.Head.Seq, r.Findings)
				}
			}
		})
	}
}

// killAfter kills a process behind so many lines, and returns how many it wrote in all.
func killAfter(cmd *exec.Cmd, out io.Reader, lines int) (n int) {
	defer func() { _ = cmd.Wait() }() // it was killed
	for scanner := bufio.NewScanner(out); scanner.Scan(); {
		if n++; n == lines {
			time.Sleep(time.Duration(lines) * 50 * time.Microsecond) // between two acknowledgements, somewhere
			_ = cmd.Process.Kill()
		}
	}
	return n
}
