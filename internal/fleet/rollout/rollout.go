// Package rollout decides which host takes which bundle next: a roll-out as a pure state
// machine. Stages, settling, canaries, halts, reverts, freeze windows and late hosts are
// here; time and what is known of the hosts come in, the next state and the orders to hosts
// go out. It has no clock, no network and no memory of its own, so that a controller may
// die between any two steps, and several may race: the state is kept by compare-and-set.
//
// Callers: internal/fleet/controller, which steps roll-outs and keeps them, the commands
// that show them, and internal/fleet/faults, which runs them under faults.
package rollout

import (
	"maps"
	"reflect"
	"slices"
	"time"
)

// Phase is where a roll-out is. It begins at Draft; Reverted and Superseded are its ends.
// A Done one is open still: hosts that were away take its bundle when they are back.
type Phase string

// In the order in which a roll-out goes through them, then those beside it.
const (
	Draft      Phase = "draft"      // made, not checked against the fleet
	Checked    Phase = "checked"    // checked by class
	Signed     Phase = "signed"     // its bundle is in the signed targets: hosts may fetch it
	Prefetched Phase = "prefetched" // hosts have it, or were waited for long enough
	Pushed     Phase = "pushed"     // the hosts of a stage are told
	Settled    Phase = "settled"    // they confirmed and stayed so for the time to settle
	Done       Phase = "done"
	Paused     Phase = "paused"    // by a person: reports are still taken, no stage begins
	Halted     Phase = "halted"    // by failures or a person
	Reverting  Phase = "reverting" // its hosts are told what they ran before
	Reverted   Phase = "reverted"
	Superseded Phase = "superseded"
)

// HostState is how far a host is with the bundle that it was told.
type HostState string

// In the order of a host that confirms, then the ends of one that does not.
const (
	Told      HostState = "told" // and nothing heard since
	Fetched   HostState = "fetched"
	Examined  HostState = "checked"
	Pending   HostState = "pending" // applied, its watcher takes it back unless it is confirmed
	Proved    HostState = "proved"  // what the kernel holds is what the bundle means
	Confirmed HostState = "confirmed"
	Refused   HostState = "refused"  // nothing was changed
	TakenBack HostState = "reverted" // by the host's own watcher
)

// rank orders the states of one order to one host, so that a report that comes late or
// twice takes nothing back. What a host refused it never confirmed, and the reverse.
var rank = map[HostState]int{
	Told: 1, Fetched: 2, Examined: 3, Pending: 4, Proved: 5, Confirmed: 6, Refused: 6, TakenBack: 7,
}

// Rollout is one bundle on its way to the hosts.
type Rollout struct {
	ID     int64 `json:"id"` // given by the store, rising; 0: not stored yet
	Bundle int64 `json:"bundle"`
	Plan   Plan  `json:"plan"`
	State  State `json:"state"`
	// Told and Failed count the hosts where many roll-outs are told of: State then has none of
	// them, and no history.
	Told   int `json:"told,omitempty"`
	Failed int `json:"failed,omitempty"`
}

// State is all that a roll-out remembers. It is JSON in the store.
type State struct {
	Phase  Phase     `json:"phase"`
	Reason string    `json:"reason"` // one sentence: why it is there, and what it waits for
	Since  time.Time `json:"since"`
	// Until is when it goes on, or gives somebody up, though nothing is heard: the next
	// Step is due then. Zero: a report or a person has to come.
	Until time.Time `json:"until,omitzero"`
	Stage int       `json:"stage"` // counts from 0; the number of stages, of hosts that came late
	// Quiet is when every host of the stage had answered: the time to settle counts from it.
	Quiet    time.Time            `json:"quiet,omitzero"`
	Was      Phase                `json:"was,omitempty"`  // before Paused or Halted
	Hold     bool                 `json:"hold,omitempty"` // halted ones stay: no revert follows
	By       int64                `json:"by,omitempty"`   // the bundle that superseded this one
	Hosts    map[string]Host      `json:"hosts,omitempty"`
	Asked    map[string]time.Time `json:"asked,omitempty"`    // hosts that were asked to prefetch
	LeftOut  []LeftOut            `json:"left-out,omitempty"` // hosts that cannot take the bundle
	History  []Moved              `json:"history,omitempty"`
	Prefetch time.Time            `json:"prefetch,omitzero"` // when prefetching began
}

// Host is a host that was told the bundle. Its stage was fixed when the stage began.
type Host struct {
	Class    string    `json:"class,omitempty"`
	Stage    int       `json:"stage"`
	State    HostState `json:"state"`
	Before   int64     `json:"before,omitempty"` // what it enforced until then; 0: no bundle
	Target   int64     `json:"target"`           // what it is told now: the bundle, or Before
	Told     time.Time `json:"told"`             // when Target was
	Since    time.Time `json:"since"`            // of State
	Failed   bool      `json:"failed,omitempty"`
	Excused  bool      `json:"excused,omitempty"` // a person let the roll-out go on in spite of it
	Back     bool      `json:"back,omitempty"`    // it confirmed Before after a revert
	Reason   string    `json:"reason,omitempty"`
	Evidence []string  `json:"evidence,omitempty"` // what the host said: probes, findings, packets
}

// LeftOut is a host that no stage takes, and why.
type LeftOut struct {
	Host   string `json:"host"`
	Reason string `json:"reason"`
}

// Moved is a line of a roll-out's history.
type Moved struct {
	At     time.Time `json:"at"`
	Phase  Phase     `json:"phase"`
	Stage  int       `json:"stage"`
	Reason string    `json:"reason"`
	Who    string    `json:"who,omitempty"` // empty: by itself
}

// Seen is what the controller knows of a host. Class is the policy's: hosts of one class
// enforce the same rules.
type Seen struct {
	Class   string
	Level   int // of the language that its agent reads; 0: it never said
	Online  bool
	Proved  bool   // what it enforces, whichever bundle, is confirmed and proved
	Running int64  // the bundle that it enforces and has confirmed; 0: none
	Fetched bool   // it holds this roll-out's bundle whole
	Drifted string // why the kernel no longer holds what was proved; empty: it does
	Ordered int64  // the roll-out by which it was told last; 0: none
	Report  Report // its newest
}

// Report is what a host said about an order. Those about other roll-outs are skipped.
type Report struct {
	Rollout, Bundle int64
	State           HostState
	Error           string // one sentence
	Evidence        []string
	At              time.Time // of its arrival
}

// Order is what a host has to be told. With Prefetch it fetches the bundle and applies
// nothing; otherwise Bundle is what it shall enforce from now on, newer or older.
type Order struct {
	Host     string
	Bundle   int64
	Prefetch bool
}

// New is a draft.
func New(bundle int64, plan Plan, now time.Time) Rollout {
	r := Rollout{Bundle: bundle, Plan: plan}
	m := machine{Rollout: r, now: moment(now)}
	m.enter(Draft, "made, and not checked yet")
	return m.Rollout
}

// Closed says that the roll-out has ended and that Step does nothing any more.
func (r Rollout) Closed() bool {
	return r.State.Phase == Reverted || r.State.Phase == Superseded
}

// Supersedes says that an older roll-out has to be superseded because of this one: at
// once, or, one that is done, when this one is done too, since until then hosts that come
// back take the older bundle.
func (r Rollout) Supersedes(older Rollout) bool {
	if older.ID >= r.ID || older.Closed() {
		return false
	}
	return older.State.Phase != Done || r.State.Phase == Done
}

// Changed says whether the roll-out is another than before, so that it has to be kept.
func (r Rollout) Changed(before Rollout) bool { return !reflect.DeepEqual(r, before) }

func (r Rollout) clone() Rollout {
	r.State.Hosts = maps.Clone(r.State.Hosts)
	r.State.Asked = maps.Clone(r.State.Asked)
	r.State.LeftOut = slices.Clone(r.State.LeftOut)
	r.State.History = slices.Clone(r.State.History)
	return r
}
