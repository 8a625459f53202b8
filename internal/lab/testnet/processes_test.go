package testnet

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestProcessesEndWithTheNet(t *testing.T) {
	Require(t, Program("sleep"))
	n, err := Create("own")
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	var p *Process
	if err := n.Try(func() {
		s := n.Namespace("host")
		p = s.Start("sleep", "1000")
	}); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Done():
	case <-time.After(enough):
		t.Fatal("the process outlived its Net")
	}
	if err := unix.Kill(p.Pid(), 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("process %d still there: %v", p.Pid(), err)
	}
}

func TestTryReturnsTheFailure(t *testing.T) {
	Require(t, Namespaces)
	n, err := Create("own")
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	reached := false
	err = n.Try(func() {
		n.Unnamed("host").Route("192.0.2.0/24", "not an address")
		reached = true
	})
	if err == nil || reached {
		t.Errorf("error %v, went on %t", err, reached)
	}
	if _, err := Create("Bad Prefix"); err == nil {
		t.Error("a bad prefix was accepted")
	}
}

// runChild runs one of the tests below in a process of its own, as a helper
// that does what its name says.
func runChild(t *testing.T, what string, attr *syscall.SysProcAttr) (*exec.Cmd, string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "name")
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), "TESTNET_CHILD="+what, "TESTNET_OUT="+out)
	cmd.SysProcAttr = attr
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	deadline := time.Now().Add(enough)
	for {
		if b, err := os.ReadFile(out); err == nil && strings.HasSuffix(string(b), "\n") {
			return cmd, strings.TrimSpace(string(b))
		}
		if time.Now().After(deadline) {
			t.Fatal("the child process made no namespace")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestChild(t *testing.T) {
	what := os.Getenv("TESTNET_CHILD")
	if what == "" {
		t.Skip("not a test of its own: a process that other tests here start")
	}
	n, err := Create("child")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Try(func() {
		a, b := n.Namespace("a"), n.Namespace("b")
		n.Join(End{a, "eth0", []string{"192.0.2.1/24", "2001:db8::1/64"}}, End{b, "eth0", []string{"192.0.2.2/24", "2001:db8::2/64"}})
		b.ServeTCP("[2001:db8::2]:80")
		if r := a.TryTCP(TCPTry{To: netip.MustParseAddrPort("[2001:db8::2]:80"), Message: "x", Patience: enough}); r.Outcome != Answered {
			t.Error(r)
		}
		a.Forward()
		a.Nft("table inet t { chain c { type filter hook input priority 0; ct state established accept; }; }")
		if err := os.WriteFile(os.Getenv("TESTNET_OUT"), []byte(a.Name()+"\n"), 0o600); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if what == "stay" {
		time.Sleep(time.Minute)
	}
	if what == "panic" {
		go panic("as asked")
		time.Sleep(time.Minute)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

func exists(name string) bool {
	_, err := os.Stat(filepath.Join(runDir, name))
	return err == nil
}

func TestSignalRemovesNamespaces(t *testing.T) {
	Require(t, Namespaces)
	cmd, name := runChild(t, "stay", nil)
	if !exists(name) {
		t.Fatalf("%s is not there", name)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the process ended well in spite of the signal")
	}
	if exists(name) {
		t.Errorf("%s is still there", name)
	}
}

func TestLeftoversAreReaped(t *testing.T) {
	Require(t, Namespaces)
	for _, how := range []string{"stay", "panic"} {
		cmd, name := runChild(t, how, nil)
		if how == "stay" {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		_ = cmd.Wait()
		if !exists(name) {
			t.Fatalf("%s: %s went away by itself", how, name)
		}
		second, _ := runChild(t, "end", nil)
		if err := second.Wait(); err != nil {
			t.Error(err)
		}
		if exists(name) {
			t.Errorf("%s: %s was not reaped", how, name)
		}
	}
}

func TestInUserNamespace(t *testing.T) {
	Require(t, Namespaces)
	cmd, _ := runChild(t, "end", &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	})
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// What a terminal sends to the group of this process does not end what it runs: that
// would be told as a failure of the program, not as an interruption.
func TestRunIsInAGroupOfItsOwn(t *testing.T) {
	group := New(t).Unnamed("host").MustRun("sh", "-c", "cut -d' ' -f5 /proc/$$/stat")
	if own := strconv.Itoa(syscall.Getpgrp()); strings.TrimSpace(group) == own {
		t.Errorf("a program runs in the group %s of this process", own)
	}
}

// TestProcessOutlivesThread ends the threads on which processes were started: the
// kernel takes that for the end of this process, were they the ones that forked.
func TestProcessOutlivesThread(t *testing.T) {
	host := New(t).Namespace("host")
	started := make([]*Process, 8)
	var threads sync.WaitGroup
	for i := range started {
		threads.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			started[i] = host.Start("sleep", "1000")
		})
	}
	threads.Wait()
	time.Sleep(200 * time.Millisecond)
	for _, p := range started {
		select {
		case <-p.Done():
			t.Errorf("process %d is gone: %v", p.Pid(), p.err)
		default:
		}
	}
}
