package stories

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/sysctl"
)

// TestMain is also the process that TestKilledStoryLeavesNothing kills.
func TestMain(m *testing.M) {
	what := os.Getenv("SLUICE_TEST_STORY")
	if what == "" {
		os.Exit(m.Run())
	}
	s := Story{Number: 9, Title: "a test", Machine: true, Run: func(ctx context.Context, s *Stage) error {
		if what != "wait" {
			return nil
		}
		w, err := s.webSite("web", "web")
		if err != nil {
			return err
		}
		entries, err := strconv.Atoi(os.Getenv("SLUICE_TEST_ENTRIES"))
		if err != nil {
			return err
		}
		if err := s.LimitTable(entries, 0); err != nil {
			return err
		}
		fmt.Println(s.Dir, w.host.Name())
		<-ctx.Done()
		return ctx.Err()
	}}
	if _, err := Run(context.Background(), s, Options{HostSysctl: true}); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// machineTable is the feature that the size of the connection table can be set.
var machineTable = testnet.Probed("nf_conntrack_max that can be set", func() error {
	value, err := sysctl.Read(tableMax)
	if err == nil {
		err = sysctl.Write(tableMax, value)
	}
	return err
})

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("not so after 30 seconds: %s", what)
			return
		}
	}
}

// processesIn lists the processes in a network namespace.
func processesIn(space string) (found []string) {
	own, err := os.Stat(filepath.Join("/run/netns", space))
	if err != nil {
		return nil
	}
	files, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && os.SameFile(own, info) {
			found = append(found, file)
		}
	}
	return found
}

func isGone(file string) bool {
	_, err := os.Lstat(file)
	return errors.Is(err, fs.ErrNotExist)
}

// TestKilledStoryLeavesNothing kills a story that has set the machine's table: the
// value and the processes are as before at once, the namespaces and the folder when
// the next story plays.
func TestKilledStoryLeavesNothing(t *testing.T) {
	testnet.Require(t, testnet.Namespaces, testnet.Nftables, testnet.Program("nginx"), machineTable)
	before, err := sysctl.Read(tableMax)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := strconv.Atoi(before)
	if err != nil {
		t.Fatal(err)
	}
	more := strconv.Itoa(entries + 1) // which changes nothing for anybody
	start := func(what string) *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "SLUICE_TEST_STORY="+what, "SLUICE_TEST_ENTRIES="+more)
		return cmd
	}
	playing := start("wait")
	out, err := playing.StdoutPipe()
	if err == nil {
		err = playing.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	folder, space, both := strings.Cut(strings.TrimSpace(line), " ")
	if have, _ := sysctl.Read(tableMax); !both || have != more || len(processesIn(space)) == 0 {
		_ = playing.Process.Kill()
		_ = playing.Wait()
		t.Fatalf("the story says %q, %s is %s, want %s, and these run: %q", line, tableMax, have, more, processesIn(space))
	}
	if err := playing.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = playing.Wait()
	eventually(t, tableMax+" is as before", func() bool {
		have, _ := sysctl.Read(tableMax)
		return have == before
	})
	eventually(t, "its processes are gone", func() bool { return len(processesIn(space)) == 0 })
	if text, err := start("nothing").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, file := range []string{folder, filepath.Join("/run/netns", space)} {
		if !isGone(file) {
			t.Errorf("%s is left", file)
		}
	}
}

// TestInterruptedStoryLeavesNothing interrupts the real command in the midst.
func TestInterruptedStoryLeavesNothing(t *testing.T) {
	testnet.Require(t, append(two.Needs, testnet.Namespaces, testnet.Nftables)...)
	_, lab := built(t)
	cmd := exec.Command(lab, "story", "2", "--short")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(cmd.Process.Pid)
	spaces := func() []string {
		found, _ := filepath.Glob("/run/netns/sl-story-*-p" + pid + "-*")
		return found
	}
	eventually(t, "the story has namespaces", func() bool { return len(spaces()) > 0 })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var last string
	for lines := bufio.NewScanner(said); lines.Scan(); {
		last = lines.Text()
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 {
		t.Errorf("ended with %v (%s), want status 130", err, last)
	}
	if left := spaces(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+pid+"-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if err := syscall.Kill(-cmd.Process.Pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("a process group of the story is left: %v", err)
	}
}
