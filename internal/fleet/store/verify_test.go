package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// entry writes one entry of an audit again, with a hash that is right for it.
func rewrite(t *testing.T, s *Store, e Entry) Entry {
	t.Helper()
	var err error
	if e.Hash, err = e.sum(); err != nil {
		t.Fatal(err)
	}
	_, err = s.writer.ExecContext(t.Context(), s.text(`update audit set who = $2, diff = $3, previous = $4, hash = $5 where seq = $1`),
		e.Seq, e.Who, string(e.Diff), e.Previous, e.Hash)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestVerify does to the audit what somebody with the database's password can do.
func TestVerify(t *testing.T) {
	fromFourth := func(t *testing.T, s *Store) (all []Entry) { // rewrites the end of the audit, and its head
		t.Helper()
		all = good[[]Entry](t)(s.Audit(t.Context(), 0, 100))
		last := all[2]
		for _, e := range all[3:] {
			if e.Previous = last.Hash; e.Seq == 4 {
				e.Who = "operator:nobody"
			}
			last = rewrite(t, s, e)
		}
		if _, err := s.writer.ExecContext(t.Context(), "update fleet set audit_hash = '"+last.Hash+"'"); err != nil {
			t.Fatal(err)
		}
		return all
	}
	for name, c := range map[string]struct {
		sql  string // separated by ";"
		do   func(*testing.T, *Store)
		want string // findings, the beginning of each
	}{
		"whole":             {"", nil, ""},
		"who changed":       {"update audit set who = 'operator:nobody' where seq = 4", nil, "4 entry 4 was changed: its SHA-256 is"},
		"what changed":      {"update audit set what = 'host.remove' where seq = 4", nil, "4 entry 4 was changed: its SHA-256 is"},
		"when changed":      {"update audit set at = at + 1 where seq = 1", nil, "1 entry 1 was changed: its SHA-256 is"},
		"diff changed":      {`update audit set diff = '{"host":"web-9"}' where seq = 9`, nil, "9 entry 9 was changed: its SHA-256 is"},
		"diff no JSON":      {"update audit set diff = '{' where seq = 4", nil, "4 entry 4 was changed: it is not JSON"},
		"hash gone":         {"update audit set hash = '' where seq = 9", nil, "9 entry 9 was changed|9 entry 9 is not the last one"},
		"dropped":           {"delete from audit where seq = 4", nil, "4 entry 4 is missing"},
		"some dropped":      {"delete from audit where seq in (1, 2, 5, 6)", nil, "1 entries 1 to 2 are missing|5 entries 5 to 6 are missing"},
		"the last dropped":  {"delete from audit where seq > 7", nil, "8 entries 8 to 9 are missing"},
		"all dropped":       {"delete from audit", nil, "1 entries 1 to 9 are missing"},
		"swapped":           {"update audit set seq = 0 where seq = 4; update audit set seq = 4 where seq = 5; update audit set seq = 5 where seq = 0", nil, "4 entry 4 was changed|5 entry 5 was changed"},
		"moved up":          {"delete from audit where seq = 4; update audit set seq = 4 where seq = 5", nil, "4 entry 4 was changed|5 entry 5 is missing"},
		"put in at the end": {"insert into audit select 10, at, who, what, diff, hash, hash from audit where seq = 9", nil, "10 entry 10 was changed|10 entry 10 is not the last one"},
		"another head":      {"update fleet set audit_hash = 'x'", nil, "9 entry 9 is not the last one that was written: that is entry 9 with SHA-256 x"},
		"with its hash": {"", func(t *testing.T, s *Store) {
			e := good[[]Entry](t)(s.Audit(t.Context(), 3, 1))[0]
			e.Who = "x"
			rewrite(t, s, e)
		}, "5 entry 5 follows another entry 4"},
		"the whole end":       {"", func(t *testing.T, s *Store) { fromFourth(t, s) }, ""},
		"the whole end, kept": {"", nil, "9 entry 9 has SHA-256"},
		"an older copy, kept": {"delete from audit where seq > 7; update fleet set audit_seq = 7, audit_hash = (select hash from audit where seq = 7)", nil, "9 entry 9 was kept by somebody, and this audit ends with 7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, sqliteDatabase(t))
			ctx := t.Context()
			fleet(t, s)
			enrolled(t, s, "web-1", "web-2", "web-3", "web-4", "web-5", "web-6", "web-7")
			var kept []Head
			if strings.HasSuffix(name, "kept") {
				kept = []Head{good[Fleet](t)(s.Fleet(ctx)).Head}
			}
			for _, statement := range strings.Split(c.sql, ";") {
				if _, err := s.writer.ExecContext(ctx, statement); err != nil {
					t.Fatal(err)
				}
			}
			if c.do != nil {
				c.do(t, s)
			}
			if name == "the whole end, kept" {
				fromFourth(t, s)
			}
			r := good[Report](t)(s.Verify(ctx, kept...))
			var found []string
			for _, f := range r.Findings {
				found = append(found, fmt.Sprintf("%d %s", f.Seq, f.What))
			}
			want := strings.FieldsFunc(c.want, func(r rune) bool { return r == '|' })
			for i, w := range want {
				if len(found) != len(want) || !strings.HasPrefix(found[i], w) {
					t.Fatalf("found\n%s\nwant\n%s", strings.Join(found, "\n"), strings.Join(want, "\n"))
				}
			}
			same(t, "findings", len(found), len(want))
		})
	}
}

func TestVerifyMuch(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		_, err := s.Verify(ctx)
		is(t, "no fleet", err, ErrNotFound)
		fleet(t, s)
		hosts := make([]string, 2*mostFindings)
		for i := range hosts {
			hosts[i] = fmt.Sprint("web-", i)
		}
		enrolled(t, s, hosts...)
		if _, err := s.writer.ExecContext(ctx, "update audit set who = 'x'"); err != nil {
			t.Fatal(err)
		}
		r := good[Report](t)(s.Verify(ctx))
		same(t, "entries, findings, more", []int{int(r.Entries), len(r.Findings), int(r.More)}, []int{2*mostFindings + 2, mostFindings, mostFindings + 2})
	})
}

func TestKnown(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		fleet(t, s)
		enrolled(t, s, "web-1")
		head := good[Fleet](t)(s.Fleet(ctx)).Head
		for h, want := range map[Head]Standing{{}: Same, head: Same, {head.Seq, hashOf("x")}: Forked, {head.Seq + 1, head.Hash}: Older} {
			same(t, h.String(), good[Standing](t)(s.Known(ctx, h)), want)
			again, err := ParseHead(h.String())
			if err != nil || again != h {
				t.Errorf("%s: %v %v", h, again, err)
			}
		}
	})
}

// TestRestored puts an older copy of a database in its place: an agent's head and revision
// show it, also when the copy has overtaken them.
func TestRestored(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, sqliteDatabase(t))
	fleet(t, s)
	enrolled(t, s, "web-1")
	copied := filepath.Join(t.TempDir(), "copy.db")
	if _, err := s.writer.ExecContext(ctx, "vacuum into '"+copied+"'"); err != nil {
		t.Fatal(err)
	}
	is(t, "revoke", s.Revoke(ctx, operator, "web-1", "stolen"), nil)
	told := good[Fleet](t)(s.Fleet(ctx))

	restored := open(t, "sqlite:"+copied)
	same(t, "at once", good[Standing](t)(restored.Known(ctx, told.Head)), Older)
	same(t, "the feed at once", good[Feed](t)(restored.Changes(ctx, told.Revision)).Whole, true)
	for n := range 3 {
		is(t, "a change", restored.SetLabels(ctx, operator, "web-1", map[string]string{"n": fmt.Sprint(n)}, nil), nil)
	}
	now := good[Fleet](t)(restored.Fleet(ctx))
	if now.Position.Compare(told.Position) <= 0 {
		t.Fatalf("%v has not overtaken %v", now, told)
	}
	same(t, "overtaken", good[Standing](t)(restored.Known(ctx, told.Head)), Forked)
	if r := good[Report](t)(restored.Verify(ctx, told.Head)); len(r.Findings) != 1 || r.Findings[0].Seq != told.Head.Seq {
		t.Errorf("%+v", r)
	}
	is(t, "a new incarnation", restored.NewIncarnation(ctx, operator, 2), nil)
	if now := good[Fleet](t)(restored.Fleet(ctx)); now.Position.Compare(Position{told.Incarnation, 1 << 60}) <= 0 {
		t.Errorf("%v is not beyond every revision of incarnation %d", now.Position, told.Incarnation)
	}
}

func FuzzParseHead(f *testing.F) {
	for _, text := range []string{"", "0:", "1:" + hashOf("x"), "01:" + strings.ToUpper(hashOf("x")), "1:2", "-1:"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := ParseHead(text)
		if err != nil {
			return
		}
		if again, err := ParseHead(h.String()); err != nil || again != h {
			t.Errorf("%q is %v, and that %v: %v", text, h, again, err)
		}
	})
}

func TestParseHead(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", ":", "1", "1:", "0:" + hashOf(""), "-1:" + hashOf(""), "x:" + hashOf(""), "1:" + hashOf("") + "00", "1:zz", "1:" + hashOf("") + ":"} {
		if h, err := ParseHead(text); err == nil {
			t.Errorf("%q is %v", text, h)
		}
	}
}

// TestHashByHand has other programs make an entry's hash of the line that an export has.
func TestHashByHand(t *testing.T) {
	t.Parallel()
	s := open(t, sqliteDatabase(t))
	fleet(t, s)
	is(t, "revoke", s.Revoke(t.Context(), operator, "nowhere", ""), ErrNotFound)
	enrolled(t, s, "web-<1>&\u2028ü")
	err := s.EachEntry(t.Context(), 0, func(e Entry) error {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		cmd := exec.Command("sh", "-c", `sed 's/,"hash":"[0-9a-f]*"}$/}/' | tr -d '\n' | sha256sum`)
		cmd.Stdin = strings.NewReader(string(line) + "\n")
		out, err := cmd.Output()
		if !strings.HasPrefix(string(out), e.Hash+" ") {
			t.Errorf("%s: %s", line, out)
		}
		return err
	})
	is(t, "read", err, nil)
}

func TestOpenExisting(t *testing.T) {
	t.Parallel()
	database := sqliteDatabase(t)
	_, err := OpenExisting(t.Context(), database)
	is(t, "no file", err, fs.ErrNotExist)
	if files, err := filepath.Glob(strings.TrimPrefix(database, "sqlite:") + "*"); err != nil || len(files) > 0 {
		t.Errorf("%v was made: %v", files, err)
	}
	s := open(t, database)
	for version, want := range map[int]error{1: ErrOlder, len(migrations): nil, len(migrations) + 1: ErrNewer} {
		if _, err := s.writer.ExecContext(t.Context(), fmt.Sprint("update sluice_schema set version = ", version)); err != nil {
			t.Fatal(err)
		}
		again, err := OpenExisting(t.Context(), database)
		if err == nil {
			err = again.Close()
		}
		if !errors.Is(err, want) {
			t.Errorf("version %d: %v, want %v", version, err, want)
		}
	}
}
