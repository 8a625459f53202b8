package bans_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/testseed"
	"sluice/internal/language/bans"
)

func TestRewriteKeepsEverything(t *testing.T) {
	j := bans.Open(t.TempDir())
	var want []bans.Ban
	for i := range 3000 {
		b := ban(t, netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1}).String(), start.Add(time.Duration(i%7)*time.Hour), []string{"a", "b", ""}[i%3])
		b.Since = start.Add(time.Duration(i%5) * time.Minute)
		want = append(want, b)
		if _, err := j.Append(bans.EntryOf([]bans.Ban{b}, b.Since, b.By)); err != nil {
			t.Fatal(err)
		}
	}
	list := read(t, j)
	before := start.Add(-time.Hour)
	if !j.Long(list, before) {
		t.Error("the journal is not long")
	}
	if err := j.Rewrite(list); err != nil {
		t.Fatal(err)
	}
	list = read(t, j)
	same(t, list.Bans, want)
	if j.Long(list, before) {
		t.Error("the journal is still long")
	}
	for _, b := range want[:1000] {
		if _, err := j.Append(bans.EntryOf([]bans.Ban{b}, b.Since, b.By)); err != nil {
			t.Fatal(err)
		}
	}
	if list = read(t, j); j.Long(list, before) {
		t.Error("the journal is long with bans that hold")
	}
	if !j.Long(list, start.Add(24*time.Hour)) {
		t.Error("bans that have ended keep it from being long")
	}
}

// Bans that have nothing in common take more room, and are not rewritten each time.
func TestRewriteOfBansApart(t *testing.T) {
	j := bans.Open(t.TempDir())
	var entries []bans.Entry
	for i := range 5000 {
		b := ban(t, netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1}).String(), time.Time{}, fmt.Sprint("ssh: ", i, " bad passwords"))
		b.Since = start.Add(time.Duration(i) * 1234567 * time.Nanosecond)
		b.Until = b.Since.Add(240 * time.Hour)
		entries = append(entries, bans.EntryOf([]bans.Ban{b}, b.Since, b.By))
	}
	if _, err := j.Append(entries...); err != nil {
		t.Fatal(err)
	}
	if err := j.Rewrite(read(t, j)); err != nil {
		t.Fatal(err)
	}
	if j.Long(read(t, j), start) {
		t.Error("what was rewritten is long")
	}
}

// Random edits against the plain model: a map, to which each entry is applied in turn.
func TestJournalAgainstEachEdit(t *testing.T) {
	random := testseed.Rand(t)
	some := func() (out []addrset.Range) {
		for range random.IntN(6) {
			text := []string{"192.0.2.%d", "192.0.2.%d-192.0.2.9", "2001:db8::%d"}[random.IntN(3)]
			out = append(out, addrset.MustParseRange(fmt.Sprintf(text, random.IntN(6))))
		}
		return out
	}
	for range 100 {
		j, model := bans.Open(t.TempDir()), map[addrset.Range]bans.Ban{}
		for n := range 1 + random.IntN(8) {
			lifted := some()
			var list []bans.Ban
			for _, r := range some() {
				list = append(list, bans.Ban{What: r, Since: start, Reason: fmt.Sprint(n)})
			}
			e := bans.EntryOf(list, start, bans.Author{})
			e.Lifted = bans.Words(lifted)
			if _, err := j.Append(e); err != nil {
				t.Fatal(err)
			}
			for _, r := range lifted {
				delete(model, r)
			}
			for _, b := range list {
				model[b.What] = b
			}
			want := slices.SortedFunc(maps.Values(model), func(a, b bans.Ban) int { return a.What.Compare(b.What) })
			same(t, read(t, j).Bans, want)
		}
	}
}
