package demo

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
)

// product runs the real binary against the namespace of the host, with a state
// directory of the demo's own.
type product struct {
	binary string
	in     string // directory that it runs in
	state  string // directory
	netns  string
}

// run runs one command and returns what it printed, both streams together, and
// its exit status. The variable SSH_CONNECTION of the caller is not passed on:
// who looks at the demo is not connected to its host.
func (p *product) run(env []string, args ...string) (output string, status int, err error) {
	cmd := exec.Command(p.binary, append(args, "--state-dir", p.state, "--netns", p.netns)...)
	cmd.Dir = p.in
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "SSH_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return out.String(), exit.ExitCode(), nil
	}
	return out.String(), 0, err
}
