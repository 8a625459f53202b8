package cli

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/vt"

	"sluice/internal/engine"
	"sluice/internal/engine/apply"
)

// tty is an emulator that counts how often it was left.
type tty struct {
	vt.MockTerm
	left atomic.Int32
}

func (t *tty) Stop() error {
	t.left.Add(1)
	return t.MockTerm.Stop()
}

// TestTopLeavesTheTerminal: whatever fails, the terminal is left, and the failure told.
func TestTopLeavesTheTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	boom := errors.New("boom")
	wait := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	for name, c := range map[string]struct {
		look    func(context.Context) error
		explain func(context.Context, topRow) (string, error)
		keys    string
		want    error // that is returned
		panics  bool
	}{
		"a key":                  {look: wait, keys: "q"},
		"an error of looking":    {look: func(context.Context) error { return boom }, want: boom},
		"a panic of looking":     {look: func(context.Context) error { panic(boom) }, panics: true},
		"a panic of explaining":  {look: wait, keys: "\r", explain: func(context.Context, topRow) (string, error) { panic(boom) }, panics: true},
		"an error of explaining": {look: wait, keys: "\rqq", explain: func(context.Context, topRow) (string, error) { return "", boom }},
	} {
		terminal := &tty{MockTerm: vt.NewMockTerm(vt.MockOptSize{X: 80, Y: 24})}
		screen, err := tcell.NewTerminfoScreenFromTty(terminal, terminalOptions...)
		if err == nil {
			err = screen.Init()
		}
		if err != nil {
			t.Fatal(err)
		}
		s := &topScreen{terminal: screen, looks: make(chan *engine.Top), answers: make(chan topAnswer, 1), explain: c.explain, words: error.Error}
		ctx, stop := context.WithCancel(t.Context())
		var panicked any
		func() {
			defer func() { panicked = recover() }()
			err = s.during(ctx, stop, func() error {
				if c.keys != "" {
					go func() {
						s.looks <- &engine.Top{Condition: apply.Running, Lines: []engine.TopLine{{Text: "allow http"}}}
						terminal.SendRaw([]byte(c.keys))
					}()
				}
				return c.look(ctx)
			})
		}()
		if !errors.Is(err, c.want) || (panicked != nil) != c.panics || terminal.left.Load() == 0 {
			t.Errorf("%s: %v, panic %v, left %d times", name, err, panicked, terminal.left.Load())
		}
	}
}
