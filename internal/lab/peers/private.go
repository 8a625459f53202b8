package peers

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"sluice/internal/lab/testnet"
	"sluice/internal/lab/timed"
)

// private is a mount namespace for programs that would read and write the host's
// configuration: a folder is in place of each of theirs.
type private struct {
	net *testnet.Namespace
	dir string
	// binds are the folders and files of dir by where they are to be seen; /run is
	// empty in any case.
	binds map[string]string
	env   []string
}

func newPrivate(n *testnet.Namespace) (*private, error) {
	dir, err := os.MkdirTemp("", "sluice-peer-")
	if err != nil {
		return nil, err
	}
	return &private{net: n, dir: dir, binds: map[string]string{}}, nil
}

func (p *private) remove() { _ = os.RemoveAll(p.dir) }

// file writes a file of the configuration; the path is that in dir.
func (p *private) file(path, text string) error {
	full := filepath.Join(p.dir, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		return err
	}
	return os.WriteFile(full, []byte(text), 0o600)
}

// copy takes a folder of the host as it is, to be changed in its place.
func (p *private) copy(from, to string) error {
	return os.CopyFS(filepath.Join(p.dir, to), os.DirFS(from))
}

// command prepares a program in the mount namespace and the network namespace. The
// new mount namespace passes nothing on to the host's: package syscall makes it
// private.
func (p *private) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	var script strings.Builder
	script.WriteString("set -e\n")
	for at, path := range p.binds {
		fmt.Fprintf(&script, "mount --bind '%s' '%s'\n", filepath.Join(p.dir, path), at)
	}
	script.WriteString("mount -t tmpfs -o mode=0755 tmpfs /run\nexec \"$@\"\n")
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", script.String(), "sh", name}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true, Unshareflags: syscall.CLONE_NEWNS}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Env = append(append(timed.Environment(), "LC_ALL=C"), p.env...) // ufw asks back where somebody is connected by ssh
	return cmd
}

// run runs a program to its end.
func (p *private) run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := p.command(ctx, name, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := p.net.StartCommand(cmd); err != nil {
		return "", fmt.Errorf("start %s: %w", name, err)
	}
	if err := cmd.Wait(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out.Bytes()))
	}
	return out.String(), nil
}
