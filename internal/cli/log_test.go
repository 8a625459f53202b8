package cli

import (
	"testing"
	"time"
)

func TestSinceOf(t *testing.T) {
	now := time.Date(2026, 11, 28, 14, 10, 0, 0, time.Local)
	for text, want := range map[string]time.Time{
		"14:00":                     time.Date(2026, 11, 28, 14, 0, 0, 0, time.Local),
		"14:09:30":                  time.Date(2026, 11, 28, 14, 9, 30, 0, time.Local),
		"14:11":                     time.Date(2026, 11, 27, 14, 11, 0, 0, time.Local), // the last one that there was
		"2h":                        now.Add(-2 * time.Hour),
		"2d":                        now.Add(-48 * time.Hour),
		"2026-11-27":                time.Date(2026, 11, 27, 0, 0, 0, 0, time.Local),
		"2026-11-27 08:30":          time.Date(2026, 11, 27, 8, 30, 0, 0, time.Local),
		"2026-11-27T08:30:00+01:00": time.Date(2026, 11, 27, 7, 30, 0, 0, time.UTC),
	} {
		if got, err := sinceOf(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "25:00", "2", "-2h", "14", "yesterday", "2026-13-01"} {
		if got, err := sinceOf(text, now); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}
