// Package schedule says when is done next what is done from time to time: asking for each
// list of a running policy, and updating the country data. Who does it writes it down in a
// state, for its own next start and for status. Callers: engine, agent/due.
package schedule

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"sluice/internal/base/regular"
)

// Task is one thing that is done from time to time.
type Task struct {
	Done   time.Time     `json:"done,omitzero"`   // the last time
	Every  time.Duration `json:"every,omitempty"` // 0: once, as soon as it can be
	Next   time.Time     `json:"next"`
	Failed int           `json:"failed,omitempty"` // times, since it was done
	Error  string        `json:"error,omitempty"`  // of the last of them
}

// Spread is a random time of less than so much, or none: hosts that were started together
// do not ask together.
type Spread func(most time.Duration) time.Duration

// soonTime is within what is done that is due when somebody first looks.
const soonTime = 2 * time.Minute

// Meet is the task as it is to be at a moment, when it was done last then and is to be done
// so often. It holds however the clock was set since.
func (t Task) Meet(done time.Time, every time.Duration, now time.Time, spread Spread) Task {
	latest := now.Add(every + every/10)
	if t.Failed > 0 {
		pause := t.pause()
		latest = now.Add(pause + pause/10)
	}
	if t.Done.Equal(done) && t.Every == every && !t.Next.IsZero() && !t.Next.After(latest) {
		return t
	}
	next := done.Add(every + spread(every/10))
	if done.IsZero() || done.After(now) || next.Before(now) {
		next = now.Add(spread(min(every/10, soonTime)))
	}
	return Task{Done: done, Every: every, Next: next}
}

// Fail is the task after it failed: it is tried again after pauses that grow.
func (t Task) Fail(err string, now time.Time, spread Spread) Task {
	t.Failed++
	t.Error = err
	pause := t.pause()
	t.Next = now.Add(pause + spread(pause/10))
	return t
}

// Pauses after a failure: as long as the task has, and no longer than a day.
const (
	firstPause = time.Minute
	mostPause  = 24 * time.Hour
)

func (t Task) pause() time.Duration {
	most := mostPause
	if t.Every > 0 {
		most = min(most, t.Every)
	}
	return min(firstPause<<min(t.Failed-1, 20), most)
}

// Plan is tasks by name.
type Plan map[string]Task

// Countries and List are the names of tasks.
const Countries = "countries"

// List is the name of asking for the list of a set.
func List(set string) string { return "list " + set }

const (
	planFile = "due.json"
	lockFile = "due.lock"
	maxPlan  = 1 << 20
)

// Lock is the file that is locked by whoever keeps the plan of a folder.
func Lock(dir string) string { return filepath.Join(dir, lockFile) }

// Kept says whether somebody keeps it at this moment.
func Kept(dir string) bool {
	f, err := regular.Open(Lock(dir))
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// Read reads the plan of a folder. One that cannot be read is none: all of it is found out
// again.
func Read(dir string) Plan {
	var p Plan
	data, err := regular.Read(filepath.Join(dir, planFile), maxPlan)
	if err != nil || json.Unmarshal(data, &p) != nil || p == nil {
		return Plan{}
	}
	return p
}

// Write keeps it.
func (p Plan) Write(dir string) error {
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := renameio.WriteFile(filepath.Join(dir, planFile), data, 0o600); err != nil {
		return fmt.Errorf("record the schedule: %w", err)
	}
	return nil
}
