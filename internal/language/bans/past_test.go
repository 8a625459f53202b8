package bans_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/base/addrset"
	"sluice/internal/base/testseed"
	"sluice/internal/language/bans"
)

// written is a journal of entries, which is read at a time.
func written(t *testing.T, now *time.Time, entries ...bans.Entry) bans.Journal {
	t.Helper()
	j := bans.Open(t.TempDir()).By(func() bans.Moment { return bans.Moment{Wall: *now} })
	for _, e := range entries {
		if _, err := j.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	return j
}

func past(t *testing.T, j bans.Journal) []string {
	t.Helper()
	list, damaged, err := j.Past()
	if err != nil || damaged {
		t.Fatal(err, damaged)
	}
	out := []string{}
	for _, p := range list {
		text := fmt.Sprintf("%s %s-%s %q", p.Name(), p.Since.UTC().Format("15:04"), p.Ended.UTC().Format("15:04"), p.Reason)
		if p.Lifted {
			text += fmt.Sprintf(" lifted by %s %q", p.Lifter.User, p.Lifter.Reason)
		}
		out = append(out, text)
	}
	return out
}

func TestPast(t *testing.T) {
	now := at(120)
	banned := func(minute, until int, reason string, list ...string) bans.Entry {
		var of []bans.Ban
		for _, text := range list {
			b := bans.Ban{What: addrset.MustParseRange(text), Since: at(minute), Reason: reason}
			if until > 0 {
				b.Until = at(until)
			}
			of = append(of, b)
		}
		return bans.EntryOf(of, at(minute), bans.Author{User: "ada"})
	}
	lifted := func(minute int, words string) bans.Entry {
		return bans.Entry{Time: at(minute), By: bans.Author{User: "eve", Reason: "was me"}, Lifted: words}
	}
	j := written(t, &now,
		banned(0, 0, "for good", "192.0.2.1", "192.0.2.2"),
		banned(1, 10, "short", "192.0.2.3", "2001:db8::/48"),
		banned(2, 20, "first", "192.0.2.4"),
		banned(3, 30, "second", "192.0.2.4"), // takes the place of the first
		lifted(5, "192.0.2.1 192.0.2.9"),     // of which one was never banned
		banned(6, 40, "again", "192.0.2.1"),
		lifted(15, "2001:db8::/48"), // its time was up
		banned(50, 0, "later", "192.0.2.3"),
		banned(60, 200, "holds", "192.0.2.5"),
	)
	want := []string{
		`192.0.2.1 04:11-04:45 "again"`,
		`192.0.2.4 04:08-04:35 "second"`,
		`192.0.2.3 04:06-04:15 "short"`,
		`2001:db8::/48 04:06-04:15 "short"`,
		`192.0.2.1 04:05-04:10 "for good" lifted by eve "was me"`,
	}
	if diff := cmp.Diff(want, past(t, j)); diff != "" {
		t.Error(diff)
	}
	// A command killed between the two files leaves the old journal beside the new file.
	journal, err := os.ReadFile(j.Path())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := j.Rewrite(&bans.List{Bans: bans.Live(read(t, j).Bans, now)}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, past(t, j)); diff != "" {
			t.Errorf("rewritten: %s", diff)
		}
	}
	if err := os.WriteFile(j.Path(), journal, 0o600); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, past(t, j)); diff != "" {
		t.Errorf("killed between: %s", diff)
	}
	// What is too old is gone; what ends meanwhile is there.
	now = at(150).Add(bans.PastTime - 110*time.Minute)
	if got := past(t, j); !slices.Equal(got, []string{`192.0.2.5 05:05-07:25 "holds"`, want[0]}) {
		t.Errorf("a month later: %q", got)
	}
	path := filepath.Join(filepath.Dir(j.Path()), bans.PastFile)
	if err := os.WriteFile(path, []byte("00000000 {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if list, damaged, err := j.Past(); len(list) != 2 || !damaged || err != nil {
		t.Errorf("damaged: %v %v %v", list, damaged, err)
	}
	if err := os.WriteFile(path, bans.Seal(`{"format":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := j.Past(); err == nil || !strings.Contains(err.Error(), "newer sluice") {
		t.Errorf("of a newer one: %v", err)
	}
}

// A country is banned with what it had then, until the last ban of it is over.
func TestCountries(t *testing.T) {
	now := at(10)
	country := func(code, has string, since, until int) bans.Ban {
		var of []addrset.Range
		for word := range strings.FieldsSeq(has) {
			of = append(of, addrset.MustParseRange(word))
		}
		b := bans.Ban{Country: &bans.Country{Code: code, Data: start, Set: addrset.Of(of...)}, Since: at(since), By: bans.Author{User: "ada"}, Reason: code}
		if until > 0 {
			b.Until = at(until)
		}
		return b
	}
	entry := func(list ...bans.Ban) bans.Entry { return bans.EntryOf(list, list[0].Since, list[0].By) }
	j := written(t, &now,
		entry(country("KP", "192.0.2.0/24 2001:db8::/48", 0, 0), country("SM", "198.51.100.1", 0, 5)),
		entry(country("KP", "192.0.2.0/25", 1, 60), ban(t, "192.0.2.0/24", at(30), "other")),
		entry(country("NO", "203.0.113.0/24", 2, 0)),
		bans.Entry{Time: at(3), By: bans.Author{User: "eve"}, LiftedCountries: "NO LI", Lifted: "203.0.113.0/24"},
	)
	for _, anew := range []string{"", "rewritten: "} {
		list := read(t, j).Live(now)
		if len(list.Countries) != 1 || list.Countries[0].Name() != "KP" || list.Countries[0].By.User != "ada" || !list.Countries[0].Since.Equal(at(1)) ||
			!list.Countries[0].Country.Data.Equal(start) {
			t.Fatalf("%s%+v", anew, list.Countries)
		}
		var wide []string
		for _, p := range bans.Pieces(list.Wide()) {
			wide = append(wide, fmt.Sprint(p.Range, " ", p.Until.Sub(start)))
		}
		if !slices.Equal(wide, []string{"192.0.2.0/25 1h0m0s", "192.0.2.128/25 30m0s"}) {
			t.Errorf("%s%q", anew, wide)
		}
		want := []string{`SM 04:05-04:10 "SM"`, `NO 04:07-04:08 "NO" lifted by eve ""`}
		if diff := cmp.Diff(want, past(t, j)[:2]); diff != "" {
			t.Error(anew, diff)
		}
		if err := j.Rewrite(list); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPastIsBounded(t *testing.T) {
	now := at(60)
	var list []bans.Ban
	var words []string
	for i := range bans.MostPast + 500 {
		text := fmt.Sprintf("198.18.%d.%d", i>>8, i&255)
		list = append(list, bans.Ban{What: addrset.MustParseRange(text), Since: start})
		words = append(words, text)
	}
	lifts := func(minute int, words []string) bans.Entry {
		return bans.Entry{Time: at(minute), Lifted: strings.Join(words, " ")}
	}
	j := written(t, &now, bans.EntryOf(list, start, bans.Author{}), lifts(1, words[:500]), lifts(2, words[500:]))
	for range 2 {
		got, _, err := j.Past()
		if err != nil || len(got) != bans.MostPast || slices.ContainsFunc(got, func(p bans.Past) bool { return p.Ended.Before(at(2)) }) {
			t.Errorf("%d of them, %v", len(got), err)
		}
		if err := j.Rewrite(&bans.List{}); err != nil {
			t.Fatal(err)
		}
	}
}

// However a journal is rewritten between its entries, the same bans are past.
func TestPastOutlivesRewrites(t *testing.T) {
	random := testseed.Rand(t)
	for range 20 {
		now := start
		whole, anew := written(t, &now), written(t, &now)
		for n := range 12 {
			now = at(n * 10)
			e := bans.Entry{Time: now, By: bans.Author{User: fmt.Sprint(n)}}
			for i := range 5 {
				text := fmt.Sprintf("192.0.2.%d", i)
				switch random.IntN(4) {
				case 0:
					e.Groups = append(e.Groups, bans.Group{Until: at(n*10 + 1 + random.IntN(40)), Bans: text})
				case 1:
					e.Lifted += " " + text
				}
			}
			for _, j := range []bans.Journal{whole, anew} {
				if _, err := j.Append(e); err != nil {
					t.Fatal(err)
				}
			}
			if random.IntN(3) == 0 {
				if err := anew.Rewrite(&bans.List{Bans: bans.Live(read(t, anew).Bans, now)}); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(past(t, whole), past(t, anew)); diff != "" {
				t.Fatal(diff)
			}
		}
	}
}

func FuzzPast(f *testing.F) {
	f.Add([]byte(`{"format":1,"past":[{"bans":"203.0.113.7 2001:db8::/48","since":"2026-02-03T04:05:06Z","ended":"2026-02-03T05:05:06Z","lifted":true,"lifter":{"user":"ada"}}]}`))
	f.Add([]byte(`{"past":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		now := at(60)
		j := written(t, &now)
		for _, text := range [][]byte{data, bans.Seal(strings.ReplaceAll(string(data), "\n", " "))} {
			if err := os.WriteFile(filepath.Join(filepath.Dir(j.Path()), bans.PastFile), text, 0o600); err != nil {
				t.Fatal(err)
			}
			list, _, err := j.Past()
			if err != nil {
				continue
			}
			if err := j.Rewrite(&bans.List{}); err != nil {
				t.Fatal(err)
			}
			again, damaged, err := j.Past()
			if err != nil || damaged || len(again) != len(list) {
				t.Fatalf("%v %v: %v, before %v", err, damaged, again, list)
			}
		}
	})
}
