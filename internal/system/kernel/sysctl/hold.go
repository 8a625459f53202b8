package sysctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"sluice/internal/system/kernel/process"
)

// recordFile is where the values stand that a Hold will restore. One Hold at a
// time: its lock belongs to the guard as well, and lives as long as either process.
var recordFile = "/run/sluice-held-sysctls.json"

// shell is what runs holdScript.
var shell = "/bin/sh"

// ErrHeld says that another process holds settings of the machine at this moment.
var ErrHeld = errors.New("another process has changed settings of this machine for a while")

// Hold changes settings and brings them back: when it is closed, and also when the
// process ends by whatever end. What does that is a shell of process.AtEnd. Should the
// shell be killed too, a file in /run has the values, and the next Hold restores them
// first.
type Hold struct {
	before map[string]string
	input  io.WriteCloser
	cmd    *exec.Cmd
}

// holdScript waits and restores. Its arguments are the record and pairs of a file
// below /proc/sys and its value. The record stays where one was not restored.
const holdScript = `trap '' HUP INT TERM QUIT TSTP PIPE
record=$1
shift
cat > /dev/null
failed=0
while [ $# -gt 1 ]; do
	printf %s "$2" > "$1" || failed=1
	shift 2
done
[ $failed = 0 ] && : > "$record"`

// NewHold remembers the named settings and starts what brings them back. The error
// is ErrHeld while another process holds some.
func NewHold(names ...string) (*Hold, error) {
	record, err := openRecord()
	if err != nil {
		return nil, err
	}
	defer record.Close() // the guard has it too
	h := &Hold{before: map[string]string{}}
	for _, name := range names {
		if h.before[name], err = Read(name); err != nil {
			return nil, err
		}
		// Whoever may not write a setting would only find out later.
		if err := Write(name, h.before[name]); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(h.before)
	if err == nil {
		_, err = record.WriteAt(text, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("record the settings of the machine: %w", err)
	}
	if err := h.start(record); err != nil {
		// Nothing was changed, and nobody is there to say later what was restored.
		return nil, errors.Join(err, record.Truncate(0))
	}
	return h, nil
}

// openRecord opens and locks the record, and restores what a killed guard left.
func openRecord() (*os.File, error) {
	record, err := os.OpenFile(recordFile, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the record of changed settings: %w", err)
	}
	if err := unix.Flock(int(record.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = record.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, ErrHeld
		}
		return nil, fmt.Errorf("lock %s: %w", recordFile, err)
	}
	if err := restoreRecord(record); err != nil {
		_ = record.Close()
		return nil, err
	}
	return record, nil
}

func restoreRecord(record *os.File) error {
	text, err := io.ReadAll(record)
	if err != nil || len(bytes.TrimSpace(text)) == 0 {
		return err
	}
	left := map[string]string{}
	if err := json.Unmarshal(text, &left); err != nil {
		return fmt.Errorf("read %s, which has settings to be restored: %w", recordFile, err)
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		if err := Write(name, left[name]); err != nil {
			return err
		}
	}
	return record.Truncate(0)
}

func (h *Hold) start(record *os.File) error {
	args := []string{recordFile}
	for _, name := range slices.Sorted(maps.Keys(h.before)) {
		file, err := path(name)
		if err != nil {
			return err
		}
		args = append(args, file, h.before[name])
	}
	var err error
	if h.input, h.cmd, err = process.AtEnd(shell, holdScript, args, record); err != nil {
		return fmt.Errorf("start what brings settings of the machine back: %w", err)
	}
	return nil
}

// Before is the value that a setting had, and goes back to.
func (h *Hold) Before(name string) (value string, held bool) {
	value, held = h.before[name]
	return value, held
}

// Set changes a setting that was named to NewHold.
func (h *Hold) Set(name, value string) error {
	if _, held := h.before[name]; !held {
		return fmt.Errorf("sysctl %s would not be restored", name)
	}
	return Write(name, value)
}

// Close brings the values back, and checks whether they are.
func (h *Hold) Close() error {
	errs := []error{h.input.Close(), h.cmd.Wait()}
	for _, name := range slices.Sorted(maps.Keys(h.before)) {
		have, err := Read(name)
		if err == nil && have != h.before[name] {
			err = fmt.Errorf("sysctl %s is %s, and was %s before", name, have, h.before[name])
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("bring settings of the machine back: %w\nhint: they are in %s", err, filepath.Clean(recordFile))
	}
	return nil
}
