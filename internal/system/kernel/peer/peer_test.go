package peer_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/peer"
	"sluice/internal/system/kernel/process"
)

// TestPeer asks who a process is that runs as somebody else, with more groups than most.
func TestPeer(t *testing.T) {
	if os.Getenv("SLUICE_TEST_PEER") != "" {
		conn, err := net.Dial("unix", os.Getenv("SLUICE_TEST_PEER"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Read(make([]byte, 1)) // until the other end closes
		return
	}
	dir, err := os.MkdirTemp("", "peer") //nolint:usetesting // others may not enter what is above that
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "socket")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, path := range []string{dir, path} {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	var many []uint32
	for i := range uint32(100) {
		many = append(many, 7000+i)
	}
	for _, groups := range [][]uint32{nil, {7001, 7002}, many} {
		cmd := exec.Command("/proc/self/exe", "-test.run", "^TestPeer$")
		cmd.Env = append(os.Environ(), "SLUICE_TEST_PEER="+path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 23456, Groups: groups}}
		if err := cmd.Start(); err != nil {
			testnet.Lacks(t, "processes of other users", err)
		}
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		p, err := peer.Of(conn.(*net.UnixConn))
		if err != nil {
			t.Fatal(err)
		}
		if p.PID != cmd.Process.Pid || p.UID != 12345 || p.GID != 23456 || !slices.Equal(p.Groups, groups) {
			t.Errorf("it is %+v, want process %d of 12345, 23456 and %v", p, cmd.Process.Pid, groups)
		}
		mounts, err := p.Mounts()
		if own, _ := os.Readlink("/proc/self/ns/mnt"); err != nil || mounts != own || !p.There() {
			t.Errorf("mounts %q, want %q: %v", mounts, own, err)
		}
		login, known := p.Login()
		if want, is := process.Login(os.Getpid()); known != is || is && login != want {
			t.Errorf("login %d %v, want %d %v", login, known, want, is)
		}
		_ = conn.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		if _, known := p.Login(); known {
			t.Error("it has ended, and has a login")
		}
		if _, err := p.Mounts(); p.There() || !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("it has ended, and is there: %v", err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}
