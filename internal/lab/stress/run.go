package stress

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"sluice/internal/lab/product"
)

// Run is one run of all parts.
type Run struct {
	Binary string // sluice; "" leaves out what needs it
	Data   string // directory of the country data as CSV; "" is the built-in snapshot
	Dir    string // for policies and state
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
	return product.Sluice{Binary: r.Binary, State: r.state}.TakeCountries(ctx, r.Data)
}
