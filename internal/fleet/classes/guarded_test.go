package classes

import (
	"strings"
	"testing"
)

// TestGuarded: a bug that one host's policy meets is an error, and ends no process.
func TestGuarded(t *testing.T) {
	var none map[string]int
	if err := guarded(func() error { none["x"] = 1; return nil }); err == nil || !strings.HasPrefix(err.Error(), "a bug in Sluice: assignment to entry in nil map") {
		t.Error(err)
	}
}
