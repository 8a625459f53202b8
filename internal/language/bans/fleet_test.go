package bans_test

import (
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"sluice/internal/base/addrset"
	"sluice/internal/language/bans"
)

// Bans of a fleet are told from a command's of the same range by their IDs, behind each edit
// and in a journal that was rewritten.
func TestFleetInJournal(t *testing.T) {
	j := bans.Open(t.TempDir())
	now := time.Now().Truncate(time.Second)
	of := func(what, id string, left time.Duration) bans.Ban {
		r, err := addrset.ParseRange(what)
		if err != nil {
			t.Fatal(err)
		}
		b := bans.Ban{What: r, ID: id, Since: now, Until: now.Add(left), By: bans.Author{User: "alice"}, Reason: "scans"}
		if id != "" {
			b.Incarnation = 3
		}
		return b
	}
	add := func(lift []bans.Ban, list ...bans.Ban) {
		t.Helper()
		e := bans.EntryOf(list, now, bans.Author{User: "alice"})
		e.Lift(lift)
		if _, err := j.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	add(nil, of("192.0.2.1", "", time.Hour))
	if _, err := j.Intact(); err != nil || j.HasFleet() {
		t.Fatal("there is nothing of a fleet", err)
	}
	add(nil, of("192.0.2.1", "b", 2*time.Hour), of("192.0.2.1", "a", 3*time.Hour), of("192.0.2.0/24", "c", time.Hour))
	add([]bans.Ban{of("192.0.2.1", "b", 0)}, of("192.0.2.2", "d", time.Hour))
	want := []bans.Ban{of("192.0.2.0/24", "c", time.Hour), of("192.0.2.1", "", time.Hour), of("192.0.2.1", "a", 3*time.Hour), of("192.0.2.2", "d", time.Hour)}
	for range 2 {
		list, err := j.Read()
		if err != nil || len(list.Damaged) > 0 {
			t.Fatal(err, list)
		}
		if diff := gocmp.Diff(want, list.Bans, gocmp.Comparer(func(a, b addrset.Range) bool { return a == b }), gocmp.Comparer(time.Time.Equal)); diff != "" {
			t.Fatal(diff)
		}
		if until, holds := bans.Latest(now, list.Ends(want[1].What)); !holds || !until.Equal(now.Add(3*time.Hour)) {
			t.Error(until, holds)
		}
		if intact, err := j.Intact(); err != nil || !intact || !j.HasFleet() {
			t.Error(intact, err)
		}
		if err := j.Rewrite(list); err != nil {
			t.Fatal(err)
		}
	}
	past, _, err := j.Past()
	if err != nil || len(past) != 1 || past[0].What != want[1].What || !past[0].Lifted {
		t.Errorf("%+v %v", past, err)
	}
	// What was written by hand, or broken, counts as a whole or not at all.
	for _, bad := range []bans.Entry{{LiftedFleet: "a"}, {LiftedFleet: "a b"}, {LiftedFleet: strings.Repeat("a 192.0.2.1 ", 2) + "b"}} {
		if _, err := j.Append(bad); err != nil {
			t.Fatal(err)
		}
	}
	list, err := j.Read()
	if err != nil || len(list.Damaged) != 3 || len(list.Bans) != len(want) {
		t.Errorf("%+v %v", list, err)
	}
}
