package apply

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sluice/internal/base/regular"
)

// FleetDir is the folder, below that of the state, of what a host is in its fleet.
const FleetDir = "fleet"

const (
	membershipFile = FleetDir + "/host.json"
	detachedFile   = FleetDir + "/detached.json"
	fleetStateFile = FleetDir + "/state.json"
)

// Membership says of which fleet a host is.
type Membership struct {
	Format      int               `json:"format"`
	Fleet       string            `json:"fleet"`
	Host        string            `json:"host"` // its id
	Labels      map[string]string `json:"labels,omitempty"`
	Controllers []string          `json:"controllers"` // HOST:PORT
	Enrolled    time.Time         `json:"enrolled"`
}

// Detached says who applied a policy of his own on a host of a fleet.
type Detached struct {
	Format int       `json:"format"`
	Time   time.Time `json:"time"`
	By     Author    `json:"by"`
}

// InFleet is where a host is with what its fleet desires.
type InFleet struct {
	Fleet    string            `json:"fleet"`
	Host     string            `json:"host"`
	Labels   map[string]string `json:"labels,omitempty"`
	Bundle   int64             `json:"bundle,omitempty"` // that State is about; 0: none is desired
	State    string            `json:"state"`            // see package wire of the fleet
	Error    string            `json:"error,omitempty"`
	Running  int64             `json:"running,omitempty"` // the bundle that is in force; 0: another policy is, or none
	Reached  time.Time         `json:"reached,omitzero"`  // when a controller answered last
	Lost     time.Time         `json:"lost,omitzero"`     // since when none does
	Why      string            `json:"why,omitempty"`     // with Lost
	Detached *Detached         `json:"detached,omitempty"`
}

// Membership is nil where the host is of no fleet.
func (h *Host) Membership() (*Membership, error) {
	var m Membership
	err := store{dir: h.Dir}.readJSON(membershipFile, &m)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &m, nil
}

// KeepMembership makes the host one of a fleet.
func (h *Host) KeepMembership(m *Membership) error {
	m.Format = format
	return store{dir: h.Dir}.writeJSON(membershipFile, m)
}

// InFleet is nil where the host is of no fleet.
func (h *Host) InFleet() (*InFleet, error) {
	m, err := h.Membership()
	if m == nil || err != nil {
		return nil, err
	}
	out := &InFleet{Fleet: m.Fleet, Host: m.Host, Labels: m.Labels, State: "none"}
	if out.Detached, err = h.DetachedBy(); err != nil {
		return nil, err
	}
	text, err := regular.Read(filepath.Join(h.Dir, fleetStateFile), 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	var is struct {
		Report struct {
			Bundle, Running int64
			State, Error    string
		}
		Reached, Lost time.Time
		Why           string
	}
	if err == nil {
		err = json.Unmarshal(text, &is)
	}
	if err != nil { // the agent writes it again
		out.Why = err.Error()
		return out, nil //nolint:nilerr // it is told
	}
	out.Bundle, out.State, out.Error, out.Running = is.Report.Bundle, is.Report.State, is.Report.Error, is.Report.Running
	out.Reached, out.Lost, out.Why = is.Reached, is.Lost, is.Why
	return out, nil
}

// DetachedBy says who has detached the host from its fleet; nil where nobody did.
func (h *Host) DetachedBy() (*Detached, error) {
	var d Detached
	err := store{dir: h.Dir}.readJSON(detachedFile, &d)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &d, nil
}

// ManagedError says that a fleet decides which policy runs.
type ManagedError struct {
	Fleet string
	Host  string // its id there
}

func (e *ManagedError) Error() string {
	return fmt.Sprintf("this host is %s of fleet %s, which decides what runs here", e.Host, e.Fleet)
}

// ErrUnmanaged says that the host is of no fleet.
var ErrUnmanaged = errors.New("this host is in no fleet")

// MayApply says whether a policy file, "" being one of no name, may be applied by hand: on a host of a fleet, one of
// the fleet's own, or any once somebody detaches it, with an undo for when the policy is
// not loaded after all. The error is a *ManagedError, or ErrUnmanaged.
func (h *Host) MayApply(file string, detach bool) (undo func(), err error) {
	undo = func() {}
	m, err := h.Membership()
	switch {
	case err != nil:
		return nil, err
	case m == nil && detach:
		return nil, ErrUnmanaged
	case m == nil:
		return undo, nil
	}
	before, err := h.DetachedBy()
	if err != nil {
		return nil, err
	}
	path, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	own := file != "" && h.InBundle(path)
	switch {
	case before != nil || own && !detach:
		return undo, nil
	case !detach:
		return nil, &ManagedError{m.Fleet, m.Host}
	}
	err = store{dir: h.Dir}.writeJSON(detachedFile, &Detached{format, time.Now().Truncate(time.Second), h.By})
	return func() { _ = h.Attach() }, err
}

// InBundle says whether a file, by its whole path, is one that the host has of its fleet.
func (h *Host) InBundle(path string) bool {
	return strings.HasPrefix(path, filepath.Join(h.Dir, FleetDir)+"/")
}

// Attach has the fleet decide again which policy runs. The error is fs.ErrNotExist where
// nobody has detached the host.
func (h *Host) Attach() error {
	m, err := h.Membership()
	if err == nil && m == nil {
		err = ErrUnmanaged
	}
	if err != nil {
		return err
	}
	return os.Remove(filepath.Join(h.Dir, detachedFile))
}
