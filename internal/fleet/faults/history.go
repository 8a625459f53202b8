// Package faults judges what a fleet did under faults. A History is what was signed, told,
// kept and enforced, in its order; Check says which of the promises of a fleet it breaks.
//
// Callers are tests: the simulation here, which runs controllers and agents under
// testing/synctest, and those that run them in namespaces. What is recorded is seen from
// outside of the part that is judged: what a kernel does and not what its agent says, what
// was committed and not what a controller means to do.
package faults

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"sluice/internal/fleet/rollout"
	"sluice/internal/fleet/wire"
)

// Kind is what an [Event] tells.
type Kind string

// Each with the fields of an Event that it fills, besides At.
const (
	Signed       Kind = "signed"       // the policy's keys signed Bundle with Content, and Floor
	Published    Kind = "published"    // a controller has committed metadata with Floor
	Kept         Kind = "kept"         // a controller has committed Rollout, as a write of Order.Incarnation
	Told         Kind = "told"         // Host received Order: Bundle by RolloutID; Lie: of a thief
	Heard        Kind = "heard"        // Host received signed metadata with Floor
	Took         Kind = "took"         // Host acts by Order
	Enforced     Kind = "enforced"     // the kernel of Host began to do Content, of Bundle; 0: nothing at all
	WentBack     Kind = "went back"    // it does again what it did before the last Enforced
	Final        Kind = "final"        // what the last Enforced began is confirmed
	Enrolled     Kind = "enrolled"     // Host with Key, by Token, which is good for Uses
	Acknowledged Kind = "acknowledged" // a controller said that What is written
	Restored     Kind = "restored"     // the database is that of Until again
	Found        Kind = "found"        // What is in the database at the end
	Audited      Kind = "audited"      // the audit chain was verified: Error
	Fault        Kind = "fault"        // What went wrong, at Host if it is of one
	Calm         Kind = "calm"         // the last fault has ended
	Holds        Kind = "holds"        // a controller said that What, a ban or an Allow, holds Until
	Lifting      Kind = "lifting"      // somebody had What lifted
	Bears        Kind = "bears"        // the kernel of Host holds What from now on, Until
	Lifted       Kind = "lifted"       // and does not any more
	Wanted       Kind = "wanted"       // What is in the database at the end, Until
	Borne        Kind = "borne"        // Host holds What at the end, Until; the last one is without What
	Set          Kind = "set"          // somebody set the clock of Host, or the database's without one, by Ahead
	Placed       Kind = "placed"       // somebody has What, a guest, be on Host as Content; gone where that is empty
	Settled      Kind = "settled"      // a controller has committed that What, a guest, is on Host alone
	Served       Kind = "served"       // the server of What, a list, has Content from now on
	Within       Kind = "within"       // What, a set, may hold the prefix Content alone
	Carries      Kind = "carries"      // the kernel of Host holds What as Content from now on, not at all where that is empty; Back: since it went back
	Due          Kind = "due"          // Host is to hold What as Content at the end; the last one is without What
	Ended        Kind = "ended"        // Host runs Bundle, confirmed and proved if Error is empty, and Wants is desired
)

// Event is one line of a history.
type Event struct {
	At        time.Time
	Kind      Kind
	Host      string
	Order     wire.Order
	Bundle    int64
	Wants     int64
	RolloutID int64
	Floor     int64
	Content   string
	Rollout   rollout.Rollout
	Token     string
	Uses      int
	Key       string
	What      string
	Allow     bool
	Back      bool
	Lie       bool
	Until     time.Time
	Ahead     time.Duration
	Error     string
}

// History is written by many at once. Its zero value is empty.
type History struct {
	mutex  sync.Mutex
	events []Event
}

// Add writes an event down, as of now.
func (h *History) Add(e Event) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if e.At.IsZero() {
		e.At = time.Now()
	}
	h.events = append(h.events, e)
}

// Events are those until now.
func (h *History) Events() []Event {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.events[:len(h.events):len(h.events)]
}

// Violation is a promise that was broken, and where.
type Violation struct {
	Promise string
	Event   int // of the history; its length: by what is missing at the end
	Text    string
}

func (v Violation) String() string {
	return fmt.Sprintf("event %d: %s: %s", v.Event, v.Promise, v.Text)
}

// String is the event in a line, for whoever looks for what led to a violation.
func (e Event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", e.At.UTC().Format("15:04:05.000"), e.Kind)
	for _, field := range []struct {
		name  string
		value any
		is    bool
	}{
		{"", e.Host, e.Host != ""},
		{"order", fmt.Sprintf("%d.%d", e.Order.Incarnation, e.Order.Revision), e.Order != wire.Order{}},
		{"bundle", e.Bundle, e.Bundle != 0},
		{"wants", e.Wants, e.Wants != 0},
		{"roll-out", e.RolloutID, e.RolloutID != 0},
		{"floor", e.Floor, e.Floor != 0},
		{"content", fmt.Sprintf("%.80q", e.Content), e.Content != ""},
		{"state", fmt.Sprintf("%d of bundle %d is %s: %s", e.Rollout.ID, e.Rollout.Bundle, e.Rollout.State.Phase, e.Rollout.State.Reason), e.Rollout.ID != 0},
		{"token", e.Token, e.Token != ""},
		{"", e.What, e.What != ""},
		{"", "back", e.Back},
		{"", "by a thief", e.Lie},
		{"until", e.Until.UTC().Format("15:04:05.000"), !e.Until.IsZero()},
		{"ahead", e.Ahead, e.Ahead != 0},
		{"error", e.Error, e.Error != ""},
	} {
		if field.is {
			fmt.Fprintf(&b, " %s", strings.TrimSpace(fmt.Sprint(field.name, " ", field.value)))
		}
	}
	return b.String()
}
