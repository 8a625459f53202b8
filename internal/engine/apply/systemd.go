package apply

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// useSystemd says that systemd manages the machine and that a unit that it
// starts works where this process works: in a namespace with a name, which the
// command line enters, or in the one of process 1.
func (s *session) useSystemd() bool {
	dir := s.systemd
	if dir == "" {
		dir = "/run/systemd/system" // sd_booted(3)
	}
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return false
	}
	if _, err := exec.LookPath("systemd-run"); err != nil {
		return false
	}
	if s.Namespace != "" {
		return true
	}
	return inFirstNamespace()
}

// armTimer starts a transient timer. Its service is the same watcher: it comes
// up at the deadline as it was when the timer was made, and waits for the rest.
func (s *session) armTimer(p *Pending) (unit string, err error) {
	unit = "sluice-confirm-" + p.Token
	args := timerArguments(unit, p.Left(), append(append([]string(nil), s.Watcher...), p.Token))
	out, err := exec.Command("systemd-run", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("systemd-run: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return unit, nil
}

func timerArguments(unit string, after time.Duration, command []string) []string {
	return append([]string{
		"--quiet", "--collect", "--unit=" + unit,
		"--description=Sluice: roll back unless the policy is confirmed",
		fmt.Sprintf("--on-active=%dms", max(1, after.Milliseconds())),
		"--timer-property=AccuracySec=100ms",
		"--service-type=exec",
		// It tries for ever; systemd starts it again where somebody kills it.
		"--property=Restart=on-failure", "--property=RestartSec=5s", "--property=StartLimitIntervalSec=0",
		"--",
	}, command...)
}

// disarm ends the timer of a generation that needs it no more. A watcher that is
// a process sees by itself that its token is gone.
func disarm(p *Pending) {
	if p != nil && p.Unit != "" {
		// A timer that stays finds nothing to do, so a failure does no harm.
		_ = exec.Command("systemctl", "stop", p.Unit+".timer").Run()
	}
}
