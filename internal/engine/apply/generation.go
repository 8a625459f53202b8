package apply

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"time"

	"sluice/internal/backend"
)

// Generation is one policy as it was applied.
type Generation struct {
	Format  int       `json:"format"`
	Number  int       `json:"number"`           // from 1, never used again
	Mark    string    `json:"mark"`             // what the kernel carries while it runs
	Closed  bool      `json:"closed,omitempty"` // the built-in policy of a failed restore
	Created time.Time `json:"created"`
	By      Author    `json:"by"`
	Version string    `json:"version"` // of the tool

	Policy string `json:"policy"`        // the main file, as it was named
	Dir    string `json:"dir,omitempty"` // folder that names of files are relative to
	// Inputs is what names were resolved from: see resolve.Inputs.
	Inputs map[string]string `json:"inputs,omitempty"`
	// RefreshOf is the generation that it is with other lists, 0 is none.
	RefreshOf int    `json:"refresh-of,omitempty"`
	Files     []File `json:"files,omitempty"`
	// Broken is the files that had errors, and that it does without or has an older text of.
	Broken  []Broken `json:"broken,omitempty"`
	Backend string   `json:"backend"`
	// Exceptions are those that its rules were made with.
	Exceptions []Exception `json:"exceptions,omitempty"`
	// LeftOut are those that held beside them, which its policy does not let in.
	LeftOut []Exception `json:"exceptions-left-out,omitempty"`
	// Choices is what the backend chose by cost: see backend.Chosen.
	Choices  map[string]string `json:"choices,omitempty"`
	Artifact string            `json:"artifact"`        // blob: what Backend.Decode reads
	Program  string            `json:"program"`         // blob: the program that it was lowered from
	Expected string            `json:"meant,omitempty"` // blob: the program with only the passes that it needs
	Parts    []string          `json:"parts,omitempty"` // blobs: of which these are made, and Expected itself
	Facts    json.RawMessage   `json:"facts,omitempty"`
	// Profile is the packets by counter that the order of its rules goes by.
	Profile map[string]uint64 `json:"profile,omitempty"`
	// Without is the passes of the optimizer that were left out.
	Without  []string     `json:"without,omitempty"`
	Cost     backend.Cost `json:"cost"`
	Notes    []string     `json:"notes,omitempty"`
	Sysctls  []Change     `json:"sysctls,omitempty"`
	SSHPorts []uint16     `json:"ssh-ports,omitempty"`
	Fitted   *Fitted      `json:"fitted,omitempty"` // as the kernel was given it last, where that is less
	Previous int          `json:"previous"`         // generation that it replaced, 0 is none
	Applied  time.Time    `json:"applied,omitzero"`
	// Trial is while it waits for confirmation. It is on disk before the rules
	// switch, so that a lost record keeps no trial alive.
	Trial     *Pending  `json:"trial,omitempty"`
	Confirmed time.Time `json:"confirmed,omitzero"`
	Events    []Event   `json:"events,omitempty"`
}

// Fitted is a generation without the interfaces that were not there when it was
// loaded.
type Fitted struct {
	Artifact string   `json:"artifact"`        // blob
	Parts    []string `json:"parts,omitempty"` // blobs of which it is made
	Missing  []string `json:"missing"`         // interfaces
}

func (f *Fitted) same(o *Fitted) bool {
	return f == o || f != nil && o != nil && f.Artifact == o.Artifact && slices.Equal(f.Missing, o.Missing)
}

// File is one file that the policy was made of. Policy text is kept whole, of
// set files only what tells one from another.
type File struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	Blob   string `json:"blob,omitempty"` // "" where the text is not kept
}

// Broken is a part of a policy that had errors when it was applied.
type Broken struct {
	File   string `json:"file"`
	Errors string `json:"errors"`
	Kept   bool   `json:"kept,omitempty"`   // its last text without errors is among the files
	SHA256 string `json:"sha256,omitempty"` // of the text with the errors; "": it could not be read
}

// Instead says what runs in its place.
func (b *Broken) Instead() string {
	if b.Kept {
		return "has errors and keeps the text that ran"
	}
	return "has errors and is left out"
}

// Change is a sysctl that a generation sets.
type Change struct {
	Name string `json:"name"`
	Old  string `json:"old"` // when the generation came
	New  string `json:"new"`
}

// Event is something that happened to a generation.
type Event struct {
	Time time.Time `json:"time"`
	What string    `json:"what"` // "applied", "confirmed", "expired", "rolled back", "restored", "replaced", "removed", "refreshed", "excepted", "sets edited"
	By   Author    `json:"by,omitzero"`
	// Took is how many seconds it took to load it and to read it back; 0: not known.
	Took float64 `json:"took,omitempty"`
}

// Events.
const (
	applied    = "applied"
	refreshed  = "refreshed"
	Excepted   = "excepted"
	SetsEdited = "sets edited"
	confirmed  = "confirmed"
	expired    = "expired"
	rolledBack = "rolled back"
	restored   = "restored"
	replaced   = "replaced"
	removed    = "removed"
)

// In is the path of one of its files, such as Policy, by the name that it has there.
func (g *Generation) In(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(g.Dir, name)
}

// blobs are what loading it and showing its text need; those of Fitted can be rebuilt.
func (g *Generation) blobs() []string {
	ids := append([]string{g.Artifact, g.Program}, g.Parts...)
	for _, f := range g.Files {
		ids = append(ids, f.Blob)
	}
	return slices.DeleteFunc(ids, func(id string) bool { return id == "" })
}

func (g *Generation) event(what string, by Author, now time.Time, took time.Duration) {
	g.Events = append(g.Events, Event{Time: now, What: what, By: by, Took: took.Seconds()})
	switch what {
	case applied:
		g.Applied = now
	case confirmed:
		g.Confirmed = now
	}
}

// format is the version of every file in the state directory.
const format = 1

// current is what runs and what comes back.
type current struct {
	Format  int       `json:"format"`
	Next    int       `json:"next"`    // number of the next generation
	Running int       `json:"running"` // generation that the kernel was left with, 0 is none
	Since   time.Time `json:"since,omitzero"`
	Boot    int       `json:"boot"` // last confirmed generation, 0 is none
	// Lost is why the confirmed generation is not known any more: Boot is 0, and the
	// host is closed at boot. "" where Boot is what it says.
	Lost    string   `json:"lost,omitempty"`
	Pending *Pending `json:"pending,omitempty"`
	// Unswept says that sets of what ran before a trial may be in the kernel still.
	Unswept bool `json:"unswept,omitempty"`
	// Originals are the sysctls before Sluice changed them, since this boot.
	Originals map[string]string `json:"originals,omitempty"`
	BootID    string            `json:"boot-id"` // of the boot that Running, Pending and Originals are of

	cause error // why it was rebuilt; nil where it was read
}

// Pending is a generation that waits for confirmation.
type Pending struct {
	Generation int       `json:"generation"`
	Previous   int       `json:"previous"` // what returns, 0 is nothing
	Token      string    `json:"token"`    // of its watcher
	Until      time.Time `json:"until"`    // by the wall clock, for the reader
	Deadline   int64     `json:"deadline"` // by CLOCK_BOOTTIME, ns: what counts
	BootID     string    `json:"boot-id"`
	Watcher    string    `json:"watcher"`         // "process 812", "unit sluice-confirm-….timer"
	PID        int       `json:"pid,omitempty"`   // of the watcher that acts
	Spare      int       `json:"spare,omitempty"` // of the one that acts when that one is dead
	Unit       string    `json:"unit,omitempty"`
	Grace      *passage  `json:"grace,omitempty"` // of Previous
}

// journal stands on disk while a change is under way.
type journal struct {
	Format  int       `json:"format"`
	What    string    `json:"what"` // the event that it becomes
	Started time.Time `json:"started"`
	BootID  string    `json:"boot-id"`
	By      Author    `json:"by"`
	From    place     `json:"from"`
	To      place     `json:"to"`
	New     bool      `json:"new,omitempty"`  // To was made for this change
	Step    string    `json:"step"`           // for the reader
	Back    bool      `json:"back,omitempty"` // the change failed and is being undone
	// Unmarked: rules of ours were there, but nothing said of which generation.
	Unmarked bool     `json:"unmarked,omitempty"`
	Pending  *Pending `json:"pending,omitempty"` // as it shall be after the change
	Confirm  bool     `json:"confirm,omitempty"` // To is confirmed with the change
	Fitted   *Fitted  `json:"fitted,omitempty"`  // what is loaded of To, where that is less
	Grace    *passage `json:"grace,omitempty"`   // of From, which comes back when the change is undone
	Boot     *int     `json:"boot,omitempty"`    // boot generation after the change, where it is neither kept nor To
	took     time.Duration
}

// place is one end of a change.
type place struct {
	Generation int    `json:"generation"` // 0 is nothing
	Mark       string `json:"mark"`       // "" is nothing in the kernel
}
