package sysctl

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/internal/lab/testnet"
)

// heldName is a limit of the machine that no other test changes.
const heldName = "net.netfilter.nf_conntrack_expect_max"

// TestMain is also the process that TestHoldOutlivesKill kills: it holds the limit
// of expected connections, raises it by one, says so, and waits.
func TestMain(m *testing.M) {
	record := os.Getenv("SLUICE_TEST_HOLD")
	if record == "" {
		os.Exit(m.Run())
	}
	recordFile = record
	h, err := NewHold(heldName)
	if err == nil {
		before, _ := h.Before(heldName)
		err = h.Set(heldName, more(before))
	}
	fmt.Println(err)
	_, _ = os.Stdin.Read(make([]byte, 1))
	os.Exit(0) // without Close: as a process that is killed
}

// more raises a limit by one, which changes nothing for anybody.
func more(value string) string {
	n, _ := strconv.ParseUint(value, 10, 64)
	return strconv.FormatUint(n+1, 10)
}

// requireMachine calls testnet.Lacks where the limit cannot be set: without root, in a namespace,
// or without connection tracking.
func requireMachine(t *testing.T) (before string) {
	t.Helper()
	before, err := Read(heldName)
	if err == nil {
		err = Write(heldName, before)
	}
	if err != nil {
		testnet.Lacks(t, "settings of the machine to write", err)
	}
	recordFile = filepath.Join(t.TempDir(), "record")
	return before
}

func await(t *testing.T, what, want string, ask func() string) {
	t.Helper()
	have := ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if have = ask(); have == want {
			return
		}
	}
	t.Fatalf("%s is %q, want %q", what, have, want)
}

func limit() string {
	value, _ := Read(heldName)
	return value
}

func TestHoldBringsBack(t *testing.T) {
	before := requireMachine(t)
	h, err := NewHold(heldName)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Set(heldName, more(before)); err != nil {
		t.Error(err)
	}
	if have := limit(); have != more(before) {
		t.Errorf("set to %s, and is %s", more(before), have)
	}
	if err := h.Set("net.netfilter.nf_conntrack_buckets", "1"); err == nil {
		t.Error("what nobody restores was set")
	}
	if _, err := NewHold(heldName); !errors.Is(err, ErrHeld) {
		t.Errorf("a second hold: %v, want ErrHeld", err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if have := limit(); have != before {
		t.Errorf("after Close it is %s, want %s", have, before)
	}
}

// TestHoldWithoutGuard: where nothing can be started that brings values back, there
// is no hold, and no record that would be restored much later.
func TestHoldWithoutGuard(t *testing.T) {
	requireMachine(t)
	shell = "/nowhere/sh"
	defer func() { shell = "/bin/sh" }()
	if h, err := NewHold(heldName); err == nil || h != nil {
		t.Errorf("hold %v, error %v", h, err)
	}
	if text, err := os.ReadFile(recordFile); err != nil || len(text) > 0 {
		t.Errorf("the record is %q (%v)", text, err)
	}
}

// holder starts a process that holds the limit and has raised it.
func holder(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SLUICE_TEST_HOLD="+recordFile)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	if strings.TrimSpace(line) != "<nil>" {
		t.Fatalf("the process that holds it says %q", line)
	}
	return cmd
}

// TestRecordStaysWhereRestoringFailed: what was not restored is in the record
// still, and what can be is restored beside it.
func TestRecordStaysWhereRestoringFailed(t *testing.T) {
	dir := t.TempDir()
	record, one, two := filepath.Join(dir, "record"), filepath.Join(dir, "one"), filepath.Join(dir, "two")
	for name, bad := range map[string]string{"all is written": "", "no such file": filepath.Join(dir, "none", "x"), "not written": "/dev/full"} {
		if err := os.WriteFile(record, []byte("values"), 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"-c", holdScript, "sh", record, one, name}
		if bad != "" {
			args = append(args, bad, "5")
		}
		args = append(args, two, name)
		err := exec.Command(shell, args...).Run()
		if (err != nil) != (bad != "") {
			t.Errorf("%s: the guard ends with %v", name, err)
		}
		for _, file := range []string{one, two} {
			if text, err := os.ReadFile(file); string(text) != name {
				t.Errorf("%s: %s is %q (%v)", name, filepath.Base(file), text, err)
			}
		}
		if text, err := os.ReadFile(record); err != nil || (string(text) == "values") != (bad != "") {
			t.Errorf("%s: the record is %q (%v)", name, text, err)
		}
	}
}

// TestHoldOutlivesKill kills the whole process group at once.
func TestHoldOutlivesKill(t *testing.T) {
	before := requireMachine(t)
	cmd := holder(t)
	if have := limit(); have != more(before) {
		t.Errorf("held, it is %s, want %s", have, more(before))
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	await(t, heldName, before, limit)
	await(t, "the record", "", func() string {
		text, _ := os.ReadFile(recordFile)
		return string(text)
	})
}

// TestHoldRestoresRecord kills what brings the values back, too: the next hold
// restores them, and does not take them for those of the machine.
func TestHoldRestoresRecord(t *testing.T) {
	before := requireMachine(t)
	cmd := holder(t)
	killed := 0
	for _, task := range tasks(cmd.Process.Pid) {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", cmd.Process.Pid, task))
		for _, word := range strings.Fields(string(children)) {
			if pid, err := strconv.Atoi(word); err == nil && syscall.Kill(-pid, syscall.SIGKILL) == nil {
				killed++
			}
		}
	}
	if killed != 1 {
		t.Fatalf("%d guards were killed, want 1", killed)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if have := limit(); have != more(before) {
		t.Fatalf("with nobody to bring it back it is %s, want %s", have, more(before))
	}
	var (
		h   *Hold
		err error
	)
	await(t, "a new hold", "", func() string { // once the guard's end has freed the lock
		if h, err = NewHold(heldName); err != nil {
			return err.Error()
		}
		return ""
	})
	if value, _ := h.Before(heldName); value != before {
		t.Errorf("the next hold takes %s for the machine's, want %s", value, before)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if have := limit(); have != before {
		t.Errorf("at the end it is %s, want %s", have, before)
	}
}

func tasks(pid int) (names []string) {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
