package apply

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A process that watches can be killed alone, so a second one waits beside it
// and acts when the first one is dead or stopped. Where both are dead, the next
// command settles what they left.

// armProcesses starts the processes of a pending generation that are missing.
func (s *session) armProcesses(p *Pending) error {
	if p.PID == 0 && p.Spare == 0 {
		_ = os.Truncate(filepath.Join(s.dir, watcherLog), 0)
	}
	if p.PID == 0 {
		pid, err := s.armProcess(p)
		if err != nil {
			return err
		}
		p.PID, p.Watcher = pid, fmt.Sprintf("process %d", pid)
	}
	if p.Spare == 0 {
		pid, err := s.armProcess(p)
		if err != nil {
			s.note("the watcher has no spare process: %v", err)
		}
		p.Spare = pid
	}
	return nil
}

// watched says whether a pending generation has the watchers that it should
// have. Those that are gone are taken out of p; the spare one follows.
func (s *session) watched(p *Pending) bool {
	if p.Unit != "" {
		return !s.useSystemd() || unitActive(p.Unit) // what cannot be asked is believed
	}
	if !watches(p.PID, p.Token) {
		p.PID = 0
	}
	if !watches(p.Spare, p.Token) {
		p.Spare = 0
	}
	if p.PID == 0 && p.Spare != 0 {
		p.PID, p.Spare = p.Spare, 0
		p.Watcher = fmt.Sprintf("process %d", p.PID)
	}
	return p.PID != 0 && p.Spare != 0
}

// armAgain starts what watched found missing.
func (s *session) armAgain(p *Pending) error {
	if p.PID != 0 {
		return s.armProcesses(p)
	}
	return s.arm(p)
}

// mine says whether this process is the one that acts at the end of the time.
func (p *Pending) mine() bool {
	return p.PID == 0 || p.PID == os.Getpid() || !watches(p.PID, p.Token)
}

// watches says whether a process is a watcher for a token, and runs. Where
// processes cannot be seen, it is believed to.
func watches(pid int, token string) bool {
	if pid == 0 {
		return false
	}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return true
	}
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // empty of a zombie
	if err != nil || !bytes.Contains(command, []byte(token)) {
		return false
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// proc_pid_stat(5): the state is behind the name in brackets.
	_, after, _ := strings.Cut(string(status), ") ")
	return !strings.ContainsAny(after[:min(1, len(after))], "TtZX")
}

// unitActive says whether a timer waits or its service runs. Where systemd
// cannot be asked, it is believed to.
func unitActive(unit string) bool {
	err := exec.Command("systemctl", "is-active", "--quiet", unit+".timer", unit+".service").Run()
	var exit *exec.ExitError
	return err == nil || !errors.As(err, &exit)
}
