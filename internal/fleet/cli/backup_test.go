package cli

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"sluice/internal/cli/command"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/archive"
	"sluice/internal/fleet/store"
	"sluice/internal/lab/testnet"
)

const firstPolicy = "version: 1\nfleet: example.net\nparts: [parts/*.yaml]\nbans: {}\n"

// lives founds a fleet with a host and a bundle, and runs its controller.
func lives(t *testing.T) (f *founded, end func()) {
	t.Helper()
	f = found(t)
	end = f.serve(t)
	token, _ := run(t, 0, "token", "create", "--dir", f.dir, "--repository", f.repository, "--labels", "role=web", "--for", "1h")
	enrol(t, "web-1", token)
	f.sign(t, map[string]string{"fleet.yaml": firstPolicy, "parts/10-base.yaml": "version: 1\ninput: {default: drop}\n"})
	run(t, 0, "publish", "--dir", f.dir, "--repository", f.repository)
	return f, end
}

// TestBackup: what was copied of a controller that runs is a controller again, in either kind
// of database, encrypted or not.
func TestBackup(t *testing.T) {
	f, end := lives(t)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	key, err := age.GenerateX25519Identity()
	ok(t, err)
	ok(t, os.WriteFile(file("age.key"), []byte("# made here\n"+key.String()+"\n"), 0o600))
	t.Setenv("TMPDIR", file("nowhere")) // no secret goes there
	out, errOut := run(t, 0, "backup", "--dir", f.dir, file("open"))
	has(t, out, "the fleet example.net at revision ", "1 host, ", "without the controller's keys")
	has(t, errOut+".", ".")
	_, errOut = run(t, 0, "backup", "--dir", f.dir, "--keys", file("keys"))
	has(t, errOut, "the controller's private keys are in "+file("keys")+", not encrypted")
	before, _ := run(t, 0, "audit", "export", "--dir", f.dir)
	out, errOut = run(t, 0, "backup", "--dir", f.dir, "--keys", "--recipient", key.Recipient().String(), file("sealed"), "--json")
	has(t, out, `"encrypted": true`, `"keys": true`)
	if errOut != "" {
		t.Error(errOut)
	}
	_, errOut = run(t, 2, "backup", "--dir", f.dir, file("open"))
	has(t, errOut, "open exists already, and is not overwritten")
	_, errOut = run(t, 2, "backup", "--dir", f.dir, "--keys", filepath.Join(f.dir, "here"))
	has(t, errOut, "put it elsewhere")
	_, errOut = run(t, 2, "backup", "--dir", f.dir, "--recipient", "age1x", file("x"))
	has(t, errOut, "--recipient age1x: not an age public key")
	left, err := filepath.Glob(file("*"))
	if err != nil || len(left) != 4 {
		t.Errorf("%v %v", left, err)
	}
	for _, name := range []string{"open", "keys"} { // no secret is where none was asked for
		text, err := os.ReadFile(filepath.Join(f.dir, "ca-key.pem"))
		ok(t, err)
		if is := bytes.Contains(unpacked(t, file(name)), text); is != (name == "keys") {
			t.Errorf("%s has a private key: %v", name, is)
		}
	}
	end()

	ok(t, os.Unsetenv("TMPDIR"))
	databases := map[string]string{"sqlite": ""}
	if testnet.PostgresHere() == nil {
		var server testnet.Postgres
		t.Cleanup(server.Stop)
		ok(t, server.Start())
		databases["postgres"] = server.Address("postgres")
	}
	for kind, database := range databases {
		into := filepath.Join(t.TempDir(), "controller")
		at := []string{"--dir", into}
		if database != "" {
			at = append(at, "--database", database)
		}
		_, errOut = run(t, 2, append([]string{"restore", file("sealed")}, at...)...)
		has(t, errOut, "sealed: it is encrypted by age\nhint: --identity")
		_, errOut = run(t, 2, append([]string{"restore", file("open")}, at...)...)
		has(t, errOut, "the keys of the controller are not restored, and "+into+" has none")
		out, _ = run(t, 0, append([]string{"restore", "--identity", file("age.key"), file("sealed")}, at...)...)
		has(t, out, "restored the fleet example.net at revision ", "with 1 host", "sluice-controller sign --restore")
		after, _ := run(t, 0, append([]string{"audit", "export"}, at...)...)
		if !strings.HasPrefix(after, before) || !strings.Contains(after, `"what":"fleet.restore"`) {
			t.Errorf("%s: the audit is\n%s\nand was\n%s", kind, after, before)
		}
		run(t, 0, append([]string{"audit", "verify"}, at...)...)
		for name, mode := range map[string]os.FileMode{"ca-key.pem": 0o600, "ca.pem": 0o644, "trust.json": 0o600} {
			if info, err := os.Stat(filepath.Join(into, name)); err != nil || info.Mode().Perm() != mode {
				t.Errorf("%s: %v %v", name, info, err)
			}
		}
		// It is not empty any more, neither the directory nor the database.
		_, errOut = run(t, 2, append([]string{"restore", file("keys")}, at...)...)
		has(t, errOut, "is not empty: it has ")
		_, errOut = run(t, 2, append([]string{"restore", "--without-keys", file("keys")}, at...)...)
		has(t, errOut, "is not empty: it holds the fleet example.net at revision ")
		again := &founded{repository: f.repository, dir: into, trust: f.trust, policy: f.policy}
		end := again.serve(t, at[2:]...)
		out, _ = run(t, 1, "hosts", "--dir", into)
		has(t, out, "web-1  offline")
		_, errOut = run(t, 2, "ban", "203.0.113.7", "--for", "1h", "-m", "scans", "--dir", into)
		has(t, errOut, "the database was restored from a backup")
		end()
	}

	// The database alone, where the directory has the keys.
	ok(t, os.Rename(filepath.Join(f.dir, "fleet.db"), file("lost.db")))
	run(t, 0, "restore", "--dir", f.dir, file("open"))
	other := found(t)
	ok(t, os.WriteFile(file("short"), []byte("SQLite format 3\x00"), 0o600))
	_, errOut = run(t, 2, "restore", "--dir", other.dir, file("short"))
	has(t, errOut, "short: not a file of this kind\nhint: sluice-controller backup writes one")
}

// unpacked is all that an archive has.
func unpacked(t *testing.T, name string) []byte {
	t.Helper()
	into := t.TempDir()
	f, err := os.Open(name)
	ok(t, err)
	defer f.Close()
	_, files, err := readBackup(f, into)
	ok(t, err)
	var all []byte
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(into, file.Path))
		ok(t, err)
		all = append(all, text...)
	}
	return all
}

// TestRestoreRefuses: of a file that is damaged, of something else or of a newer program,
// nothing gets anywhere.
func TestRestoreRefuses(t *testing.T) {
	f, end := lives(t)
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	run(t, 0, "backup", "--dir", f.dir, "--keys", good)
	end()
	text, err := os.ReadFile(good)
	ok(t, err)
	newer := filepath.Join(dir, "newer.db")
	s, err := store.Open(t.Context(), "sqlite:"+newer)
	ok(t, err)
	ok(t, s.Create(t.Context(), "operator:erika", "example.net", 1))
	ok(t, s.Close())
	setVersion(t, newer, 1000)
	pack := func(version int, about any, files ...archive.Source) []byte {
		var out bytes.Buffer
		ok(t, archive.Write(&out, backupKind, version, about, files))
		return out.Bytes()
	}
	tables, err := os.ReadFile(newer)
	ok(t, err)
	about := backedUp{Keys: true}
	for name, test := range map[string]struct {
		text []byte
		want string
	}{
		"cut":    {text[:len(text)-100], "it is damaged: its end is missing"},
		"bit":    {append(append(bytes.Clone(text[:len(text)/2]), text[len(text)/2]^1), text[len(text)/2+1:]...), "it is damaged: "},
		"empty":  {nil, "not a file of this kind"},
		"policy": {[]byte(firstPolicy), "not a file of this kind"},
		"format": {pack(backupVersion+1, about), "it was written by a newer version of this program"},
		"schema": {pack(1, about, archive.Bytes(backupFleet, 0o600, tables)), "the database was made by a newer version of this program"},
		"none":   {pack(1, about, archive.Bytes("dir/trust.json", 0o600, nil)), "it is damaged: it has no fleet.db"},
		"tables": {pack(1, about, archive.Bytes(backupFleet, 0o600, text)), "file is not a database"},
	} {
		file, into := filepath.Join(dir, name), filepath.Join(t.TempDir(), "controller")
		ok(t, os.WriteFile(file, test.text, 0o600))
		_, errOut := run(t, 2, "restore", "--dir", into, file)
		has(t, errOut, test.want)
		left, err := filepath.Glob(filepath.Join(into, "*.pem"))
		if err != nil || len(left) > 0 {
			t.Errorf("%s leaves %v %v", name, left, err)
		}
		_, errOut = run(t, 2, "run", "--dir", into)
		has(t, errOut, "hint: sluice-controller ")
	}
}

func setVersion(t *testing.T, file string, version int) {
	t.Helper()
	db, err := sql.Open("sqlite", file)
	ok(t, err)
	_, err = db.ExecContext(t.Context(), "update sluice_schema set version = $1", version)
	ok(t, errors.Join(err, db.Close()))
}

// TestKilledInTheMiddle: a backup that is killed leaves no file of its name, and a restore that
// is killed is done by the next, and no controller starts before.
func TestKilledInTheMiddle(t *testing.T) {
	f, end := lives(t)
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	run(t, 0, "backup", "--dir", f.dir, "--keys", good)
	tries := 24
	if testing.Short() {
		tries = 6
	}
	killed := 0
	for n := range tries { // first too early, then too late, then in between
		file, into := filepath.Join(dir, fmt.Sprint("n", n)), filepath.Join(t.TempDir(), "controller")
		for _, line := range [][]string{{"backup", "--dir", f.dir, "--keys", file}, {"restore", "--dir", into, good}} {
			cmd := exec.Command("sluice-controller", line...)
			ok(t, cmd.Start())
			time.Sleep(time.Duration(n*11%tries) * 200 * time.Millisecond / time.Duration(tries))
			_ = cmd.Process.Kill()
			if cmd.Wait() != nil {
				killed++
			}
		}
		if _, err := os.Stat(file); err == nil {
			unpacked(t, file)
		}
		if _, err := os.Stat(into); err == nil && restoredWhole(into) != nil {
			_, errOut := run(t, 2, "run", "--dir", into)
			has(t, errOut, "a restore was interrupted")
		}
		if _, err := os.Stat(filepath.Join(into, "trust.json")); err != nil || restoredWhole(into) != nil {
			run(t, 0, "restore", "--dir", into, good)
		}
		run(t, 0, "audit", "verify", "--dir", into)
		_, err := os.Stat(filepath.Join(into, "ca-key.pem"))
		ok(t, err)
	}
	if killed == 0 {
		t.Error("nothing was killed before it had ended")
	}
	end()
}

// TestMigrate: a fleet goes to PostgreSQL and back while its controller runs, which ends; killed
// at any moment, one of both databases is the fleet's, and the next migration ends it.
func TestMigrate(t *testing.T) {
	if err := testnet.PostgresHere(); err != nil {
		testnet.Lacks(t, "PostgreSQL", err)
	}
	var server testnet.Postgres
	t.Cleanup(server.Stop)
	ok(t, server.Start())
	f, end := lives(t)
	end()
	dir := t.TempDir()
	first, postgres, back := "sqlite:"+filepath.Join(f.dir, "fleet.db"), server.Address("postgres")+"&password=secret", "sqlite:"+filepath.Join(dir, "back.db")
	for _, wrong := range [][2]string{{"sqlite:" + filepath.Join(dir, "none.db"), back}, {first, "mysql:x"}} {
		run(t, 2, "migrate", "--from", wrong[0], "--to", wrong[1])
	}
	_, errOut := run(t, 2, "migrate", "--from", first, "--to", first)
	has(t, errOut, "--to: the database is not empty")
	hosts, _ := run(t, 0, "audit", "export", "--database", first)
	for _, way := range [][2]string{{first, postgres}, {postgres, back}} {
		var out, errOut bytes.Buffer
		ended := make(chan int, 1)
		go func() {
			ended <- command.Run(Root(), []string{"run", "--dir", f.dir, "--database", way[0], "--listen", "127.0.0.1:0"}, nil, &out, &errOut)
		}()
		for {
			if _, err := api.NewClient(f.dir).Status(t.Context()); err == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		said, _ := run(t, 0, "migrate", "--from", way[0], "--to", way[1])
		has(t, said, "moved the fleet example.net at revision ", "1 host, to ", "start its controllers with --database")
		if strings.Contains(said, "secret") {
			t.Error(said)
		}
		if status := <-ended; status != 2 {
			t.Errorf("the controller on the database before ends with %d: %s", status, &errOut)
		}
		has(t, errOut.String(), "the fleet is in another database now: "+way[1][:8], "hint: --database names it")
		_, refused := run(t, 2, "run", "--dir", f.dir, "--database", way[0], "--listen", "127.0.0.1:0")
		has(t, refused, "the fleet is in another database now: "+way[1][:8], "hint: --database names it")
		_, refused = run(t, 2, "audit", "export", "--database", way[0])
		has(t, refused, "hint: --database names it")
		is, _ := run(t, 0, "audit", "export", "--database", way[1])
		if !strings.HasPrefix(is, hosts) || is == hosts {
			t.Errorf("the audit is %s, and was %s", is, hosts)
		}
		hosts = is
	}
	defer f.serve(t, "--database", back)()
	out, _ := run(t, 1, "hosts", "--dir", f.dir)
	has(t, out, "web-1  offline")
}

func TestMigrateKilled(t *testing.T) {
	f, end := lives(t)
	end()
	tries := 20
	if testing.Short() {
		tries = 5
	}
	from, killed := "sqlite:"+filepath.Join(f.dir, "fleet.db"), 0
	for n := range tries {
		to := "sqlite:" + filepath.Join(t.TempDir(), "fleet.db")
		line := []string{"migrate", "--from", from, "--to", to}
		cmd := exec.Command("sluice-controller", line...)
		ok(t, cmd.Start())
		time.Sleep(time.Duration(n*7%tries) * 150 * time.Millisecond / time.Duration(tries))
		_ = cmd.Process.Kill()
		if cmd.Wait() != nil {
			killed++
		}
		usable := 0
		for _, database := range []string{from, to} {
			if s, err := store.OpenExisting(t.Context(), database); err == nil {
				if _, err := s.Fleet(t.Context()); err == nil {
					usable++
				}
				ok(t, s.Close())
			}
		}
		if usable > 1 {
			t.Fatal("both databases can be used")
		}
		if s, err := store.OpenExisting(t.Context(), to); err != nil || command.Run(Root(), []string{"audit", "export", "--database", to}, nil, io.Discard, io.Discard) != 0 {
			run(t, 0, line...)
		} else {
			ok(t, s.Close())
		}
		run(t, 0, "audit", "verify", "--database", to)
		from = to
	}
	if killed == 0 {
		t.Error("nothing was killed before it had ended")
	}
}
