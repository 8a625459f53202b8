package stress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sluice/internal/lab/testnet"
)

// Run is one run of all parts.
type Run struct {
	Binary string // sluice; "" leaves out what needs it
	Data   string // directory of the country data as CSV; "" is the built-in snapshot
	Dir    string // for policies and state; the caller's to remove
	Seed   uint64 // of the sources that are drawn
	Short  bool   // a tenth of the applies and refreshes
	// Enough is how long a part goes on with applies or refreshes at most; 0: until
	// all are made.
	Enough time.Duration
	Out    io.Writer
	// Progress is told how far a part is; nil: nobody.
	Progress func(what string, done, of int)

	begun   time.Time // the part
	state   string    // state directory, with the country data
	folders int
}

func (r *Run) progress(what string, done, of int) {
	if r.Progress != nil {
		r.Progress(what, done, of)
	}
}

// enough says that a part has gone on long enough.
func (r *Run) enough() bool { return r.Enough > 0 && time.Since(r.begun) > r.Enough }

// times is how often something is done, a tenth in a short run.
func (r *Run) times(n int) int {
	if r.Short {
		n /= 10
	}
	return n
}

// folder makes a new folder.
func (r *Run) folder() (string, error) {
	r.folders++
	dir := filepath.Join(r.Dir, fmt.Sprintf("part%d", r.folders))
	return dir, os.Mkdir(dir, 0o700)
}

// prepare makes the folders and takes the country data in.
func (r *Run) prepare(ctx context.Context) error {
	r.state = filepath.Join(r.Dir, "state")
	if err := os.MkdirAll(r.state, 0o700); err != nil {
		return err
	}
	if r.Data == "" {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(r.Data, "dbip-country-ipv?.csv"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no country data in %s\nhint: scripts/fetch-geo-data fetches them", r.Data)
	}
	args := []string{"geo", "update"}
	for _, f := range files {
		args = append(args, "--from", f)
	}
	return r.program(ctx, args...)
}

// program runs a command of the binary to its end.
func (r *Run) program(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, r.Binary, append(args, "--state-dir", r.state)...)
	cmd.SysProcAttr = processAttributes()
	cmd.Env = withoutSSH()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("sluice %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// inNet runs a part in a net of its own, which is gone afterwards.
func inNet(f func(*testnet.Net) error) error {
	n, err := testnet.Create("stress")
	if err != nil {
		return err
	}
	return errors.Join(f(n), n.Close())
}
