// Package agent is the resident half of Sluice: it applies what the host becomes at
// once, and does what the commands ask for by its socket (package api). Callers: cli.
//
// It owns nothing: the state and its lock are those of the commands, which work beside it
// and without it. Of each network namespace one goroutine, on a thread inside of it, does
// all that changes the firewall (space); connections wait for it and write their answers
// themselves, so that a slow reader holds nobody up.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"sluice/internal/agent/alert"
	"sluice/internal/agent/config"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/system/kernel/netns"
)

// Site is a network namespace as the commands have it.
type Site struct {
	Host *engine.Host
	Here string // the flags that lead a command to it
	// Command is the program with these flags; it does what takes long (package work).
	Command []string
	Told    func(*apply.Synced) // what was applied
	// Restores says that what others change is put back, and Alerts reports it; one may be
	// that of several.
	Restores bool
	Alerts   *alert.Sender
	LogSize  int64 // bytes of what is kept of the log; 0: nothing is
	// Published says that an address answers who asks for metrics.
	Published bool
}

// Agent serves the network namespace of the thread that runs it, and those of ip-netns(8)
// that it is told to.
type Agent struct {
	*Site
	Socket string
	// Namespaces are patterns, as of path.Match, of the names of more namespaces, and
	// Named is a Site of one.
	Namespaces []string
	Named      func(name string) (*Site, error)
	// Who may ask, beside root.
	MayRead, MayChange config.IDs
	Questions          config.Questions // that the fleet may ask
	// Whether lists are refreshed when due, and of whom newer country data are asked for, how
	// often.
	Lists      bool
	Publishers []string
	Every      time.Duration
	Metrics    netip.AddrPort // where everybody may ask for metrics; zero: by the socket alone

	spaces  spaces
	scraper *scraper
	ready   sync.Once
	turn    chan struct{} // to do what is due
}

// againTime is the pause behind what could not be made.
const againTime = time.Minute

// Run works until the context ends. What is asked of it by then is done first.
func (a *Agent) Run(ctx context.Context) error {
	here, err := netns.Here()
	if err != nil {
		return err
	}
	defer here.Close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	a.scraper = &scraper{spaces: &a.spaces, note: a.note}
	s := a.newServer(here)
	h := s.http()
	a.spaces.answers, a.spaces.fleetMay = s.byFleet(h.Handler), a.Questions
	// They outlive who asks them.
	living, end := context.WithCancel(context.WithoutCancel(ctx))
	var taken *apply.TakenError
	if err := a.begin(living, here); errors.As(err, &taken) {
		end()
		return err
	}
	var keeping sync.WaitGroup
	keeping.Go(func() { stop(a.keep(living, here)) })
	defer keeping.Wait()
	defer end()

	l, free, err := listen(a.Socket)
	if errors.As(err, &taken) {
		return err
	}
	if err != nil {
		a.note(fmt.Errorf("%w\n  the commands do their work themselves; it is tried again every minute", err))
	}
	var asked sync.WaitGroup
	defer asked.Wait()
	asked.Go(func() { a.watchdog(ctx) })
	if len(a.Publishers) > 0 {
		asked.Go(func() { a.due(a.Site).Countries(ctx, a.Publishers, a.Every) })
	}
	asked.Go(func() { a.Alerts.Run(ctx) })
	if a.Metrics.IsValid() {
		asked.Go(func() { a.publish(ctx, here) })
	}
	asked.Go(func() {
		for ; l == nil; l, free, err = listen(a.Socket) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(againTime):
			}
		}
		defer free()
		a.serve(ctx, h, l)
	})
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// nowReady says to systemd that what is ordered behind the agent may start.
func (a *Agent) nowReady() (err error) {
	a.ready.Do(func() { _, err = daemon.SdNotify(false, daemon.SdNotifyReady) })
	return err
}

// watchdog says to systemd that it lives, as often as it asks for that and while each space
// takes work.
func (a *Agent) watchdog(ctx context.Context) {
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
		var asking sync.WaitGroup
		for _, s := range a.spaces.all() {
			asking.Go(func() { _ = s.do(ctx, func() {}) })
		}
		asking.Wait()
		if ctx.Err() == nil {
			if _, err := daemon.SdNotify(false, daemon.SdNotifyWatchdog); err != nil {
				a.note(err)
			}
		}
	}
}

func (s *Site) note(err error) {
	if s.Host.Note != nil {
		s.Host.Note(s.Host.Words(err))
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
		if err = open(path); err == nil {
			return l, free, nil
		}
		_ = l.Close()
	}
	free()
	return nil, nil, fmt.Errorf("listen on the socket: %w", err)
}

// open lets everybody connect: each request is judged by whoever sends it. What another has put
// in place of the socket keeps its mode.
func open(path string) error {
	at, err := os.OpenFile(path, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer at.Close()
	if is, err := at.Stat(); err != nil || is.Mode().Type() != os.ModeSocket {
		return cmp.Or(err, fmt.Errorf("%s is no longer the socket", path))
	}
	return os.Chmod(fmt.Sprint("/proc/self/fd/", at.Fd()), 0o666) //nolint:gosec // see above
}
