package geo

import (
	"maps"
	"slices"
	"testing"
)

func TestByCountry(t *testing.T) {
	d, err := Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	all, err := d.ByCountry()
	if err != nil {
		t.Fatal(err)
	}
	if want := len(d.Info().Countries); len(all) != want {
		t.Errorf("%d countries, want %d", len(all), want)
	}
	step := 1
	if testing.Short() {
		step = 8 // each looks at all rows
	}
	codes := slices.Sorted(maps.Keys(all))
	for i := 0; i < len(codes); i += step {
		code, got := codes[i], all[codes[i]]
		want, err := d.Countries(code)
		if err != nil {
			// What registries write for a whole region is no country.
			if code != "EU" && code != "AP" {
				t.Error(err)
			}
			continue
		}
		if !got.Equal(want) {
			t.Errorf("%s: %d and %d ranges, want %d and %d", code, got.Len4(), got.Len6(), want.Len4(), want.Len6())
		}
	}
}

func BenchmarkByCountry(b *testing.B) {
	d, err := Snapshot()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := d.ByCountry(); err != nil {
			b.Fatal(err)
		}
	}
}
