package apply

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Watched is what an agent found that looks after the rules, and did about it.
type Watched struct {
	Generation int       `json:"generation"` // that was looked at
	Proved     time.Time `json:"proved,omitzero"`
	Took       float64   `json:"took,omitempty"` // seconds, of that proof
	Findings   []Finding `json:"findings"`       // that hold
	// Restores are the last times that the rules were put back, the newest last; Stopped
	// is when these were too many, since when nothing is put back.
	Restores []time.Time `json:"restores,omitempty"`
	Stopped  time.Time   `json:"stopped,omitzero"`
	Last     *Alert      `json:"last-alert,omitempty"`
}

// Tells says that there is something that a person should know of.
func (w *Watched) Tells() bool { return len(w.Findings) > 0 || !w.Stopped.IsZero() || w.Last != nil }

// Watching is what the next agent has to know.
type Watching struct {
	Format int `json:"format"`
	Watched
	// StoppedAt is the last change of the generation by then: a later one starts again.
	StoppedAt time.Time `json:"stopped-at,omitzero"`
	// Beside tells the chains of other tools apart from others, and Accepted are those
	// findings that were there at first.
	Beside   uint64   `json:"beside,omitempty"`
	Accepted []string `json:"accepted"`
	// Peak is the most entries that the connection table had within PeakTime, as far as it
	// was looked at.
	Peak   uint64    `json:"peak,omitempty"`
	PeakAt time.Time `json:"peak-at,omitzero"`
}

// PeakTime is for how long the highest use of the connection table is remembered.
const PeakTime = 7 * 24 * time.Hour

// Finding is one way in which a host does something else with packets than was meant.
type Finding struct {
	Kind  FindingKind `json:"kind"`
	Text  string      `json:"text"`
	Line  string      `json:"line,omitempty"` // of the policy, or the rule, that means it otherwise
	By    string      `json:"by,omitempty"`   // who changed the ruleset before it was found, by its own word
	Since time.Time   `json:"since,omitzero"`
}

// FindingKind is what a finding is of.
type FindingKind string

// Kinds of findings.
const (
	FoundGone    FindingKind = "gone"    // the rules
	FoundMark    FindingKind = "mark"    // what says which generation they are
	FoundPacket  FindingKind = "packet"  // gets something else than was meant
	FoundBan     FindingKind = "ban"     // that does not hold, or was made by nobody
	FoundElement FindingKind = "element" // of a set that packets fill
	FoundUnread  FindingKind = "unread"  // a rule whose meaning is not known
	FoundSysctl  FindingKind = "sysctl"
	// FoundException is of one that commands made or lifted, and the rules not.
	FoundException FindingKind = "exception"
	FoundChain     FindingKind = "chain"  // of another tool
	FoundBeside    FindingKind = "beside" // what decides about packets beside rules
	FoundClosed    FindingKind = "closed" // the host, since a restore failed
	// FoundUnproved is that nothing could be proved of it.
	FoundUnproved FindingKind = "unproved"
)

// FindingKinds are all of them.
var FindingKinds = []FindingKind{FoundGone, FoundMark, FoundPacket, FoundBan, FoundElement, FoundUnread, FoundSysctl, FoundException, FoundChain, FoundBeside, FoundClosed, FoundUnproved}

// Foreign says that it is another tool's, and not for Sluice to remove.
func (k FindingKind) Foreign() bool { return k == FoundChain || k == FoundBeside }

// Restorable says that a restore may put it right.
func (k FindingKind) Restorable() bool { return !k.Foreign() && k != FoundClosed && k != FoundUnproved }

// Same says that both are of one thing.
func (f *Finding) Same(o Finding) bool { return f.Kind == o.Kind && f.Text == o.Text }

// Alert is something that a person should know of.
type Alert struct {
	Time       time.Time `json:"time"`
	Event      string    `json:"event"`
	Namespace  string    `json:"namespace,omitempty"`
	Generation int       `json:"generation,omitempty"`
	Text       string    `json:"text"`
	Set        string    `json:"set,omitempty"` // whose list it is about
	// Findings are new, or over, whichever the event is.
	Findings []Finding `json:"findings,omitempty"`
}

// watchedFile is in a folder of the agent's own: commands sweep what a killed one left
// beside their files.
const watchedFile = "agent/drift.json"

// Watched is nil where no agent ever looked.
func (h *Host) Watched() (*Watching, error) {
	var w Watching
	err := store{dir: h.Dir}.readJSON(watchedFile, &w)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &w, nil
}

// KeepWatched is for the agent of the host, of which there is one.
func (h *Host) KeepWatched(w *Watching) error {
	w.Format = format
	if err := os.MkdirAll(filepath.Join(h.Dir, filepath.Dir(watchedFile)), 0o700); err != nil {
		return fmt.Errorf("create the agent's directory: %w", err)
	}
	return store{dir: h.Dir}.writeJSON(watchedFile, w)
}
