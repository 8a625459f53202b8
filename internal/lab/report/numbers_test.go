package report

import (
	"math"
	"testing"
)

func TestTimes(t *testing.T) {
	for ratio, want := range map[float64]string{0.05: "20 times less", 0.5: "2 times less", 0.9: "", 1: "", 1.2: "", 3: "3 times as much", 0: "", -1: "", math.NaN(): "", math.Inf(1): ""} {
		if got := times(ratio); got != want {
			t.Errorf("%v: got %q, want %q", ratio, got, want)
		}
	}
}

func TestQuantity(t *testing.T) {
	for _, tc := range []struct {
		x    float64
		unit string
		want string
	}{
		{0, "s", "0 s"},
		{1.5, "s", "1.5 s"},
		{0.0025, "s", "2.5 ms"},
		{2.5e-6, "s", "2.5 µs"},
		{512, "bytes", "512 bytes"},
		{42e6, "bytes", "42 MB"},
		{3.5e9, "bytes", "3.5 GB"},
		{12, "packets", "12"},
		{12, "packets/s", "12 packets/s"},
		{0.5, "×", "0.5 ×"},
		{7, "", "7"},
		{math.NaN(), "ns", "–"},
	} {
		if got := quantity(tc.x, tc.unit); got != tc.want {
			t.Errorf("%v %s: got %q, want %q", tc.x, tc.unit, got, tc.want)
		}
	}
}
