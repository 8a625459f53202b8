package apply

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/syslog"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/base/regular"
)

// A watcher that is started as a process finds armedVariable in its environment
// and says on the descriptor armedFD that it stands.
const (
	armedFD       = 3
	armedVariable = "SLUICE_WATCHER_ARMED_FD"
)

// armTime bounds how long a watcher takes to stand; slow disks included.
const armTime = 20 * time.Second

// watcherLog is what watchers that are processes say.
const watcherLog = "watcher.log"

const (
	watchTick    = 250 * time.Millisecond
	firstPause   = time.Second      // behind a try to go back that failed; each is twice as long
	longestPause = time.Minute      // up to this
	expireWait   = 20 * time.Second // for the lock, before its holder is taken for stuck
)

// arm starts the watcher: a systemd timer where systemd runs and would act in
// this namespace, else a process of its own. It returns when the watcher stands.
func (s *session) arm(p *Pending) error {
	if len(s.Watcher) == 0 {
		return errors.New("no command for it is known")
	}
	if s.useSystemd() {
		unit, err := s.armTimer(p)
		if err == nil {
			p.Unit, p.Watcher = unit, "unit "+unit+".timer"
			return nil
		}
		s.note("no systemd timer, so a process watches: %v", err)
	}
	p.PID, p.Spare, p.Unit = 0, 0, ""
	return s.armProcesses(p)
}

// armProcess starts the watcher in a session of its own; the watcher itself
// leaves the cgroup, which only it can do before it says that it stands.
func (s *session) armProcess(p *Pending) (int, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer read.Close()
	logFile, err := regular.OpenFile(filepath.Join(s.dir, watcherLog), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		logFile, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	}
	if err != nil {
		_ = write.Close()
		return 0, err
	}
	defer logFile.Close()
	args := append(append([]string(nil), s.Watcher...), p.Token)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", armedVariable, armedFD))
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.ExtraFiles = []*os.File{write} // becomes armedFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// It must not hold what this process inherited: somebody may wait for the end of a
	// pipe.
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) // since Linux 5.11
	err = cmd.Start()
	_ = write.Close()
	if err != nil {
		return 0, err
	}
	pid := cmd.Process.Pid
	// It outlives this process; while this process lives, it is reaped.
	go func() { _ = cmd.Wait() }()
	_ = read.SetReadDeadline(time.Now().Add(armTime))
	line, err := bufio.NewReader(read).ReadString('\n')
	if err != nil || line != "armed\n" {
		_ = unix.Kill(pid, unix.SIGKILL)
		said, _ := regular.Read(logFile.Name(), mostRecord)
		return 0, fmt.Errorf("it did not start: %s", cmp.Or(string(said), fmt.Sprint(err)))
	}
	return pid, nil
}

// StandAlone makes this process a watcher, before it calls [Host.Watch]: signals that
// end a session do not end it, nor does what systemd does to a session's processes.
func StandAlone() {
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGPIPE, unix.SIGTSTP)
	if os.Getenv(armedVariable) != "" {
		standAlone()
		armed := os.NewFile(armedFD, "armed")
		_, _ = io.WriteString(armed, "armed\n")
		_ = armed.Close()
	}
}

// Watch is the body of the watcher: it waits for the confirmation or the end of
// the time, and then restores what was before, as often as it takes. It returns
// when there is nothing left to do, or with the context.
func (h *Host) Watch(ctx context.Context, token string) error {
	for pause := firstPause; ; {
		if over, err := h.awaitDeadline(ctx, token); !over {
			return err
		}
		err := h.goBackLate(ctx, token)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errEarly) {
			continue
		}
		var busy *BusyError
		if errors.As(err, &busy) {
			h.unstick()
			continue
		}
		h.shout("rolling back what was not confirmed in time fails; trying again in %s: %v", pause, err)
		wait(ctx, pause)
		pause = min(2*pause, longestPause)
	}
}

// awaitDeadline waits for the end of the time; over is false when there is
// nothing left to wait for.
func (h *Host) awaitDeadline(ctx context.Context, token string) (over bool, err error) {
	st := store{dir: h.Dir}
	for {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		p, err := st.pendingOf(token)
		if err == nil && p == nil {
			return false, nil
		}
		if err == nil && p.BootID != bootID() {
			return false, nil
		}
		if err == nil && p.Left() == 0 && p.mine() {
			return true, nil
		}
		wait(ctx, watchTick)
	}
}

// errEarly says that the time starts again: it is counted from the end of the
// change, which may come after the end of the time that the journal names.
var errEarly = errors.New("the time for confirmation is not up")

// goBackLate takes the lock; settling takes back what is overdue.
func (h *Host) goBackLate(ctx context.Context, token string) error {
	late := *h
	late.Wait = expireWait
	s, _, err := late.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	if s.lateErr != nil {
		return s.lateErr
	}
	if p := s.cur.Pending; p != nil && p.Token == token {
		return errEarly
	}
	k, err := s.tuning()
	switch {
	case err != nil || k.Pending == nil || k.Pending.Token != token:
		return err
	case k.Pending.Left() > 0:
		return errEarly
	}
	return errTunedStay
}

// errTunedStay says that settings could not be taken back, which was told.
var errTunedStay = errors.New("the old values of tuned settings cannot be restored")

// takeBack ends a pending generation.
func (s *session) takeBack(ctx context.Context, p *Pending, what string) error {
	defer s.soften()()
	c, err := s.toLoad(ctx, p.Previous)
	if err != nil {
		return err
	}
	if c.fitted != nil {
		s.note("%v", c.fitted.leftOut())
	}
	c.what, c.grace = what, p.Grace
	return s.change(ctx, c)
}

// unstick kills the command that holds the lock while the time for a
// confirmation is over: a stopped or hanging one must not keep a lock-out
// alive. Every change survives that at any point.
func (h *Host) unstick() {
	l, err := openLock(h.Dir)
	if err != nil {
		return
	}
	defer l.release()
	for _, holder := range lockHolders(l.files()...) {
		if holder == os.Getpid() {
			continue
		}
		h.shout("process %d holds the lock and does not end: killing it", holder)
		_ = unix.Kill(holder, unix.SIGKILL)
	}
}

// shout reaches the log of the machine, and the caller.
func (h *Host) shout(formatText string, args ...any) {
	text := fmt.Sprintf(formatText, args...)
	if h.Shout != nil {
		h.Shout(text)
	}
	logCritical(text)
}

// logCritical reaches the log of the machine alone.
func logCritical(text string) {
	if w, err := syslog.New(syslog.LOG_CRIT|syslog.LOG_DAEMON, "sluice"); err == nil {
		_ = w.Crit(text)
		_ = w.Close()
	}
}
