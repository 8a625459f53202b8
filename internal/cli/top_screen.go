package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/color"
	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/system/kernel/netns"
)

// onScreen says whether somebody sits before a terminal that can be drawn on.
func onScreen(cmd *cobra.Command) bool {
	return command.IsTerminal(cmd.OutOrStdout()) && os.Getenv("TERM") != "dumb" && os.Getenv("TERM") != "" && !optionsOf(cmd).json
}

// showTopScreen draws each look on the terminal until a key or the context ends it. The
// terminal is as before whatever happens; what the host has to say meanwhile comes behind.
func showTopScreen(ctx context.Context, cmd *cobra.Command, q engine.TopQuestion) error {
	errOut := cmd.ErrOrStderr()
	var held heldLines
	cmd.SetErr(&held)
	defer func() {
		cmd.SetErr(errOut)
		held.print(errOut)
	}()
	h, err := doorOf(cmd)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	here, err := netns.Here()
	if err != nil {
		return err
	}
	defer here.Close()
	beside, err := doorOf(cmd) // while the other one is asked for looks
	if err != nil {
		return err
	}
	terminal, err := openTerminal()
	if err != nil {
		return fmt.Errorf("draw on the terminal: %w\nhint: --once prints one reading", err)
	}
	s := topScreen{
		terminal: terminal, view: topView{of: command.Netns(cmd)}, looks: make(chan *engine.Top), answers: make(chan topAnswer, 1), words: hinted(cmd),
		explain: func(ctx context.Context, r topRow) (text string, err error) {
			err = here.Do(func() (err error) {
				text, err = explainTop(ctx, beside, r)
				return err
			})
			return text, err
		},
	}
	return s.during(ctx, stop, func() error {
		_, err := h.Top(ctx, q, func(t *engine.Top) {
			select {
			case s.looks <- t:
			case <-ctx.Done():
			}
		})
		return err
	})
}

// during draws for as long as look looks, on whose thread it is called. The terminal is as
// before at the end, be it by a panic of either.
func (s *topScreen) during(ctx context.Context, stop func(), look func() error) error {
	ended := make(chan any, 1)
	go func() {
		defer func() { ended <- recover() }()
		defer s.terminal.Fini()
		defer stop()
		s.run(ctx)
	}()
	defer func() {
		failed := recover()
		stop()
		if of := <-ended; failed == nil {
			failed = of
		}
		if failed != nil {
			panic(failed)
		}
	}()
	err := look()
	if ctx.Err() != nil {
		return nil // it was stopped
	}
	return err
}

// terminalOptions ask the terminal nothing, which would have to answer first.
var terminalOptions = []tcell.TerminfoScreenOption{tcell.OptNegotiation(false), tcell.OptSanitizeContent(true)}

func openTerminal() (tcell.Screen, error) {
	tcell.SetEncodingFallback(tcell.EncodingFallbackASCII)
	s, err := tcell.NewScreen(terminalOptions...)
	if err != nil {
		return nil, err
	}
	return s, s.Init()
}

// topScreen draws a view.
type topScreen struct {
	terminal tcell.Screen
	view     topView
	looks    chan *engine.Top
	explain  func(context.Context, topRow) (string, error)
	answers  chan topAnswer
	words    func(error) string
	cancel   context.CancelFunc // of what is asked; nil: nothing is
}

// topAnswer is what was said about a row.
type topAnswer struct {
	to       *topDetail
	text     string
	panicked any
}

func (s *topScreen) run(ctx context.Context) {
	for {
		s.draw()
		select {
		case <-ctx.Done():
			return
		case s.view.last = <-s.looks:
		case a := <-s.answers:
			if a.panicked != nil {
				panic(a.panicked)
			}
			width, _ := s.terminal.Size()
			a.to.lines = wrapped(a.text, width)
		case event := <-s.terminal.EventQ():
			switch event := event.(type) {
			case nil: // the terminal is gone
				return
			case *tcell.EventResize:
				// It is drawn again.
			case *tcell.EventKey:
				end, asked := s.view.key(keyName(event))
				if end {
					return
				}
				s.ask(ctx, asked)
			}
		}
	}
}

// ask has something said about a row, and nothing any more about another one.
func (s *topScreen) ask(ctx context.Context, r *topRow) {
	if s.cancel != nil && s.view.detail == nil {
		s.cancel()
		s.cancel = nil
	}
	if r == nil {
		return
	}
	to := &topDetail{lines: []string{"reading …"}}
	s.view.detail = to
	ctx, s.cancel = context.WithCancel(ctx)
	go func() {
		a := topAnswer{to: to}
		defer func() {
			a.panicked = recover()
			select {
			case s.answers <- a:
			case <-ctx.Done():
			}
		}()
		text, err := s.explain(ctx, *r)
		if err != nil {
			text = strings.TrimLeft(text+"\n"+s.words(err), "\n")
		}
		a.text = text
	}()
}

var topStyles = map[topMark]tcell.Style{
	plainMark:  tcell.StyleDefault,
	headMark:   tcell.StyleDefault.Bold(true),
	chosenHead: tcell.StyleDefault.Bold(true).Underline(true),
	chosenRow:  tcell.StyleDefault.Reverse(true),
	badMark:    tcell.StyleDefault.Bold(true).Foreground(color.Maroon),
}

// draw puts the view on the terminal, to which goes what has changed.
func (s *topScreen) draw() {
	s.terminal.Clear()
	for y, spans := range s.view.screen(s.terminal.Size()) {
		x := 0
		for _, span := range spans {
			s.terminal.PutStrStyled(x, y, span.text, topStyles[span.mark])
			x += columnsIn(span.text)
		}
	}
	s.terminal.Show()
}

var keyNames = map[tcell.Key]string{
	tcell.KeyTab: keyTab, tcell.KeyBacktab: keyBackTab, tcell.KeyUp: keyUp, tcell.KeyDown: keyDown, tcell.KeyPgUp: keyPageUp, tcell.KeyPgDn: keyPageDown,
	tcell.KeyEnter: keyEnter, tcell.KeyEscape: keyEscape, tcell.KeyBackspace: keyErase, tcell.KeyBackspace2: keyErase, tcell.KeyCtrlC: keyInterrupt,
}

func keyName(e *tcell.EventKey) string {
	if e.Key() == tcell.KeyRune {
		return e.Str()
	}
	return keyNames[e.Key()]
}

// heldLines is what is said while a screen is drawn.
type heldLines struct {
	mutex sync.Mutex
	text  []byte
}

const mostHeld = 64 << 10

func (h *heldLines) Write(text []byte) (int, error) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if len(h.text) < mostHeld {
		h.text = append(h.text, text...)
	}
	return len(text), nil
}

func (h *heldLines) print(to io.Writer) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	_, _ = to.Write(h.text)
}
