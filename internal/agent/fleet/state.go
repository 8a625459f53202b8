package fleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"github.com/google/renameio/v2"

	"sluice/internal/base/regular"
	"sluice/internal/fleet/wire"
)

// State is what the next agent has to know.
type State struct {
	// Enrolled is the enrolment that it is of: another one starts again.
	Enrolled time.Time `json:"enrolled,omitzero"`

	Desired wire.Desired `json:"desired"` // that was taken last
	Report  wire.Report  `json:"report"`
	Aim     aim          `json:"aim"`  // what Report is about
	Done    aim          `json:"done"` // that was confirmed, or is not tried again
	// Labels is the hash of the order of labels that was taken last.
	Labels string `json:"labels,omitempty"`
	// Lists are the live lists that were tried last, by name, with generation ListsIn.
	Lists   map[string]liveList `json:"lists,omitempty"`
	ListsIn int                 `json:"lists-in,omitempty"`
	// Reached is when a controller answered last, and Lost since when none does.
	Reached time.Time `json:"reached,omitzero"`
	Lost    time.Time `json:"lost,omitzero"`
	Why     string    `json:"why,omitempty"` // with Lost
	Living  living    `json:"living,omitzero"`
}

// aim is what is pursued, and once alone. The numbers of roll-outs come again in another
// incarnation.
type aim struct {
	Incarnation int64  `json:"incarnation,omitempty"`
	Bundle      int64  `json:"bundle,omitempty"`
	Rollout     int64  `json:"rollout,omitempty"`
	Members     string `json:"members,omitempty"` // the contents of the documents
	Guests      string `json:"guests,omitempty"`
	Labels      string `json:"labels,omitempty"` // hash of the order that was taken; "": the token gave them
}

func (s *State) aimOf(d *wire.Desired) aim {
	a := aim{Incarnation: d.Order.Incarnation, Bundle: d.Bundle, Rollout: d.Rollout, Labels: s.Labels}
	if d.Members != nil {
		a.Members = d.Members.Content
	}
	if d.Guests != nil {
		a.Guests = d.Guests.Content
	}
	return a
}

const (
	stateName = "state.json"
	maxState  = 1 << 20
)

// writeFile writes a file whole or not at all.
func writeFile(path string, data []byte) error {
	return renameio.WriteFile(path, data, 0o600, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(0o600))
}

// load reads what an agent before has recorded of this enrolment.
func (m *Member) load() {
	var is State
	text, err := regular.Read(filepath.Join(m.Dir, stateName), maxState)
	if err == nil {
		err = json.Unmarshal(text, &is)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // what is desired comes again
		m.note(fmt.Errorf("what was done for the fleet is no longer known: %w", err))
	}
	if err != nil || !is.Enrolled.Equal(m.Enrolled) {
		is = State{Enrolled: m.Enrolled, Report: wire.Report{State: wire.StateNone}}
	}
	m.state = is
}

// save writes the state down. Where the disk is full, the state is reported and the next agent
// does not know it: that one asks the kernel what happened to it.
func (m *Member) save() {
	m.mu.Lock()
	text, err := json.Marshal(m.state)
	same := bytes.Equal(text, m.saved)
	if err == nil && !same {
		if err = writeFile(filepath.Join(m.Dir, stateName), text); err == nil {
			m.saved = text
		}
	}
	m.mu.Unlock()
	if err != nil {
		m.note(fmt.Errorf("record what is done for the fleet: %w", err))
	}
}

// update changes the state, writes it down and has what is reported told, where it is another.
func (m *Member) update(change func(*State)) {
	m.change(change)
	m.save()
}

func (m *Member) change(change func(*State)) {
	m.mu.Lock()
	before := m.state.Report
	change(&m.state)
	if !reflect.DeepEqual(before, m.state.Report) {
		nudge(m.tell)
	}
	m.mu.Unlock()
}

// passing reports a state on the way, which the next agent need not know: it is not recorded.
func (m *Member) passing(change func(*wire.Report)) {
	m.change(func(s *State) { change(&s.Report) })
}

// report changes what is reported.
func (m *Member) report(change func(*wire.Report)) {
	m.update(func(s *State) { change(&s.Report) })
}

// now is a copy of the state.
func (m *Member) now() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// Report is where the host is.
func (m *Member) Report() wire.Report {
	m.once.Do(m.begun)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current()
}

// current is called with the mutex.
func (m *Member) current() wire.Report {
	r := m.state.Report
	if r.Error == "" {
		r.Error = m.unlabelled
	}
	return r
}

// untold is the report, which nothing is left to be told of.
func (m *Member) untold() wire.Report {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.tell:
	default:
	}
	return m.current()
}

// detached says whether somebody applied a policy of his own.
func (m *Member) detached() bool {
	_, err := os.Lstat(filepath.Join(m.Dir, detachedName))
	return err == nil
}
