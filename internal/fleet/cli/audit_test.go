package cli

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/cli/command"
	"sluice/internal/fleet/store"
)

// run runs one command line and returns what it printed.
func run(t *testing.T, want int, line ...string) (out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	if status := command.Run(Root(), line, nil, &o, &e); status != want {
		t.Errorf("%v: status %d, want %d\n%s%s", line, status, want, &o, &e)
	}
	return o.String(), e.String()
}

func TestAudit(t *testing.T) {
	dir := t.TempDir()
	ctx := t.Context()
	_, errOut := run(t, 2, "audit", "verify", "--dir", dir)
	for _, want := range []string{filepath.Join(dir, "fleet.db") + ": no such file", "hint: --dir"} {
		if !strings.Contains(errOut, want) {
			t.Errorf("%s: no %s", errOut, want)
		}
	}
	s, err := store.Open(ctx, "sqlite:"+filepath.Join(dir, "fleet.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for _, name := range []string{"verify", "export"} {
		if _, errOut := run(t, 2, "audit", name, "--dir", dir); !strings.Contains(errOut, "fleet.db holds no fleet") {
			t.Errorf("%s of no fleet: %s", name, errOut)
		}
	}
	if err := s.Create(ctx, "operator:erika", "example.net", 1); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"web", "db\n\x1b[31m", "vm"} {
		if err := s.CreateToken(ctx, "operator:max", store.Token{ID: id, Secret: [32]byte{id[0]}, Uses: 1}); err != nil {
			t.Fatal(err)
		}
	}

	listed, err := s.Audit(ctx, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	out, _ := run(t, 0, "audit", "export", "--database", "sqlite:"+filepath.Join(dir, "fleet.db"), "--after", "1")
	if lines := strings.Split(out, "\n"); len(lines) != 4 || !strings.HasPrefix(lines[0], `{"seq":2,"at":"`) {
		t.Errorf("export:\n%s", out)
	}

	db, err := sql.Open("sqlite", filepath.Join(dir, "fleet.db")) // as another program has it
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	edit := func(diff string) {
		t.Helper()
		if _, err := db.Exec(`update audit set diff = ? where seq = 2`, diff); err != nil {
			t.Fatal(err)
		}
	}
	edit("\x1b[2J")
	if _, errOut := run(t, 2, "audit", "export", "--dir", dir); !strings.Contains(errOut, "entry 2 cannot be read") || !strings.Contains(errOut, "hint: sluice-controller audit verify") {
		t.Error(errOut)
	}
	if out, _ = run(t, 1, "audit", "verify", "--dir", dir); out != "entry 2 was changed: it is not JSON\n" {
		t.Error(out)
	}
	edit(string(listed[1].Diff))

	head := store.Head{Seq: 4, Hash: listed[3].Hash}
	out, _ = run(t, 0, "audit", "verify", "--dir", dir, "--head", head.String())
	if out != "the audit is intact: 4 entries, head "+head.String()+"\n" {
		t.Error(out)
	}
	head.Seq = 9
	out, _ = run(t, 1, "audit", "verify", "--dir", dir, "--head", head.String())
	if !strings.HasPrefix(out, "entry 9 was kept by somebody, and this audit ends with 4") {
		t.Error(out)
	}
	var report store.Report
	out, _ = run(t, 1, "audit", "verify", "--dir", dir, "--head", head.String(), "--json")
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Findings) != 1 || report.Findings[0].Seq != 9 {
		t.Errorf("%v %s", err, out)
	}
	for line, want := range map[string]string{
		"verify --head 4":             `--head: "4" is not a head of an audit`,
		"export --after -1":           "--after -1",
		"verify --database mysql://x": `no database is called "mysql"`,
	} {
		words := strings.Fields(line)
		if _, errOut := run(t, 2, append([]string{"audit", words[0], "--dir", dir}, words[1:]...)...); !strings.Contains(errOut, want) {
			t.Errorf("%s: %s", line, errOut)
		}
	}
}

// TestAuditList: what the controller lists of the audit steers no terminal, and is no less
// than what is there.
func TestAuditList(t *testing.T) {
	f := found(t)
	if _, errOut := run(t, 2, "audit", "list", "--dir", f.dir); !strings.Contains(errOut, "no controller runs there") {
		t.Error(errOut)
	}
	defer f.serve(t)()
	s, err := store.OpenExisting(t.Context(), "sqlite:"+filepath.Join(f.dir, "fleet.db"))
	ok(t, err)
	defer func() { ok(t, s.Close()) }()
	for i := range mostEntries + 1 {
		ok(t, s.CreateToken(t.Context(), "operator:max", store.Token{ID: fmt.Sprint("db\n\x1b[31m", i), Secret: [32]byte{byte(i), byte(i >> 8)}, Uses: 1}))
	}
	out, _ := run(t, 0, "audit", "list", "--dir", f.dir, "--last", "2")
	if lines := strings.Split(out, "\n"); len(lines) != 4 || !strings.HasPrefix(lines[1], fmt.Sprint(mostEntries+1)) || !strings.Contains(lines[2], "operator:max") || strings.Contains(out, "\x1b") {
		t.Errorf("list:\n%s", out)
	}
	var listed struct {
		Fleet   string
		Entries []store.Entry
	}
	out, _ = run(t, 0, "audit", "list", "--dir", f.dir, "--last", "0", "--json")
	if err := json.Unmarshal([]byte(out), &listed); err != nil || listed.Fleet != "example.net" || len(listed.Entries) != mostEntries+2 || listed.Entries[mostEntries].Hash == "" {
		t.Errorf("list: %v, %d", err, len(listed.Entries))
	}
	db, err := sql.Open("sqlite", filepath.Join(f.dir, "fleet.db")) // as another program has it
	ok(t, err)
	defer db.Close()
	_, err = db.Exec(`update audit set diff = ? where seq = 2`, "\x1b[2J")
	ok(t, err)
	if _, errOut := run(t, 2, "audit", "list", "--dir", f.dir, "--last", "0"); !strings.Contains(errOut, "entry 2 cannot be read") || !strings.Contains(errOut, "hint: sluice-controller audit verify") {
		t.Error(errOut)
	}
	for line, want := range map[string]string{"--last -1": "--last -1", "x": `unknown command "x"`} {
		if _, errOut := run(t, 2, append([]string{"audit", "list", "--dir", f.dir}, strings.Fields(line)...)...); !strings.Contains(errOut, want) {
			t.Errorf("%s: %s", line, errOut)
		}
	}
}

// TestAuditPrune: what was taken to files is verified with what is left.
func TestAuditPrune(t *testing.T) {
	f, end := lives(t)
	end()
	dir := t.TempDir()
	one, two := filepath.Join(dir, "1.jsonl"), filepath.Join(dir, "2.jsonl")
	for _, wrong := range []string{"0", "-1", "99999"} {
		_, errOut := run(t, 2, "audit", "prune", "--dir", f.dir, "--upto", wrong, one)
		has(t, errOut, "--upto "+wrong+": the audit has entries 1 to ")
	}
	out, _ := run(t, 0, "audit", "prune", "--dir", f.dir, "--upto", "2", one)
	has(t, out, "2 entries, removed from the database; the last is 2:")
	_, errOut := run(t, 2, "audit", "prune", "--dir", f.dir, "--upto", "3", one)
	has(t, errOut, "is not overwritten")
	run(t, 0, "audit", "prune", "--dir", f.dir, "--upto", "3", two)
	out, _ = run(t, 0, "audit", "verify", "--dir", f.dir)
	has(t, out, "the audit is intact after entry 3, which was moved to a file")
	out, _ = run(t, 0, "audit", "verify", "--dir", f.dir, one, two)
	has(t, out, "the audit is intact: ")
	out, _ = run(t, 1, "audit", "verify", "--dir", f.dir, two)
	has(t, out, "entries 1 to 2 are missing")
	out, _ = run(t, 1, "audit", "verify", "--dir", f.dir, one)
	has(t, out, "ends with entry 2, and entry 3 was the last one that was removed")
	text, err := os.ReadFile(one)
	ok(t, err)
	ok(t, os.WriteFile(one, bytes.Replace(text, []byte("example.net"), []byte("example.org"), 1), 0o600))
	out, _ = run(t, 1, "audit", "verify", "--dir", f.dir, one, two)
	has(t, out, "entry 1 was changed")
	defer f.serve(t)() // the controller goes on, and a backup is whole
	run(t, 0, "backup", "--dir", f.dir, filepath.Join(dir, "fleet.backup"))
}
