// Package alert tells people what an agent found: by the journal of systemd, and then by a
// command or a webhook of theirs. Callers: the agent.
package alert

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/coreos/go-systemd/v22/journal"

	"sluice/internal/engine/apply"
)

// Sender sends alerts. Its fields are set before Run.
type Sender struct {
	Command []string          // a program with its arguments; none: there is none
	Webhook string            // a URL; "": there is none
	Print   func(text string) // where there is no journal
	Failed  func(error)       // an alert that could not be sent
	most    time.Duration
	queue   chan apply.Alert
}

const (
	mostWaiting = 16               // alerts; the oldest is left out for a new one
	mostTime    = 10 * time.Second // of one
)

// New makes one.
func New(command []string, webhook string) *Sender {
	return &Sender{Command: command, Webhook: webhook, most: mostTime, queue: make(chan apply.Alert, mostWaiting)}
}

// Send writes an alert to the journal, and leaves the rest to Run. It never waits for
// anybody.
func (s *Sender) Send(a apply.Alert) {
	text := a.Text
	if a.Namespace != "" {
		text = a.Namespace + ": " + text
	}
	if !journal.Enabled() || journal.Send(text, priority(a.Event), fields(a)) != nil {
		s.Print(text)
	}
	if len(s.Command) == 0 && s.Webhook == "" {
		return
	}
	for {
		select {
		case s.queue <- a:
			return
		default:
		}
		select {
		case left := <-s.queue:
			s.Failed(fmt.Errorf("an alert is not sent, since %d newer ones wait: %s", mostWaiting, left.Text))
		default:
		}
	}
}

// Events, beside those that are only told.
const (
	Drift    = "drift"
	Over     = "over"
	Restored = "restored"
	Unmended = "not-restored"
	Stopped  = "restore-stopped"
	Stale    = "not-renewed" // a list, or country data
	Renewed  = "renewed"
	Refused  = "refused" // a request, of which a line tells
)

func priority(event string) journal.Priority {
	switch event {
	case Over, Restored, Renewed:
		return journal.PriNotice
	case Stale:
		return journal.PriWarning
	}
	return journal.PriErr
}

// fields are those of the journal, and the environment of the command.
func fields(a apply.Alert) map[string]string {
	out := map[string]string{"SLUICE_EVENT": a.Event}
	set := func(name, value string) {
		if value != "" {
			out["SLUICE_"+name] = value
		}
	}
	set("NAMESPACE", a.Namespace)
	set("SET", a.Set)
	if a.Generation != 0 {
		set("GENERATION", strconv.Itoa(a.Generation))
	}
	if len(a.Findings) > 0 {
		first := a.Findings[0]
		set("KIND", string(first.Kind))
		set("LINE", first.Line)
		set("BY", first.By)
		set("FINDINGS", strconv.Itoa(len(a.Findings)))
	}
	return out
}

// Line writes a line with fields to the journal, and tells nobody else. Fields that are
// empty are left out.
func (s *Sender) Line(event, text string, fields map[string]string) {
	all := map[string]string{"SLUICE_EVENT": event}
	for name, value := range fields {
		if value != "" {
			all["SLUICE_"+name] = value
		}
	}
	if !journal.Enabled() || journal.Send(text, journal.PriWarning, all) != nil {
		s.Print(text)
	}
}

// Printable leaves out what a terminal obeys: others choose the names of their processes and
// chains, and what they ask for.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
}

// Run sends what waits, one after the other, until the context ends. What waits by then is
// in the journal alone.
func (s *Sender) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case a := <-s.queue:
			if err := s.command(ctx, a); err != nil {
				s.Failed(fmt.Errorf("send an alert by %s: %w", s.Command[0], err))
			}
			if err := s.webhook(ctx, a); err != nil {
				s.Failed(fmt.Errorf("send an alert to the webhook: %w", err))
			}
		}
	}
}

func (s *Sender) command(ctx context.Context, a apply.Alert) error {
	if len(s.Command) == 0 {
		return nil
	}
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, s.most)
	defer stop()
	cmd := exec.CommandContext(ctx, s.Command[0], s.Command[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // what it started may have left the group
	cmd.Stdin = bytes.NewReader(append(text, '\n'))
	cmd.Env = append(os.Environ(), "SLUICE_TEXT="+a.Text)
	for name, value := range fields(a) {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	said := &first{}
	cmd.Stdout, cmd.Stderr = said, said
	err = cmd.Run()
	if ctx.Err() != nil {
		return fmt.Errorf("it was ended after %s", s.most)
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(said.String()))
	}
	return nil
}

// first keeps the first part of what is written.
type first struct{ bytes.Buffer }

func (f *first) Write(p []byte) (int, error) {
	const most = 1 << 10
	f.Buffer.Write(p[:min(len(p), max(0, most-f.Len()))])
	return len(p), nil
}

func (s *Sender) webhook(ctx context.Context, a apply.Alert) error {
	if s.Webhook == "" {
		return nil
	}
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, s.most)
	defer stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Webhook, bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	// No connection is kept, and nobody is followed to elsewhere.
	client := http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	answer, err := client.Do(r)
	if failed := (*url.Error)(nil); errors.As(err, &failed) {
		err = failed.Err // without the URL, which may have a secret
	}
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, 1<<16)
	if answer.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("it answers %d %s", answer.StatusCode, http.StatusText(answer.StatusCode)) // in no words of its own
	}
	return nil
}
