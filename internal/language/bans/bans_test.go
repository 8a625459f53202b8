package bans_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"sluice/internal/base/addrset"
	"sluice/internal/base/testseed"
	"sluice/internal/language/bans"
)

var start = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)

func ban(t *testing.T, text string, until time.Time, reason string) bans.Ban {
	return bans.Ban{What: addrset.MustParseRange(text), Since: start, Until: until, By: bans.Author{User: "ada", From: "192.0.2.99"}, Reason: reason}
}

func read(t *testing.T, j bans.Journal) *bans.List {
	t.Helper()
	list, err := j.Read()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func same(t *testing.T, got, want []bans.Ban) {
	t.Helper()
	if diff := cmp.Diff(texts(want), texts(got)); diff != "" {
		t.Errorf("bans (-want +got):\n%s", diff)
	}
}

func texts(list []bans.Ban) []string {
	out := []string{}
	for _, b := range list {
		until := "-"
		if !b.Until.IsZero() {
			until = b.Until.UTC().Format(time.RFC3339)
		}
		out = append(out, strings.Join([]string{b.Name(), b.Set().String(), b.Since.UTC().Format(time.RFC3339), until, b.By.User, b.By.From, b.Reason}, "|"))
	}
	return out
}

func TestJournalKeepsWhatWasBanned(t *testing.T) {
	j := bans.Open(t.TempDir())
	if list := read(t, j); len(list.Bans) > 0 || !list.Settled {
		t.Fatalf("an empty journal comes to %+v", list)
	}
	one := ban(t, "203.0.113.7", start.Add(time.Hour), "ssh: too many tries")
	two := ban(t, "2001:db8::/48", time.Time{}, "")
	three := ban(t, "203.0.113.4-203.0.113.9", time.Time{}, "")
	for _, e := range []bans.Entry{
		bans.EntryOf([]bans.Ban{two, one}, start, one.By),
		bans.EntryOf([]bans.Ban{three}, start, one.By),
	} {
		if _, err := j.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	list := read(t, j)
	same(t, list.Bans, []bans.Ban{three, one, two})
	if list.Settled {
		t.Error("nothing said that the kernel has it")
	}
	if err := j.Settle(); err != nil {
		t.Fatal(err)
	}
	if settled, err := j.Settled(); err != nil || !settled {
		t.Errorf("settled is %v, %v", settled, err)
	}
	if _, err := j.Append(bans.Entry{Time: start, Lifted: "203.0.113.7 198.51.100.1"}); err != nil {
		t.Fatal(err)
	}
	if settled, err := j.Settled(); err != nil || settled {
		t.Errorf("settled is %v, %v behind a new entry", settled, err)
	}
	same(t, read(t, j).Bans, []bans.Ban{three, two})
}

func TestJournalSecondBanTakesThePlaceOfTheFirst(t *testing.T) {
	j := bans.Open(t.TempDir())
	first, second := ban(t, "203.0.113.7", time.Time{}, "first"), ban(t, "203.0.113.7", start.Add(time.Minute), "second")
	for _, b := range []bans.Ban{first, second} {
		if _, err := j.Append(bans.EntryOf([]bans.Ban{b}, start, b.By)); err != nil {
			t.Fatal(err)
		}
	}
	same(t, read(t, j).Bans, []bans.Ban{second})
}

// A machine may lose its power, or the command its life, at any byte: what was
// written before stands, and what comes later is not swallowed.
func TestJournalCutAnywhere(t *testing.T) {
	dir := t.TempDir()
	j := bans.Open(dir)
	one, two, three := ban(t, "203.0.113.7", time.Time{}, "a"), ban(t, "203.0.113.8", time.Time{}, "b"), ban(t, "203.0.113.9", time.Time{}, "c")
	if _, err := j.Append(bans.EntryOf([]bans.Ban{one}, start, one.By)); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, bans.File))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Append(bans.EntryOf([]bans.Ban{two}, start, two.By)); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(dir, bans.File))
	if err != nil {
		t.Fatal(err)
	}
	for n := len(before); n <= len(whole); n++ {
		cut := bans.Open(t.TempDir())
		if err := os.WriteFile(filepath.Join(cutDir(cut), bans.File), whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		want := []bans.Ban{one}
		if n >= len(whole)-1 { // the last byte ends the line
			want = append(want, two)
		}
		same(t, read(t, cut).Bans, want)
		if _, err := cut.Append(bans.EntryOf([]bans.Ban{three}, start, three.By)); err != nil {
			t.Fatal(err)
		}
		same(t, read(t, cut).Bans, append(want, three))
	}
}

func cutDir(j bans.Journal) string { return filepath.Dir(j.Path()) }

func TestJournalDamage(t *testing.T) {
	dir := t.TempDir()
	j := bans.Open(dir)
	for _, text := range []string{"203.0.113.7", "203.0.113.8", "203.0.113.9"} {
		b := ban(t, text, time.Time{}, "x")
		if _, err := j.Append(bans.EntryOf([]bans.Ban{b}, start, b.By)); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, bans.File)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := strings.Replace(string(data), "203.0.113.8", "203.0.113.6", 1)
	if err := os.WriteFile(path, []byte(damaged), 0o600); err != nil {
		t.Fatal(err)
	}
	list := read(t, j)
	same(t, list.Bans, []bans.Ban{ban(t, "203.0.113.7", time.Time{}, "x"), ban(t, "203.0.113.9", time.Time{}, "x")})
	if intact, err := j.Intact(); err != nil || intact {
		t.Errorf("a damaged journal is intact: %v, %v", intact, err)
	}
	if !slices.Equal(list.Damaged, []int{2}) {
		t.Errorf("damaged lines %v", list.Damaged)
	}
	if err := j.Rewrite(list); err != nil {
		t.Fatal(err)
	}
	same(t, read(t, j).Bans, list.Bans)
	if kept, err := os.ReadFile(path + ".damaged"); err != nil || string(kept) != damaged {
		t.Errorf("what was damaged is not kept: %v", err)
	}
}

func TestJournalOfANewerSluice(t *testing.T) {
	j := bans.Open(t.TempDir())
	if _, err := j.Append(bans.Entry{Time: start, Lifted: "203.0.113.7"}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(j.Path())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(j.Path(), bans.Seal(strings.Replace(string(data[9:len(data)-1]), `"format":1`, `"format":3`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Read(); err == nil || !strings.Contains(err.Error(), "newer sluice") {
		t.Errorf("got %v", err)
	}
}

// Pieces against the plain model: for every address, the last end of the bans
// that hold it.
func TestPiecesAgainstEachAddress(t *testing.T) {
	random := testseed.Rand(t)
	for range 500 {
		var list []bans.Ban
		for range random.IntN(8) + 1 {
			a, b := random.IntN(256), random.IntN(256)
			at := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{255, 255, 255, byte(n)}) }
			until := time.Time{}
			if n := random.IntN(4); n > 0 {
				until = start.Add(time.Duration(n) * time.Hour)
			}
			list = append(list, bans.Ban{What: addrset.Range{From: at(min(a, b)), To: at(max(a, b))}, Until: until})
		}
		slices.SortFunc(list, func(a, b bans.Ban) int {
			if c := a.What.From.Compare(b.What.From); c != 0 {
				return c
			}
			return a.What.To.Compare(b.What.To)
		})
		pieces := bans.Pieces(list)
		for n := range 256 {
			at := netip.AddrFrom4([4]byte{255, 255, 255, byte(n)})
			in := func(r addrset.Range) bool { return r.From.Compare(at) <= 0 && at.Compare(r.To) <= 0 }
			want, banned := time.Time{}, false
			for _, b := range list {
				if !in(b.What) {
					continue
				}
				if !banned || b.Until.IsZero() || !want.IsZero() && b.Until.After(want) {
					want = b.Until
				}
				banned = true
			}
			found := 0
			for _, p := range pieces {
				if in(p.Range) {
					found++
					if !p.Until.Equal(want) {
						t.Fatalf("%s is banned until %v in %v, not %v of %v", at, p.Until, pieces, want, texts(list))
					}
				}
			}
			if found > 1 || (found == 1) != banned {
				t.Fatalf("%s is in %d pieces of %v; banned is %v by %v", at, found, pieces, banned, texts(list))
			}
		}
	}
}

func TestReadInput(t *testing.T) {
	got, err := bans.ReadInput("list", strings.NewReader("\ufeff# head\n203.0.113.7 ssh:   too many\ttries # yesterday\n\n 2001:db8::/48\n203.0.113.1-203.0.113.3\x1b[31m\n"))
	if err == nil {
		t.Errorf("an escape sequence is not part of an address: %v", got)
	}
	got, err = bans.ReadInput("list", strings.NewReader("\ufeff# head\n203.0.113.7 ssh:   too many\ttries \x1b[31m # yesterday\r\n\n 2001:db8::/48\n203.0.113.1-203.0.113.3"))
	if err != nil {
		t.Fatal(err)
	}
	want := []bans.Named{
		{What: addrset.MustParseRange("203.0.113.7"), Reason: "ssh: too many tries [31m"},
		{What: addrset.MustParseRange("2001:db8::/48")},
		{What: addrset.MustParseRange("203.0.113.1-203.0.113.3")},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	got, err = bans.ReadInput("list", strings.NewReader("203.0.113.7 for 90m ssh: too many\n2001:db8::1 \tfor  3650d\nDE for\nNO for no reason\n"))
	if err != nil {
		t.Fatal(err)
	}
	want = []bans.Named{
		{What: addrset.MustParseRange("203.0.113.7"), For: 90 * time.Minute, Reason: "ssh: too many"},
		{What: addrset.MustParseRange("2001:db8::1"), For: bans.Longest},
		{Country: "DE", Reason: "for"},
		{Country: "NO", Reason: "for no reason"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	for _, bad := range []string{"for 1", "for 1hh", "for 0s", "for 3651d", "for 40 bad passwords", "for 1e9h"} {
		if got, err := bans.ReadInput("list", strings.NewReader("203.0.113.7 "+bad)); err == nil || !strings.HasPrefix(err.Error(), "list:1:1: ") {
			t.Errorf("%s: %v, %v", bad, got, err)
		}
	}
	_, err = bans.ReadInput("list", strings.NewReader("203.0.113.7\n  nonsense here\n"))
	if err == nil || !strings.HasPrefix(err.Error(), "list:2:3: ") {
		t.Errorf("got %v", err)
	}
	if long := bans.Reason(strings.Repeat("ä", 400)); len(long) != bans.MaxReason {
		t.Errorf("a long reason has %d bytes", len(long))
	}
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte("00000000 {}\n"))
	f.Add(bans.Seal(`{"format":1,"time":"2026-02-03T04:05:06Z","ban":[{"bans":"203.0.113.7 2001:db8::/48"}]}`))
	f.Add(bans.Seal(`{"format":1,"lift":"203.0.113.7","kept":[{"bans":"203.0.113.1-203.0.113.2","since":"2026-02-03T04:05:06Z"}]}`))
	f.Add(bans.Seal(`{"settled":true}`))
	f.Add(bans.Seal(`{"format":1,"time":"2026-02-03T04:05:06Z","countries":[{"country":"DE","bans":"203.0.113.7 2001:db8::/48"}],"lift-countries":"NO"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		// What a checksum guards is fuzzed too: every line gets the right one.
		for _, text := range [][]byte{data, bans.Seal(strings.ReplaceAll(string(data), "\n", " "))} {
			if err := os.WriteFile(filepath.Join(dir, bans.File), text, 0o600); err != nil {
				t.Fatal(err)
			}
			j := bans.Open(dir)
			list, err := j.Read()
			if err != nil {
				continue
			}
			if settled, err := j.Settled(); err != nil || settled && !list.Settled {
				t.Fatalf("settled at a glance, and not when read: %q, %v", text, err)
			}
			if err := j.Rewrite(list); err != nil {
				t.Fatal(err)
			}
			again, err := j.Read()
			if err != nil || len(again.Damaged) > 0 {
				t.Fatalf("rewritten it cannot be read: %v, %v", err, again)
			}
			same(t, again.Bans, list.Bans)
			same(t, again.Countries, list.Countries)
			for _, four := range []bool{true, false} {
				bans.Pieces(slices.DeleteFunc(slices.Clone(list.Bans), func(b bans.Ban) bool { return b.What.From.Is4() != four }))
			}
		}
	})
}

func FuzzReadInput(f *testing.F) {
	f.Add("203.0.113.7 reason # remark\n2001:db8::/32\n")
	f.Add("\ufeff10.0.0.1-10.0.0.9\r\n\x00")
	f.Add("de a flood\nKP\n")
	f.Add("203.0.113.7 for 1h30m a reason\n203.0.113.8 for no reason\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := bans.ReadInput("x", strings.NewReader(text))
		if err != nil {
			return
		}
		for _, n := range got {
			if n.What.IsValid() == (n.Country != "") || n.Country != strings.ToUpper(n.Country) || n.For < 0 || n.For > bans.Longest || len(n.Reason) > bans.MaxReason || strings.ContainsAny(n.Reason, "\n\x1b\x00") || bans.Reason(n.Reason) != n.Reason {
				t.Fatalf("%q gives %v", text, n)
			}
		}
	})
}

// 100,000 bans in one call.
func BenchmarkJournal(b *testing.B) {
	var list []bans.Ban
	for i := range 100_000 {
		a := netip.AddrFrom4([4]byte{100, byte(i >> 16), byte(i >> 8), byte(i)})
		list = append(list, bans.Ban{What: addrset.Range{From: a, To: a}, Since: start, Reason: "scanner"})
	}
	for b.Loop() {
		j := bans.Open(b.TempDir())
		if _, err := j.Append(bans.EntryOf(list, start, bans.Author{User: "ada"})); err != nil {
			b.Fatal(err)
		}
		if got, err := j.Read(); err != nil || len(got.Bans) != len(list) {
			b.Fatal(err)
		}
	}
}

// What is in the journal's place and is no file, or has no end, is a damaged
// journal: it is neither waited for nor written, and makes way for a new one.
func TestJournalThatIsNoFile(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"a FIFO":   func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a device": func(path string) error { return os.Symlink("/dev/zero", path) },
		"endless":  func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40)) },
	} {
		t.Run(name, func(t *testing.T) {
			j := bans.Open(t.TempDir())
			if err := put(j.Path()); err != nil {
				t.Fatal(err)
			}
			if settled, err := j.Settled(); settled || err != nil {
				t.Errorf("settled %v, %v", settled, err)
			}
			if intact, err := j.Intact(); intact || err != nil {
				t.Errorf("intact %v, %v", intact, err)
			}
			if name != "endless" {
				if err := j.Settle(); err == nil {
					t.Error("it is written")
				}
			}
			list := read(t, j)
			if len(list.Damaged) != 1 || list.Settled || len(list.Bans) != 0 {
				t.Errorf("%+v", list)
			}
			if err := j.Rewrite(list); err != nil {
				t.Fatal(err)
			}
			if list := read(t, j); len(list.Damaged) != 0 {
				t.Errorf("rewritten: %+v", list)
			}
			if _, err := os.Lstat(j.Path() + ".damaged"); err != nil {
				t.Error(err)
			}
		})
	}
}
