package geo

import "testing"

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
	for code, got := range all {
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
