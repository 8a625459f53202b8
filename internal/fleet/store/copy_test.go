package store

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// eachWay runs a test with two new databases, of the same kind and of both.
func eachWay(t *testing.T, test func(t *testing.T, from, to *Store)) {
	t.Helper()
	kinds := map[string]func(testing.TB) string{"sqlite": sqliteDatabase, "postgres": postgresDatabase}
	for a, from := range kinds {
		for b, to := range kinds {
			t.Run(a+"-"+b, func(t *testing.T) {
				t.Parallel()
				test(t, open(t, from(t)), open(t, to(t)))
			})
		}
	}
}

// filled puts a row into each table that the database has, whatever it means: all texts are the
// same, and all numbers, so that what refers to another table finds its row.
func filled(t *testing.T, s *Store) (tables []string) {
	t.Helper()
	names := `select name from sqlite_schema where type = 'table'`
	if s.dialect.lock != "" {
		names = `select tablename from pg_tables where schemaname = current_schema()`
	}
	is(t, "tables", s.query(t.Context(), s.reader, func(scan func(...any) error) error {
		var name string
		err := scan(&name)
		tables = append(tables, name)
		return err
	}, names), nil)
	for range tables { // until all that a row refers to is there
		for _, table := range tables {
			rows, err := s.reader.QueryContext(t.Context(), "select * from "+table+" limit 1")
			is(t, "columns", err, nil)
			types, err := rows.ColumnTypes()
			is(t, "columns", err, nil)
			has := rows.Next()
			is(t, "close", rows.Close(), nil)
			if has {
				continue
			}
			var values []string
			for _, c := range types {
				values = append(values, map[string]string{
					"TEXT": `'é ☃'`, "BIGINT": "1", "INT8": "1", "BLOB": "x'00ff'", "BYTEA": `'\x00ff'`,
				}[c.DatabaseTypeName()])
			}
			_, _ = s.writer.ExecContext(t.Context(), "insert into "+table+" values ("+strings.Join(values, ", ")+")")
		}
	}
	_, err := s.writer.ExecContext(t.Context(), "update fleet set moved = ''")
	is(t, "not moved", err, nil)
	return tables
}

// TestBansAfterRestore: a log that was restored gives no number again that a host may have.
func TestBansAfterRestore(t *testing.T) {
	each(t, func(t *testing.T, to *Store) {
		ctx := t.Context()
		from := open(t, sqliteDatabase(t))
		fleet(t, from)
		ban := holdOf("203.0.113.7", time.Hour)
		held := good[[]Living](t)(from.Hold(ctx, operator, 10, false, []Hold{ban}))
		good[Copied](t)(from.RestoreTo(ctx, to, operator, 2, nil))
		for incarnation := range int64(2) {
			_, err := to.Hold(ctx, operator, 10, false, []Hold{holdOf("203.0.113.8", time.Hour)})
			is(t, "ban", err, ErrRestored)
			_, err = to.Lift(ctx, operator, "unban", "x", []string{ban.ID})
			is(t, "lift", err, ErrRestored)
			is(t, "incarnation", to.NewIncarnation(ctx, operator, incarnation+2), nil)
		}
		same(t, "what holds goes on", good[[]Living](t)(to.Hold(ctx, operator, 10, false, []Hold{ban}))[0].Seq, held[0].Seq+1)
	})
}

// TestCopyEveryTable: no table is left out, also none that was made after this test was written.
func TestCopyEveryTable(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, from, to *Store) {
		tables := filled(t, from)
		if len(tables) < 18 {
			t.Fatalf("tables %v", tables)
		}
		copied := good[Copied](t)(from.CopyTo(t.Context(), to))
		for _, table := range tables {
			var n int64
			is(t, table, to.one(t.Context(), to.reader, []any{&n}, "select count(*) from "+table), nil)
			same(t, "rows in "+table, n, 1)
			if copied.Rows[table] != 1 && table != schemaTable {
				t.Errorf("%s: %d rows are said to be copied", table, copied.Rows[table])
			}
		}
		_, err := from.CopyTo(t.Context(), to)
		is(t, "a database that has something", err, ErrNotEmpty)
		_, err = to.CopyTo(t.Context(), open(t, sqliteDatabase(t)))
		is(t, "the copy of a copy", err, nil)
	})
}

// TestCopyMeanwhile: a copy is of one moment, though others write, and its audit is whole.
func TestCopyMeanwhile(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, from, to *Store) {
		fleet(t, from)
		enrolled(t, from, "web-1")
		large := strings.Repeat("policy ", chunkSize)
		hashes := sent(t, from, large)
		is(t, "publish", from.Publish(t.Context(), operator, Publication{Bundle: &Bundle{Number: 1, SHA256: hashOf("1"), Manifest: []byte("{}"), Level: 1, Blobs: hashes}}), nil)
		ctx, stop := context.WithCancel(t.Context())
		begun, ended := make(chan bool, 1), make(chan bool)
		go func() {
			defer close(ended)
			for n := 0; ctx.Err() == nil; n++ {
				id := fmt.Sprint("token ", n)
				err := from.CreateToken(t.Context(), operator, Token{ID: id, Secret: secretOf(id), Uses: 1, Expires: time.Now().Add(time.Hour)})
				is(t, "token", err, nil)
				if n == 20 {
					begun <- true
				}
			}
		}()
		<-begun
		copied, err := from.CopyTo(t.Context(), to)
		stop()
		<-ended
		is(t, "copy", err, nil)
		same(t, "fleet", good[Fleet](t)(to.Fleet(t.Context())), copied.Fleet)
		report := good[Report](t)(to.Verify(t.Context(), copied.Fleet.Head))
		same(t, "findings", report.Findings, []Finding{})
		same(t, "entries", report.Entries, copied.Rows["audit"])
		// The tokens that were made are those that the audit reports.
		same(t, "tokens", copied.Rows["token"], report.Entries-int64(3))
		same(t, "blobs", readable(t, to), 1)
		enrolled(t, to, "web-2")
		if n := len(good[[]Host](t)(to.Hosts(t.Context()))); n != 2 {
			t.Errorf("%d hosts", n)
		}
	})
}

// TestMove: a fleet goes to another database, and nobody changes anything in the one before;
// a move that died is done by the next, wherever it was.
func TestMove(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, from, to *Store) {
		ctx := t.Context()
		fleet(t, from)
		enrolled(t, from, "web-1")
		published(t, from, 1)
		is(t, "desired", from.SetDesired(ctx, operator, "desired.test", []Desired{{Host: "web-1", Bundle: 1}}), nil)
		before := good[Snapshot](t)(from.Snapshot(ctx))
		other := open(t, sqliteDatabase(t))
		fleet(t, other)
		_, err := from.MoveTo(ctx, other, operator, "old", "other")
		is(t, "into a fleet", err, ErrNotEmpty)
		same(t, "snapshot", good[Snapshot](t)(from.Snapshot(ctx)), before)

		// Died between the two commits, and after the second.
		for _, state := range []string{"", "new"} {
			_, err = from.MoveTo(ctx, to, operator, "old", "new")
			is(t, "move", err, nil)
			for s, moved := range map[*Store]string{from: state, to: coming} {
				_, err = s.writer.ExecContext(ctx, s.text("update fleet set moved = $1"), moved)
				is(t, "set", err, nil)
			}
			_, err = to.Fleet(ctx)
			is(t, "one that has not come whole", err, ErrComing)
			is(t, "a change of it", to.Revoke(ctx, operator, "web-1", "x"), ErrComing)
		}
		_, err = from.MoveTo(ctx, to, operator, "old", "elsewhere")
		is(t, "elsewhere", err, ErrMoved)

		_, err = from.MoveTo(ctx, to, operator, "old", "new")
		is(t, "move", err, nil)
		after := good[Snapshot](t)(to.Snapshot(ctx))
		after.Fleet.Head = before.Fleet.Head
		same(t, "snapshot", after, before)
		report := good[Report](t)(to.Verify(ctx, before.Fleet.Head))
		same(t, "findings", report.Findings, []Finding{})
		same(t, "entries", report.Entries, before.Fleet.Head.Seq+1)

		_, err = from.Fleet(ctx)
		is(t, "the one before", err, ErrMoved)
		if !strings.Contains(fmt.Sprint(err), "new") {
			t.Error(err)
		}
		_, err = from.Wait(ctx, before.Fleet.Revision)
		is(t, "who waits", err, ErrMoved)
		_, err = from.Changes(ctx, 0)
		is(t, "who reads", err, ErrMoved)
		is(t, "who writes", from.Revoke(ctx, operator, "web-1", "x"), ErrMoved)
		_, err = from.MoveTo(ctx, to, operator, "old", "new")
		is(t, "a second time", err, ErrMoved)
		is(t, "the new one", to.Revoke(ctx, operator, "web-1", "x"), nil)
	})
}

// TestDamagedFeed: what cannot be read of what changed is no database that is gone.
func TestDamagedFeed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *Store) {
		fleet(t, s)
		enrolled(t, s, "web-1")
		_, err := s.writer.ExecContext(t.Context(), "update change set entries = '{' where revision = 2")
		is(t, "damage", err, nil)
		same(t, "whole", good[Feed](t)(s.Changes(t.Context(), 1)).Whole, true)
		feed := good[Feed](t)(s.Changes(t.Context(), 2))
		same(t, "whole behind it", feed.Whole, false)
	})
}

// TestPruneAudit: what was removed is named in the chain, and what nobody removed so is missed.
func TestPruneAudit(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		fleet(t, s)
		enrolled(t, s, "web-1", "web-2", "web-3")
		all := good[[]Entry](t)(s.Audit(ctx, 0, 1000))
		head := func(i int) Head { return Head{all[i].Seq, all[i].Hash} }
		_, err := s.PruneAudit(ctx, operator, Head{2, all[0].Hash})
		is(t, "another entry", err, ErrConflict)
		same(t, "removed", good[int64](t)(s.PruneAudit(ctx, operator, head(1))), 2)
		same(t, "removed", good[int64](t)(s.PruneAudit(ctx, operator, head(2))), 1)
		report := good[Report](t)(s.Verify(ctx, head(1), head(2), head(3)))
		same(t, "findings", report.Findings, []Finding{})
		same(t, "floor", report.Floor, head(2))
		same(t, "entries", report.Entries, int64(len(all)-3+2))
		for i := range 4 {
			same(t, "an older head", good[Standing](t)(s.Known(ctx, head(i))), Same)
		}
		same(t, "another head", good[Standing](t)(s.Known(ctx, Head{3, all[0].Hash})), Forked)
		if r := good[Report](t)(s.Verify(ctx, Head{3, all[0].Hash})); len(r.Findings) != 1 {
			t.Errorf("%+v", r.Findings)
		}
		for _, by := range []string{
			`delete from audit where seq = 4`, `update fleet set audit_floor = 4, audit_floor_hash = '` + all[3].Hash + `'`,
		} { // somebody removes one more, and says so where he can
			_, err := s.writer.ExecContext(ctx, by)
			is(t, by, err, nil)
			if r := good[Report](t)(s.Verify(ctx)); len(r.Findings) == 0 {
				t.Errorf("after %s nothing is found", by)
			}
		}
	})
}
