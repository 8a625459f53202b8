package apply

import (
	"time"

	"sluice/internal/backend"
)

// Times is how long an apply takes, in seconds, by its parts: as plan expects it, or
// as it was.
type Times struct {
	Compile float64 `json:"compile"` // the policy, lists and the layout of large sets
	Read    float64 `json:"read"`    // what the kernel holds
	Fill    float64 `json:"fill"`    // sets
	Switch  float64 `json:"switch"`  // rules; entries of connections that run
	Check   float64 `json:"check"`   // reading back, comparing and proving
	Rest    float64 `json:"rest"`    // the lock, what is kept on disk, the watcher
	Total   float64 `json:"total"`
}

// Compiled adds what came before Apply or Plan.
func (t *Times) Compiled(took time.Duration) {
	t.Compile += took.Seconds()
	t.Total += took.Seconds()
}

// took adds the time since began to a part.
func took(part *float64, began time.Time) { *part += time.Since(began).Seconds() }

// took adds a step.
func (t *Times) took(p backend.Purpose, began time.Time) {
	switch p {
	case backend.Switch, backend.Track:
		took(&t.Switch, began)
	default:
		took(&t.Fill, began)
	}
}

// end makes of the rest what is in no part.
func (t *Times) end(began time.Time) {
	t.Total = time.Since(began).Seconds()
	t.Rest = max(t.Total-t.Compile-t.Read-t.Fill-t.Switch-t.Check, 0)
}

// What checking and the rest of an apply take, beside what the cost model says of a
// load. Checking reads everything back, compiles again and proves, so it grows with
// what is loaded; measured with the examples.
const (
	checkBase = 100 * time.Millisecond
	checkLoad = 2.5 // times the load of everything, where rules change
	restBase  = 100 * time.Millisecond
)

// expected is how long the apply of a plan takes, except for Compile: read is what
// reading the kernel took.
func expected(p *Plan, read time.Duration) *Times {
	seconds := func(ns uint64) float64 { return float64(ns) / 1e9 }
	t := &Times{
		Read: read.Seconds(), Switch: seconds(p.Added.SwitchTime), Fill: seconds(p.Added.LoadTime - p.Added.SwitchTime),
		Check: checkBase.Seconds(), Rest: restBase.Seconds(),
	}
	if p.Added.Rules > 0 {
		t.Check += checkLoad * seconds(p.Cost.LoadTime)
	}
	t.Total = t.Read + t.Fill + t.Switch + t.Check + t.Rest
	return t
}
