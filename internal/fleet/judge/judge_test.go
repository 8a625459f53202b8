package judge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"sluice/internal/fleet/classes"
)

// said are findings in words.
func said(found []classes.Found) (out []string) {
	for _, f := range found {
		out = append(out, fmt.Sprint(f.Pos, " ", f.Message, " ", f.For()))
	}
	return out
}

// TestKept: what is kept of a policy says of another one what a judge says that has kept nothing, and
// of a class that the other leaves as it was nothing is judged again.
func TestKept(t *testing.T) {
	t.Parallel()
	j, a := fleet(t, 6, 12, "countries: [SM]")
	if c, err := j.Check(t.Context(), a, nil); err != nil || len(c.Findings) != 0 || len(c.Classes) != 6 {
		t.Fatalf("%+v, %v", c, err)
	}
	before := len(j.kept.order)
	for what, change := range map[string]struct {
		file, text string
		judged     int // classes that are judged again
	}{
		"a part":     {"parts/r1.yaml", "version: 1\nhosts: role=r1\ninput: {rules: [allow tcp/1 from office, allow tcp/1 from 198.51.100.7]}\n", 1},
		"a base":     {"parts/0.yaml", "version: 1\nsets: {europe: {countries: [SM]}, office: [198.51.100.0/24]}\ninput: {default: drop}\nexpect: [allow ssh from office]\n", 6},
		"a new one":  {"parts/s.yaml", "version: 1\nhosts: role=r3 or role=r4\nexpect: [allow ssh from office]\n", 2},
		"fleet.yaml": {"fleet.yaml", strings.Replace(text(t, a, "fleet.yaml"), "hosts: role=r5,", "hosts: role=r4,", 1), 6},
		"a comment":  {"parts/r2.yaml", text(t, a, "parts/r2.yaml") + "# x\n", 1},
	} {
		next := edited(a, 0)
		next.Files["parts/r1.yaml"] = a.Files["parts/r1.yaml"]
		next.Files[change.file] = Text([]byte(change.text))
		got, err := j.Check(t.Context(), next, nil)
		if err != nil {
			t.Fatal(what, err)
		}
		fresh, _ := fleet(t, 6, 12, "countries: [SM]")
		want, err := fresh.Check(t.Context(), next, nil)
		if err != nil || !slices.Equal(said(got.Findings), said(want.Findings)) {
			t.Errorf("%s: %q, and without what is kept %q, %v", what, said(got.Findings), said(want.Findings), err)
		}
		if n := len(j.kept.order) - before; n != change.judged {
			t.Errorf("%s: %d classes are judged, not %d", what, n, change.judged)
		}
		before = len(j.kept.order)
	}
	moved := edited(a, 0)
	moved.Files["parts/r1.yaml"] = a.Files["parts/r1.yaml"]
	moved.At = "2"
	inv := *a.All
	inv.Hosts = slices.Clone(inv.Hosts)
	inv.Hosts[4].Addresses = nil // r4, which r3 names
	moved.Hosts, moved.All = &inv, &inv
	if _, err := j.Check(t.Context(), moved, nil); err != nil || len(j.kept.order) == before {
		t.Errorf("a host that is in no set any more: %d are kept, %v", len(j.kept.order), err)
	}
}

func text(t *testing.T, a *Asked, name string) string {
	t.Helper()
	text, err := a.Files[name].Read()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestKeptIsBounded: the oldest answers go.
func TestKeptIsBounded(t *testing.T) {
	t.Parallel()
	var k kept
	for n := range mostKept + 10 {
		k.put([32]byte{byte(n), byte(n >> 8)}, n)
	}
	_, oldest := k.get([32]byte{9})
	newest, has := k.get([32]byte{byte((mostKept + 9) & 0xff), byte((mostKept + 9) >> 8)})
	if len(k.of) != mostKept || len(k.order) != mostKept || oldest || !has || newest != mostKept+9 {
		t.Errorf("%d, %d, %v, %v", len(k.of), len(k.order), oldest, newest)
	}
}

// TestTurns: one question is judged at a time, each caller's in turn, and who goes or waits for too long
// is in nobody's way.
func TestTurns(t *testing.T) {
	t.Parallel()
	j, _ := fleet(t, 1, 1, "countries: [SM]")
	var all sync.WaitGroup
	var mutex sync.Mutex
	at, most, done := 0, 0, 0
	for n := range 20 {
		all.Go(func() {
			_, leave, err := j.Turn(t.Context(), fmt.Sprint("user:", n%3))
			if err != nil {
				t.Error(err)
				return
			}
			mutex.Lock()
			at++
			most = max(most, at)
			mutex.Unlock()
			mutex.Lock()
			at--
			done++
			mutex.Unlock()
			leave()
		})
	}
	all.Wait()
	if most != 1 || done != 20 {
		t.Errorf("%d at once, %d done", most, done)
	}
	_, leave, err := j.Turn(t.Context(), "user:erika")
	if err != nil {
		t.Fatal(err)
	}
	for _, caller := range []string{"user:erika", "user:otto"} {
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := j.Turn(gone, caller); !errors.Is(err, context.Canceled) {
			t.Errorf("who has gone: %v", err)
		}
		late, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		var busy *BusyError
		if _, _, err := j.Turn(late, caller); !errors.As(err, &busy) {
			t.Errorf("who waits for too long: %v", err)
		}
	}
	leave()
	turn, leave, err := j.Turn(t.Context(), "user:otto")
	if err != nil || turn.Err() != nil {
		t.Fatal(err)
	}
	leave()
	if turn.Err() == nil {
		t.Error("it goes on")
	}
}

// TestFill: what was asked of one policy is known of the next before anybody asks; nothing is where
// nobody has, or a newer one comes.
func TestFill(t *testing.T) {
	t.Parallel()
	j, a := fleet(t, 3, 3, "countries: [SM]")
	never, always := func() bool { return false }, func() bool { return true }
	j.Fill(t.Context(), a, never)
	if n := len(j.kept.order); n != 0 {
		t.Errorf("nobody has asked, and %d are kept", n)
	}
	if _, err := j.Maps(t.Context(), a, nil, "https", "", "", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Maps(t.Context(), a, nil, "htpp", "", "", nil); err == nil {
		t.Error("htpp is a service")
	}
	if _, err := j.Reach(t.Context(), a, nil, "", nil); err != nil {
		t.Fatal(err)
	}
	next := edited(a, 0)
	j.Fill(t.Context(), next, always)
	if n := len(j.kept.order); n != 6 || len(j.asked.names) != 2 {
		t.Errorf("%d are kept, %q", n, j.asked.names)
	}
	j.Fill(t.Context(), next, never)
	if n := len(j.kept.order); n != 8 { // one class is another one
		t.Errorf("%d are kept", n)
	}
	if m, err := j.Maps(t.Context(), next, nil, "https", "input", "", nil); err != nil || len(m.Of) != 3 || len(j.kept.order) != 8 {
		t.Errorf("%+v, %v, %d are kept", m, err, len(j.kept.order))
	}
}
