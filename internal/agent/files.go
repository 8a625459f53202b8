package agent

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"sluice/internal/agent/api"
	"sluice/internal/base/view"
)

// policies is where who is not root may name files.
const policies = "/etc/sluice"

// namesFiles are the operations whose requests name files.
var namesFiles = map[string]bool{"apply": true, "plan": true, "check": true, "diff": true, "map": true, "reach": true}

// theirRoot is the root folder of the caller's process. What is found behind it is what he
// would find, whatever is mounted there and happens to him.
func (q *request) theirRoot() (*os.File, error) {
	root, err := os.OpenFile(fmt.Sprintf("/proc/%d/root", q.peer.PID), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err == nil && !q.peer.There() { // it may be that of who has his number by now
		_ = root.Close()
		err = os.ErrProcessDone
	}
	if err != nil {
		return nil, refused(api.OtherFiles, "it cannot be determined which files the caller means: %v", err)
	}
	return root, nil
}

// sameState says whether the state directory is the agent's for the caller too, and may be
// written by him as by it.
func (q *request) sameState() bool {
	root, err := q.theirRoot()
	if err != nil {
		return false
	}
	theirs := view.Of(root, "/")
	defer theirs.Close()
	same, err := theirs.SameToWrite(q.State)
	return err == nil && same
}

// overridden refuses what only root may ask for.
func (q *request) overridden(o api.ChangeOptions) error {
	switch {
	case q.peer.UID == 0:
	case o.Force:
		return onlyRoot("may force it")
	case o.NoVerify:
		return onlyRoot("may leave the proof out")
	}
	return nil
}

// asBuilt refuses the same of how a policy is built.
func (q *request) asBuilt(b api.Building) error {
	if q.peer.UID != 0 && b.NoExpect {
		return onlyRoot("may leave out what the policy is expected to do")
	}
	return nil
}

// ofFiles refuses to apply what is in no file: whoever else may change the firewall
// chooses among policies that root wrote.
func (q *request) ofFiles(p api.PolicyFile) error {
	if q.peer.UID != 0 && len(p.Texts) > 0 {
		return onlyRoot("may apply texts that are in no file")
	}
	return nil
}

// unnamed refuses what would be about the policy that runs, though it says more.
func unnamed(p api.PolicyFile) error {
	if p.File == "" && (p.Directory != "" || p.Draft != "" || p.DraftOf != "" || len(p.Texts) > 0) {
		return refused(api.BadRequest, "the policy has no file: give its name, or no policy for the one that runs")
	}
	return nil
}

// detached refuses to take the host out of its fleet's hands.
func (q *request) detached(asked bool) error {
	if asked && q.peer.UID != 0 {
		return onlyRoot("may detach the host from its fleet")
	}
	return nil
}

func onlyRoot(may string) error { return refused(api.NotAllowed, "only root %s", may) }
