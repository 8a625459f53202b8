package wire

import "testing"

// TestParseDevices reads names of all kinds, and passes over what is cut off.
func TestParseDevices(t *testing.T) {
	got := map[string]uint64{}
	parseDevices("Inter-|   Receive |  Transmit\n face |bytes    packets errs drop\n"+
		"    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\x1b[31mx\": 1 2 3 5 5 6 7 8 9 10 11 13 13 14 15 16\n cut: 1 2\n bad: a b c d e f g h i j k l m n o p\n", got)
	want := map[string]uint64{"lo rx dropped": 4, "lo tx dropped": 12, "\x1b[31mx\" rx dropped": 5, "\x1b[31mx\" tx dropped": 13}
	if len(got) != len(want) {
		t.Errorf("got %v", got)
	}
	for name, n := range want {
		if got[name] != n {
			t.Errorf("%q: got %d, want %d", name, got[name], n)
		}
	}
}
