package trust

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"sluice/internal/base/regular"
)

const (
	keptName = "trust.json"
	maxKept  = 2 << 20
)

// Host is what a host believes, kept in one file of a folder. Its methods may be called
// from several goroutines. What it refuses changes nothing, and an end of validity stops
// changes alone: a policy that is loaded stays.
type Host struct {
	lock sync.Mutex
	dir  string
	kept kept
	view *view
	owed bool // kept is newer than the file, by numbers of bans
}

// NewHost begins with the root.json that the operator's token names, see [PinnedRoot],
// and forgets what the folder held.
func NewHost(dir string, root []byte) (*Host, error) {
	first, err := readRoot(root)
	if err != nil {
		return nil, err
	}
	if err := first.signed("root", first.Metadata); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	h := &Host{dir: dir}
	return h, h.keep(kept{Root: root}, &view{root: first})
}

// OpenHost reads what is kept. The error is fs.ErrNotExist where no trust ever began.
func OpenHost(dir string) (*Host, error) {
	k, v, err := openKept(dir)
	if err != nil {
		return nil, err
	}
	return &Host{dir: dir, kept: k, view: v}, nil
}

// openKept reads and checks what NewHost or a controller kept.
func openKept(dir string) (k kept, v *view, err error) {
	path := filepath.Join(dir, keptName)
	text, err := regular.Read(path, maxKept)
	if err != nil {
		return k, nil, err
	}
	if err := json.Unmarshal(text, &k); err != nil {
		return k, nil, fmt.Errorf("%s is %w: %s", path, ErrMalformed, err.Error())
	}
	if v, err = k.read(); err != nil {
		return k, nil, fmt.Errorf("%s: %w", path, err)
	}
	return k, v, nil
}

func writeKept(dir string, k kept) error {
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, keptName), text, 0o600)
}

// writeFile writes a file whole or not at all, and on the disk when it returns.
func writeFile(path string, data []byte, mode fs.FileMode) error {
	return renameio.WriteFile(path, data, mode, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(mode))
}

// keep writes first: what is not on the disk is not believed.
func (h *Host) keep(next kept, v *view) error {
	if err := writeKept(h.dir, next); err != nil {
		return err
	}
	h.kept, h.view, h.owed = next, v, false
	return nil
}

// Settle records the number of bans that Live has got to. A host that dies before takes
// no older one than what it recorded, and is told the rest again.
func (h *Host) Settle() error {
	h.lock.Lock()
	defer h.lock.Unlock()
	if !h.owed {
		return nil
	}
	return h.keep(h.kept, h.view)
}

// Fleet is the name of the fleet.
func (h *Host) Fleet() string {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.view.root.Fleet
}

// CAs are the fleet's offline certification authorities.
func (h *Host) CAs() *x509.CertPool {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.view.root.cas
}

// Update takes what a controller says, all of it or nothing. The same again is nil.
func (h *Host) Update(m Metadata, now time.Time) error {
	h.lock.Lock()
	defer h.lock.Unlock()
	next, v, err := h.kept.updated(h.view, m, now)
	if err != nil {
		return err
	}
	if string(next.Root) == string(h.kept.Root) && string(next.Timestamp) == string(h.kept.Timestamp) {
		return nil
	}
	return h.keep(next, v)
}

// Accept takes the place of what a controller desires in the order of all that was ever
// desired: ErrRolledBack is for one that comes late, ErrUnsigned for an incarnation that
// no policy key has signed. The same again is nil.
func (h *Host) Accept(incarnation, revision int64) error {
	h.lock.Lock()
	defer h.lock.Unlock()
	signed := h.kept.Incarnation
	switch {
	case incarnation > signed:
		return fmt.Errorf("incarnation %d is %w: %d is", incarnation, ErrUnsigned, signed)
	case incarnation < signed:
		return fmt.Errorf("incarnation %d is %w, %d", incarnation, ErrRolledBack, signed)
	case revision < h.kept.Revision:
		return fmt.Errorf("revision %d is %w, %d", revision, ErrRolledBack, h.kept.Revision)
	case revision == h.kept.Revision:
		return nil
	}
	next := h.kept
	next.Revision = revision
	if err := writeKept(h.dir, next); err != nil {
		return err
	}
	h.kept = next // what is signed is the same
	return nil
}

// Bundle is what is signed of a bundle, if it may be enforced by a program that knows the
// language up to this level: otherwise ErrUnsigned, ErrBelowFloor, ErrExpired or ErrLevel.
func (h *Host) Bundle(number int64, level int, now time.Time) (Bundle, error) {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.view.bundle(number, level, now)
}

// State is what is believed of a fleet, for whoever reports it.
type State struct {
	Fleet       string    `json:"fleet"`
	RootVersion int64     `json:"root-version"`
	RootExpires time.Time `json:"root-expires"`
	RootSHA256  string    `json:"root-sha256"`
	Incarnation int64     `json:"incarnation,omitempty"`
	Revision    int64     `json:"revision,omitempty"` // of a host alone
	Floor       int64     `json:"floor,omitempty"`
	Bundles     []Bundle  `json:"bundles,omitempty"` // by number

	TargetsVersion   int64     `json:"targets-version,omitempty"`
	TargetsExpires   time.Time `json:"targets-expires,omitzero"`
	TimestampExpires time.Time `json:"timestamp-expires,omitzero"`
	AuditHead        string    `json:"audit-head,omitempty"`
}

// State is what is believed now.
func (h *Host) State() State {
	h.lock.Lock()
	defer h.lock.Unlock()
	return stateOf(h.kept, h.view)
}

func stateOf(k kept, v *view) State {
	s := State{
		Fleet: v.root.Fleet, RootVersion: v.root.Signed.Version, RootExpires: v.root.Signed.Expires, RootSHA256: HashOf(k.Root),
		Incarnation: k.Incarnation, Revision: k.Revision,
		TimestampExpires: v.until.timestamp, AuditHead: v.audit.AuditHead,
	}
	if v.targets != nil {
		s.Floor, s.Bundles = v.targets.Floor, v.targets.bundles
		s.TargetsVersion, s.TargetsExpires = v.targets.Signed.Version, v.targets.Signed.Expires
	}
	return s
}
