package geo

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/language/apart"
)

func write(t *testing.T, name, data string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// inUse returns Norway's addresses in the data in use, and what is in the folder.
func inUse(t *testing.T, state string) (norway string, files []string) {
	t.Helper()
	d, err := Open(state)
	if err != nil {
		t.Fatal(err)
	}
	if !d.Info().BuiltIn {
		norway = mustSet(t, d.Countries, "NO").String()
	}
	entries, err := os.ReadDir(filepath.Join(state, folder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		files = append(files, e.Name())
	}
	return norway, files
}

const (
	ten  = "192.0.2.0,192.0.2.9,NO\n2001:db8::,2001:db8::9,SE\n"
	nine = "192.0.2.0,192.0.2.8,NO\n2001:db8::,2001:db8::8,SE\n"
)

// updated returns a state directory with the data of ten in use.
func updated(t *testing.T) string {
	t.Helper()
	state := t.TempDir()
	r, err := Update(t.Context(), UpdateOptions{StateDir: state, From: []string{write(t, "ten.csv", ten)}, Force: true})
	if err != nil || !r.Changed || r.Info.BuiltIn {
		t.Fatalf("%+v, %v", r, err)
	}
	return state
}

func TestUpdateKeepsThePrevious(t *testing.T) {
	state := updated(t)
	if got, files := inUse(t, state); got != "192.0.2.0-192.0.2.9" || strings.Join(files, " ") != "countries lock" {
		t.Errorf("%s %v", got, files)
	}
	r, err := Update(t.Context(), UpdateOptions{StateDir: state, From: []string{write(t, "nine.csv", nine)}})
	if err != nil || !r.Changed {
		t.Fatalf("%+v, %v", r, err)
	}
	if len(r.Diff.Countries) != 2 || r.Diff.Countries[0].Code != "NO" || r.Diff.Countries[0].Removed.Addresses4 != 1 ||
		r.Diff.Countries[0].Added.Addresses4 != 0 || r.Diff.Countries[1].Removed.Addresses6.Big().Int64() != 1 {
		t.Errorf("diff %+v", r.Diff)
	}
	got, files := inUse(t, state)
	if got != "192.0.2.0-192.0.2.8" || strings.Join(files, " ") != "countries countries.previous lock" {
		t.Errorf("%s %v", got, files)
	}
	previous, err := OpenFile(PreviousFile(state))
	if err != nil || mustSet(t, previous.Countries, "NO").String() != "192.0.2.0-192.0.2.9" {
		t.Errorf("previous: %v", err)
	}
	// The same again changes nothing and does not push the previous data out.
	r, err = Update(t.Context(), UpdateOptions{StateDir: state, From: []string{write(t, "again.csv", nine)}})
	if err != nil || r.Changed || len(r.Diff.Countries) != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if previous, err = OpenFile(PreviousFile(state)); err != nil || mustSet(t, previous.Countries, "NO").String() != "192.0.2.0-192.0.2.9" {
		t.Errorf("previous: %v", err)
	}
}

func TestUpdateRefuses(t *testing.T) {
	state := updated(t)
	before, err := os.ReadFile(CurrentFile(state))
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, data string) []string { return []string{write(t, name, data)} }
	wrong := strings.Repeat("0", 64)
	for _, c := range []struct {
		what string
		o    UpdateOptions
		want string
	}{
		{"nothing given", UpdateOptions{}, "no source to update from"},
		{"no such file", UpdateOptions{From: []string{filepath.Join(state, "none")}}, "no such file or directory"},
		{"empty", UpdateOptions{From: file("x.csv", "")}, "the file is empty"},
		{"one empty of two", UpdateOptions{From: append(file("x.csv", ten), file("y.csv", "")...)}, "y.csv: the file is empty"},
		{"cut off in a line", UpdateOptions{From: file("x.csv", ten[:len(ten)-4])}, "x.csv:2: "},
		{"cut off gzip", UpdateOptions{From: file("x.csv.gz", string(gz(t, ten)[:30]))}, "unexpected EOF"},
		{"another checksum", UpdateOptions{From: file("x.csv", ten), SHA256: wrong}, "and not " + wrong + " as asked for"},
		{"a checksum for two", UpdateOptions{From: append(file("x.csv", ten), file("y.csv", ten)...), SHA256: wrong}, "a checksum needs a single file"},
		{"no IPv6", UpdateOptions{From: file("x.csv", ten[:strings.Index(ten, "2001")])}, "the new data have only 0% of the IPv6 addresses"},
		{"IPv4 shrunk", UpdateOptions{From: file("x.csv", strings.Replace(ten, "192.0.2.9", "192.0.2.6", 1))}, "the new data have only 70% of the IPv4 addresses of those in use (7 instead of 10); keeping the old data"},
		{"IPv6 shrunk", UpdateOptions{From: file("x.csv", strings.Replace(ten, "2001:db8::9", "2001:db8::6", 1))}, "the new data have only 70% of the IPv6 addresses"},
	} {
		c.o.StateDir = state
		if _, err := Update(t.Context(), c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v\nwant %s", c.what, err, c.want)
		}
		after, err := os.ReadFile(CurrentFile(state))
		if err != nil || string(after) != string(before) {
			t.Fatalf("%s: the data in use have changed: %v", c.what, err)
		}
		if _, files := inUse(t, state); strings.Join(files, " ") != "countries lock" {
			t.Fatalf("%s: the folder holds %v", c.what, files)
		}
	}
	eighty := strings.NewReplacer("192.0.2.9", "192.0.2.7", "db8::9", "db8::7").Replace(ten)
	if _, err := Update(t.Context(), UpdateOptions{StateDir: state, From: file("x.csv", eighty)}); err != nil {
		t.Errorf("80 %%: %v", err)
	}
	if _, err := Update(t.Context(), UpdateOptions{StateDir: state, From: file("x.csv", "192.0.2.0,192.0.2.1,NO"), Force: true}); err != nil {
		t.Errorf("forced: %v", err)
	}
}

// The first update is measured against the built-in snapshot.
func TestFirstUpdateIsCheckedToo(t *testing.T) {
	state := t.TempDir()
	_, err := Update(t.Context(), UpdateOptions{StateDir: state, From: []string{write(t, "x.csv", ten)}})
	var s *ShrunkError
	if !errors.As(err, &s) || s.Family != "IPv4" {
		t.Errorf("error %v", err)
	}
	if _, files := inUse(t, state); strings.Join(files, " ") != "lock" {
		t.Errorf("the folder holds %v", files)
	}
}

func TestUpdateOfDamagedData(t *testing.T) {
	state := updated(t)
	if err := os.WriteFile(CurrentFile(state), []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	o := UpdateOptions{StateDir: state, From: []string{write(t, "x.csv", ten)}}
	var kept *InUseError
	if _, err := Update(t.Context(), o); !errors.As(err, &kept) {
		t.Errorf("error %v", err)
	}
	o.Force = true
	if _, err := Update(t.Context(), o); err != nil {
		t.Error(err)
	}
	if got, _ := inUse(t, state); got != "192.0.2.0-192.0.2.9" {
		t.Error(got)
	}
}

func TestUpdateFromURL(t *testing.T) {
	served := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") == `"a"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		served++
		w.Header().Set("ETag", `"a"`)
		w.Header().Set("Last-Modified", "Mon, 01 Jun 2026 10:00:00 GMT")
		fmt.Fprint(w, ten)
	}))
	t.Cleanup(s.Close)
	state := t.TempDir()
	sum := sha256.Sum256([]byte(ten))
	var last int64
	o := UpdateOptions{
		StateDir: state, From: []string{s.URL + "/dbip-country.csv"}, Force: true, SHA256: hex.EncodeToString(sum[:]),
		Progress: func(_ string, done, _ int64) { last = done },
	}
	r, err := Update(t.Context(), o)
	if err != nil || !r.Changed || last != int64(len(ten)) {
		t.Fatalf("%+v, %v, progress %d", r, err, last)
	}
	if o := r.Info.Origin; o.Source != "DB-IP Lite" || o.ETag != `"a"` || !o.Date.Equal(time.Date(2026, 6, 1, 10, 0, 0, 0, time.UTC)) || o.From[0] != s.URL+"/dbip-country.csv" {
		t.Errorf("%+v", o)
	}
	o.Force = false
	if r, err = Update(t.Context(), o); err != nil || r.Changed || served != 1 || r.Info.Source != "DB-IP Lite" {
		t.Errorf("%+v, %v, served %d times", r, err, served)
	}
}

func TestUpdatesAtOnce(t *testing.T) {
	state := updated(t)
	var wg sync.WaitGroup
	for i := range 8 {
		from := write(t, "x.csv", []string{ten, nine}[i%2])
		wg.Go(func() {
			if _, err := Update(t.Context(), UpdateOptions{StateDir: state, From: []string{from}}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got, _ := inUse(t, state); !strings.HasPrefix(got, "192.0.2.0-192.0.2.") {
		t.Error(got)
	}
}

func TestSeveralSources(t *testing.T) {
	state := t.TempDir()
	day := time.Date(2026, 6, 3, 0, 0, 0, 0, time.UTC)
	v4, v6, _ := strings.Cut(ten, "2001")
	from := []string{write(t, "dbip-country-2026-06-ipv4.csv", v4), write(t, "dbip-country-2026-05-ipv6.csv", "2001"+v6)}
	r, err := Update(t.Context(), UpdateOptions{StateDir: state, From: from, Force: true})
	if err != nil {
		t.Fatal(err)
	}
	if o := r.Info.Origin; o.Source != "DB-IP Lite" || o.Licence != "CC-BY-4.0" || o.Date.Month() != time.May || len(o.From) != 2 {
		t.Errorf("%+v", o)
	}
	r, err = Update(t.Context(), UpdateOptions{StateDir: state, From: from, Date: day})
	if err != nil || !r.Info.Date.Equal(day) || r.Changed {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestCompare(t *testing.T) {
	old := small(t, smallRows()...)
	next := small(t, append(smallRows()[1:], "100.64.0.0,100.64.0.255,FR", "192.0.2.64,192.0.2.127,SE")...)
	d, err := Compare(old, next)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range d.Countries {
		got = append(got, fmt.Sprintf("%s +%d -%d", c.Code, c.Added.Addresses4, c.Removed.Addresses4))
	}
	if s := strings.Join(got, ", "); s != "FR +256 -0, NO +0 -128, SE +64 -0" {
		t.Error(s)
	}
	if d, err = Compare(old, old); err != nil || len(d.Countries) != 0 {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestReadFiles(t *testing.T) {
	state := updated(t)
	for _, file := range []string{CurrentFile(state), write(t, "ten.csv", ten)} {
		d, err := ReadFiles(t.Context(), apart.Process{}, file)
		if err != nil || mustSet(t, d.Countries, "NO").String() != "192.0.2.0-192.0.2.9" {
			t.Errorf("%s: %v", file, err)
		}
	}
	if _, err := ReadFiles(t.Context(), apart.Process{}, write(t, "cut", magic+"x")); err == nil || !strings.Contains(err.Error(), "truncated") {
		t.Errorf("error %v", err)
	}
}
