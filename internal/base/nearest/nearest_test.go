package nearest_test

import (
	"strings"
	"testing"

	"sluice/internal/base/nearest"
)

func TestNearest(t *testing.T) {
	names := []string{"https", "http", "eth0", "eth1", "countries", "unknown-interface", "a"}
	for word, want := range map[string]string{
		"htpp": "http", "hhtp": "http", "HTTP": "http", "thtp": "http", // two edits, but one slip
		"eth2": "eth0", "eht1": "eth1", "country": "countries",
		"unknow-intrface": "unknown-interface", "ssh": "", "b": "", "": "", strings.Repeat("a", 65): "",
	} {
		if got := nearest.Of(word, names); got != want {
			t.Errorf("%q is %q, want %q", word, got, want)
		}
	}
	if got := nearest.Of("eth0", []string{"eth0"}); got != "" {
		t.Errorf("a name is %q", got)
	}
}
