package cli

import (
	"bytes"
	"testing"
	"time"

	"sluice/internal/system/kernel/conntrack"
)

func TestPrintConnections(t *testing.T) {
	for want, table := range map[string]*conntrack.Table{
		"": nil,
		"connections  0 of 262,144 entries (0 %)\n":                                {Most: 262144},
		"connections  3 of 1,000 entries (0 %), peak 900 at 2026-11-28 14:03:00\n": {Entries: 3, Most: 1000, Peak: 900, PeakAt: time.Date(2026, 11, 28, 14, 3, 0, 0, time.Local)},
		"connections  1 entry\n":                                                   {Entries: 1},
		"connections  209,715 of 262,144 entries (79 %), 2 not inserted\n":         {Entries: 209715, Most: 262144, Failed: 2},
		"connections  800 of 1,000 entries (80 %), 7 without room for an entry, 9 evicted for new ones\nhint         tracking: {table: {max: 2000}} in the policy, then sluice apply, makes room\n": {Entries: 800, Most: 1000, Dropped: 7, Evicted: 9},
	} {
		var out bytes.Buffer
		printConnections(&out, table)
		if out.String() != want {
			t.Errorf("%+v: %q, want %q", table, out.String(), want)
		}
	}
}
