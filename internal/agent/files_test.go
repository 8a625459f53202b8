package agent

import (
	"errors"
	"os"
	"testing"

	"sluice/internal/agent/api"
	"sluice/internal/system/kernel/peer"
)

// A number of a process whose owner is not known to be there still leads to no files.
func TestOtherProcess(t *testing.T) {
	q := &request{peer: &peer.Peer{PID: os.Getpid()}}
	root, err := q.theirRoot()
	var f *api.Failure
	if root != nil || !errors.As(err, &f) || f.Kind != api.OtherFiles {
		t.Errorf("%v %v", root, err)
	}
	if q.State = t.TempDir(); q.sameState() {
		t.Error("the state is taken for the caller's")
	}
}
