package agent

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"sluice/internal/agent/api"
	"sluice/internal/system/kernel/peer"
)

// A number of a process whose owner is not known to be there still leads to no files.
func TestOtherProcess(t *testing.T) {
	q := &request{peer: &peer.Peer{PID: os.Getppid()}}
	root, err := q.theirRoot()
	var f *api.Failure
	if root != nil || !errors.As(err, &f) || f.Kind != api.OtherFiles {
		t.Errorf("%v %v", root, err)
	}
	if q.State = t.TempDir(); q.sameState() {
		t.Error("the state is taken for the caller's")
	}
}

// Neither is who that process is taken for whoever asks.
func TestOtherCaller(t *testing.T) {
	t.Setenv("SUDO_USER", "alice")
	child := exec.Command("sleep", "600") // its environment is as it was begun
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	c := &caller{peer: &peer.Peer{PID: child.Process.Pid}}
	if by, session := c.who(); by.User != "root" || session != nil {
		t.Errorf("%+v %v", by, session)
	}
}

// What is put in place of the socket keeps its mode.
func TestSocketReplaced(t *testing.T) {
	file, link := filepath.Join(t.TempDir(), "file"), filepath.Join(t.TempDir(), "s")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{link, file} {
		if open(name) == nil {
			t.Errorf("%s is taken for the socket", name)
		}
	}
	if is, err := os.Stat(file); err != nil || is.Mode() != 0o600 {
		t.Errorf("%v %v", is.Mode(), err)
	}
}
