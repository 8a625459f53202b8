package cli

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"sluice/internal/cli/command"
	"sluice/internal/engine/apply"
)

// progressOn draws the transactions of a change.
func progressOn(w io.Writer) func(apply.Progress) {
	w = command.Bare(w) // it moves the cursor
	var bar *progressbar.ProgressBar
	return func(p apply.Progress) {
		if bar == nil {
			bar = progressbar.NewOptions(p.Total, progressbar.OptionSetWriter(w), progressbar.OptionSetWidth(30),
				progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false), progressbar.OptionClearOnFinish())
		}
		bar.ChangeMax(p.Total)
		bar.Describe(fmt.Sprintf("%s %s", p.Purpose, p.Name))
		_ = bar.Set(p.Done)
		if p.Done == p.Total {
			_ = bar.Finish()
			bar = nil
		}
	}
}

// quietTime is how long a change may take without a word where nobody sees a
// bar.
var quietTime = 2 * time.Second

// linesOn prints a line for every step of a change that takes longer than
// quiet, from the step at which that is noticed.
func linesOn(w io.Writer, quiet time.Duration) func(apply.Progress) {
	var (
		mutex sync.Mutex
		timer *time.Timer
		now   apply.Progress // the step under way
		loud  bool
	)
	say := func() {
		fmt.Fprintf(w, "%s %s (step %d of %d)\n", now.Purpose, now.Name, now.Done+1, now.Total)
	}
	return func(p apply.Progress) {
		mutex.Lock()
		defer mutex.Unlock()
		now = p
		switch {
		case p.Done == p.Total:
			if timer != nil {
				timer.Stop()
				timer = nil
			}
			loud = false
		case loud:
			say()
		case timer == nil:
			timer = time.AfterFunc(quiet, func() {
				mutex.Lock()
				defer mutex.Unlock()
				if timer != nil {
					loud = true
					say()
				}
			})
		}
	}
}
