// Package agent is the resident half of Sluice: it brings in what the host becomes at
// once, and does what the commands ask for by its socket (package api). Callers: cli.
//
// It owns nothing: the state and its lock are those of the commands, which work beside it
// and without it. One goroutine, on a thread inside of the network namespace, does all
// that changes the firewall (space); connections wait for it and write their answers
// themselves, so that a slow reader holds nobody up.
package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"sluice/internal/agent/config"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/system/kernel/netns"
)

// Agent serves one network namespace, that of the thread that runs it.
type Agent struct {
	Host   *engine.Host // as a command has it
	Here   string       // the flags that lead a command to the same host
	Socket string
	// Command is the program with the flags that lead it to the same host; it does what
	// takes long (package work).
	Command []string
	// Who may ask, beside root.
	MayRead, MayChange config.IDs
	Told               func(*apply.Synced) // what was brought in
}

// againTime is the pause behind a socket that could not be made.
const againTime = time.Minute

// Run works until the context ends. What is asked of it by then is done first.
func (a *Agent) Run(ctx context.Context) error {
	release, err := a.Host.FollowAlone()
	var taken *apply.TakenError
	if errors.As(err, &taken) {
		return err
	}
	if err == nil {
		defer release()
	} else {
		a.note(err) // a disk that is read-only
	}
	here, err := netns.Here()
	if err != nil {
		return err
	}
	defer here.Close()
	l, free, err := listen(a.Socket)
	if errors.As(err, &taken) {
		return err
	}
	if err != nil {
		a.note(fmt.Errorf("%w\n  the commands do their work themselves; it is tried again every minute", err))
	}

	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s := newSpace(here)
	var running, following sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		// It outlives who asks it.
		defer following.Wait()
		following.Go(func() { stop(a.follow(ctx, here, s)) })
		following.Go(func() { a.watchdog(ctx, s) })
		following.Go(func() {
			for ; l == nil; l, free, err = listen(a.Socket) {
				select {
				case <-ctx.Done():
					return
				case <-time.After(againTime):
				}
			}
			defer free()
			a.serve(ctx, s, l)
		})
	})
	ended := make(chan struct{})
	running.Go(func() { following.Wait(); close(ended) })
	if err := s.run(ended); err != nil {
		return err
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (a *Agent) follow(ctx context.Context, here *netns.Namespace, s *space) error {
	h := *a.Host.Host
	h.Turn = func(f func()) { _ = s.do(ctx, f) }
	h.Ready = func() error {
		debug.FreeOSMemory()
		_, err := daemon.SdNotify(false, daemon.SdNotifyReady)
		return err
	}
	return here.Do(func() error { return h.Follow(ctx, a.Told) })
}

// watchdog says to systemd that it lives, as often as it asks for that and while the loop
// takes work.
func (a *Agent) watchdog(ctx context.Context, s *space) {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		a.note(err)
	}
	if every == 0 {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every / 3):
		}
		if s.do(ctx, func() {}) == nil {
			if _, err := daemon.SdNotify(false, daemon.SdNotifyWatchdog); err != nil {
				a.note(err)
			}
		}
	}
}

func (a *Agent) note(err error) {
	if a.Host.Note != nil {
		a.Host.Note(a.Host.Words(err))
	}
}

// listen makes the socket. One that an agent left which was killed is in nobody's use: the
// lock beside it says so.
func listen(path string) (l net.Listener, free func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // who is not root connects too
		return nil, nil, fmt.Errorf("make the folder of the socket: %w", err)
	}
	free, err = apply.Take(path+".lock", "is the agent of "+path)
	if err != nil {
		return nil, nil, err
	}
	if err = os.Remove(path); err == nil || errors.Is(err, os.ErrNotExist) {
		l, err = net.Listen("unix", path)
	}
	if err == nil {
		if err = os.Chmod(path, 0o666); err == nil { //nolint:gosec // each request is judged by who sends it
			return l, free, nil
		}
		_ = l.Close()
	}
	free()
	return nil, nil, fmt.Errorf("listen on the socket: %w", err)
}
