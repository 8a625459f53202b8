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

// FuzzCounters: what is cut off, or is no such file, has some counters or none.
func FuzzCounters(f *testing.F) {
	f.Add("Ip: Forwarding InReceives\nIp: 1 7\nIcmp: InMsgs\nIcmp: 3\n")
	f.Add("Ip: a b c\nIp: 1\n\nIp:\n")
	f.Add(" face |bytes\n lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n")
	f.Fuzz(func(_ *testing.T, text string) {
		parseTwoLines(text, map[string]uint64{})
		parseDevices(text, map[string]uint64{})
	})
}
