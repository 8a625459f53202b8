package fleet

import (
	"errors"
	"fmt"
	"testing"

	"sluice/internal/fleet/wire"
)

// TestControllerWritesNoLine: what a controller says is told in one line, so that it forges
// none of a log.
func TestControllerWritesNoLine(t *testing.T) {
	var told error
	m := &Member{Note: func(err error) { told = err }}
	m.note(fmt.Errorf("no controller: %w", &wire.Failure{Text: "away\nnote: all is well\x1b[2J\r", Kind: wire.KindBusy}))
	var f *wire.Failure
	if want := "no controller: away note: all is well [2J "; told == nil || told.Error() != want || !errors.As(told, &f) {
		t.Errorf("%q, not %q", told, want)
	}
	m.note(errors.New("fleet.yaml:1: one\nfleet.yaml:2: two")) // the host's own has lines
	if told.Error() != "fleet.yaml:1: one\nfleet.yaml:2: two" {
		t.Errorf("%q", told)
	}
}
