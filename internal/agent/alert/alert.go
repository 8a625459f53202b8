// Package alert tells people what an agent found: by the journal of systemd, and then by a
// command or a webhook of theirs. Callers: the agent.
package alert

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/journal"

	"sluice/internal/base/tell"
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
	if !tell.Journal(text, priority(a.Event), fields(a)) {
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
	Drift       = "drift"
	Over        = "over"
	Restored    = "restored"
	NotRestored = "not-restored"
	Stopped     = "restore-stopped"
	Stale       = "not-renewed" // a list, or country data
	Renewed     = "renewed"
	Refused     = "refused" // a request, of which a line tells
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

// fields are those of the journal, and the environment of the command, without SLUICE_.
func fields(a apply.Alert) map[string]string {
	out := map[string]string{"EVENT": a.Event, "NAMESPACE": a.Namespace, "SET": a.Set}
	if a.Generation != 0 {
		out["GENERATION"] = strconv.Itoa(a.Generation)
	}
	if len(a.Findings) > 0 {
		first := a.Findings[0]
		out["KIND"], out["LINE"], out["BY"] = string(first.Kind), first.Line, first.By
		out["FINDINGS"] = strconv.Itoa(len(a.Findings))
	}
	return out
}

// Line writes a line with fields to the journal, and tells nobody else. Fields that are
// empty are left out.
func (s *Sender) Line(event, text string, fields map[string]string) {
	all := map[string]string{"EVENT": event}
	maps.Copy(all, fields)
	if !tell.Journal(text, journal.PriWarning, all) {
		s.Print(text)
	}
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
		if value != "" {
			cmd.Env = append(cmd.Env, "SLUICE_"+name+"="+value)
		}
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
	_, err = tell.Hook{URL: s.Webhook}.Post(ctx, text)
	return err
}
