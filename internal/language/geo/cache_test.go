package geo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlacesAreRemembered by the data and the countries, and only as long as the
// cache is whole.
func TestPlacesAreRemembered(t *testing.T) {
	dir := t.TempDir()
	install := func(text string) {
		t.Helper()
		var table Table
		if _, err := Read(strings.NewReader(text), "x.csv", &table); err != nil {
			t.Fatal(err)
		}
		data, err := table.Encode(Origin{Source: "test"})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(CurrentFile(dir)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(CurrentFile(dir), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what, want string, countries ...string) {
		t.Helper()
		d, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		s, err := d.Places(countries, nil)
		if err != nil || s.String() != want {
			t.Errorf("%s: %s, %v; want %s", what, s, err, want)
		}
	}
	entries := func() []string {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(dir, "cache", placesKind+"-*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	install("192.0.2.0,192.0.2.127,MC\n192.0.2.128,192.0.2.255,SM\n2001:db8::,2001:db8::ffff,MC\n")
	for _, what := range []string{"first", "again"} {
		check(what, "192.0.2.0/25, 2001:db8::/112", "MC")
		check(what, "192.0.2.128/25", "SM")
		check(what, "192.0.2.0/24, 2001:db8::/112", "SM", "MC")
		check(what, "", "NO")
	}
	if got := entries(); len(got) != 3 {
		t.Errorf("kept %v", got)
	}
	// The entry of one choice in place of another is none.
	kept := entries()
	one, err := os.ReadFile(kept[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range kept[1:] {
		if err := os.WriteFile(name, one, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check("mixed up", "192.0.2.0/25, 2001:db8::/112", "MC")
	check("mixed up", "192.0.2.128/25", "SM")
	check("mixed up", "192.0.2.0/24, 2001:db8::/112", "MC", "SM")
	// Other data.
	install("198.51.100.0,198.51.100.255,MC\n")
	check("updated", "198.51.100.0/24", "MC")
	if err := os.RemoveAll(filepath.Join(dir, "cache")); err != nil {
		t.Fatal(err)
	}
	check("deleted", "198.51.100.0/24", "MC")
	if got := entries(); len(got) != 1 {
		t.Errorf("kept after that: %v", got)
	}
}
