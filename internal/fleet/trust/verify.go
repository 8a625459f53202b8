package trust

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/theupdateframework/go-tuf/v2/metadata"
	"github.com/theupdateframework/go-tuf/v2/metadata/trustedmetadata"
)

// kept is what stays on disk of all that was ever verified, and in which order things
// came: without it an older state could be sold as a new one.
type kept struct {
	Root        []byte           `json:"root"`
	Timestamp   []byte           `json:"timestamp,omitempty"`
	Snapshot    []byte           `json:"snapshot,omitempty"`
	Targets     []byte           `json:"targets,omitempty"`
	Incarnation int64            `json:"incarnation,omitempty"` // of Revision and Seen
	Revision    int64            `json:"revision,omitempty"`    // of what a controller desired last
	Seen        map[string]int64 `json:"seen,omitempty"`        // the newest number of each kind of envelope
	Order       int64            `json:"order,omitempty"`       // the newest order that changed labels
	Chain       [][]byte         `json:"chain,omitempty"`       // of a controller: all versions of root.json, for hosts that have an older one
}

// view is what the kept documents say.
type view struct {
	root    *root
	targets *targets // nil before the first update
	until   struct{ timestamp, snapshot time.Time }
	audit   TimestampField
	// Those that were verified by this root, nil of an older one and of what is only kept.
	stamp    *metadata.Metadata[metadata.TimestampType]
	snapshot *metadata.Metadata[metadata.SnapshotType]
}

// read looks over what is kept, which was verified before it was written: neither
// signatures nor clocks matter.
func (k *kept) read() (*view, error) {
	v := &view{}
	var err error
	if v.root, err = readRoot(k.Root); err != nil {
		return nil, err
	}
	if k.Targets != nil {
		if v.targets, err = readTargets(k.Targets); err != nil {
			return nil, err
		}
	}
	if k.Timestamp != nil {
		stamp, err := metadata.Timestamp().FromBytes(k.Timestamp)
		if err != nil {
			return nil, told("timestamp.json", err)
		}
		return v, v.fresh(stamp, until(k.Snapshot))
	}
	return v, nil
}

// fresh notes what a controller said last.
func (v *view) fresh(stamp *metadata.Metadata[metadata.TimestampType], snapshot time.Time) error {
	v.until.timestamp, v.until.snapshot = stamp.Signed.Expires, snapshot
	return fieldOf("timestamp.json", stamp.Signed.UnrecognizedFields, &v.audit)
}

// withRoots follows a chain from the root that is kept: each root is signed by the keys
// of the one before and by its own. Those that are kept already are skipped.
func (k kept) withRoots(now *root, chain [][]byte) (kept, *root, error) {
	if len(chain) > maxRoots {
		return k, nil, fmt.Errorf("the chain of root.json is %w: %d versions, at most %d", ErrTooLarge, len(chain), maxRoots)
	}
	known := slices.IndexFunc(chain, func(data []byte) bool { return bytes.Equal(data, k.Root) })
	for _, data := range chain[known+1:] {
		next, err := readRoot(data)
		what := "root.json"
		switch {
		case err != nil:
			return k, nil, err
		case next.Fleet != now.Fleet:
			return k, nil, foreign(what, next.Fleet, now.Fleet)
		case next.Signed.Version <= now.Signed.Version:
			continue
		case next.Signed.Version > now.Signed.Version+1:
			return k, nil, fmt.Errorf("the chain of root.json is %w: version %d comes after %d", ErrMalformed, next.Signed.Version, now.Signed.Version)
		}
		if err := now.signed(metadata.ROOT, next.Metadata); err != nil {
			return k, nil, err
		}
		if err := next.signed(metadata.ROOT, next.Metadata); err != nil {
			return k, nil, err
		}
		now = next
	}
	k.Root = now.bytes
	return k, now, nil
}

// withTargets takes a targets.json that this root's policy keys have signed, and that is
// not older than the kept one. What a policy key that root.json does not name any more
// has signed counts for nothing: so a fleet gets rid of a stolen key and of the numbers
// that it signed.
func (k kept) withTargets(by *root, old *targets, data []byte, now time.Time) (kept, *targets, error) {
	next, err := readTargets(data)
	switch {
	case err != nil:
		return k, nil, err
	case next.Fleet != by.Fleet:
		return k, nil, foreign("targets.json", next.Fleet, by.Fleet)
	}
	if err := by.signed(metadata.TARGETS, next.Metadata); err != nil {
		return k, nil, err
	}
	next.by = by
	if old != nil && (old.by == by || by.signed(metadata.TARGETS, old.Metadata) == nil) {
		if err := next.after(old); err != nil {
			return k, nil, err
		}
	}
	if next.Signed.IsExpired(now) {
		return k, nil, expired("targets.json", next.Signed.Expires, now)
	}
	k.Targets = data
	if next.Incarnation != k.Incarnation {
		k.Incarnation, k.Revision, k.Seen = next.Incarnation, 0, nil
	}
	return k, next, nil
}

func (t *targets) after(old *targets) error {
	for _, n := range []struct {
		what     string
		new, old int64
	}{
		{"version", t.Signed.Version, old.Signed.Version},
		{"incarnation", t.Incarnation, old.Incarnation},
		{"floor", t.Floor, old.Floor},
	} {
		if n.new < n.old {
			return fmt.Errorf("targets.json is %w: %s %d after %d", ErrRolledBack, n.what, n.new, n.old)
		}
	}
	return nil
}

// updated verifies all that a controller says, by the workflow of a client of The Update
// Framework. V is what the kept documents say.
func (k kept) updated(v *view, m Metadata, now time.Time) (kept, *view, error) {
	next, root, err := k.withRoots(v.root, m.Roots)
	if err != nil {
		return k, nil, err
	}
	if root.Signed.IsExpired(now) {
		return k, nil, expired("root.json", root.Signed.Expires, now)
	}
	if err := shapedOnline("timestamp.json", m.Timestamp, "snapshot.json"); err != nil {
		return k, nil, err
	}
	if err := shapedOnline("snapshot.json", m.Snapshot, "targets.json"); err != nil {
		return k, nil, err
	}
	by := &trustedmetadata.TrustedMetadata{Root: root.Metadata, Targets: map[string]*metadata.Metadata[metadata.TargetsType]{}, RefTime: now}
	// What is kept serves as the past: its errors, an end of it or a key that was
	// replaced since, are none of the new documents.
	if root == v.root && v.stamp != nil {
		by.Timestamp = v.stamp
	} else if k.Timestamp != nil {
		_, _ = by.UpdateTimestamp(k.Timestamp)
	}
	var equal *metadata.ErrEqualVersionNumber
	switch _, err := by.UpdateTimestamp(m.Timestamp); {
	case errors.As(err, &equal) && bytes.Equal(k.Timestamp, m.Timestamp):
	case errors.As(err, &equal):
		return k, nil, fmt.Errorf("timestamp.json is %w: another one has its version", ErrRolledBack)
	case err != nil:
		return k, nil, ended(told("timestamp.json", err), "timestamp.json", m.Timestamp, now)
	}
	if root == v.root && v.snapshot != nil {
		by.Snapshot = v.snapshot
	} else if k.Snapshot != nil {
		_, _ = by.UpdateSnapshot(k.Snapshot, true)
	}
	if _, err := by.UpdateSnapshot(m.Snapshot, false); err != nil {
		what := "snapshot.json"
		if by.Timestamp.Signed.IsExpired(now) {
			return k, nil, expired("timestamp.json", by.Timestamp.Signed.Expires, now)
		}
		return k, nil, ended(told(what, err), what, m.Snapshot, now)
	}
	said := &view{root: root, targets: v.targets, stamp: by.Timestamp, snapshot: by.Snapshot}
	if root != v.root || v.targets == nil || !bytes.Equal(k.Targets, m.Targets) { // else its signatures were verified, by this root
		if next, said.targets, err = next.withTargets(root, v.targets, m.Targets, now); err != nil {
			return k, nil, err
		}
	}
	if err := said.listed(m.Targets, now); err != nil {
		return k, nil, err
	}
	next.Timestamp, next.Snapshot = m.Timestamp, m.Snapshot
	return next, said, said.fresh(by.Timestamp, by.Snapshot.Signed.Expires)
}

// listed says whether targets.json is the one that snapshot.json lists, and has not ended.
func (v *view) listed(data []byte, now time.Time) error {
	meta := v.snapshot.Signed.Meta["targets.json"]
	if err := meta.VerifyLengthHashes(data); err != nil {
		return told("targets.json", err)
	}
	if meta.Version != v.targets.Signed.Version {
		return fmt.Errorf("targets.json is %w: version %d instead of %d", ErrRolledBack, v.targets.Signed.Version, meta.Version)
	}
	if v.targets.Signed.IsExpired(now) {
		return expired("targets.json", v.targets.Signed.Expires, now)
	}
	return nil
}

// ended says of an expired document when it did.
func ended(err error, what string, data []byte, now time.Time) error {
	if !errors.Is(err, ErrExpired) {
		return err
	}
	return expired(what, until(data), now)
}

// bundle finds what is signed of a bundle.
func (v *view) bundle(number int64, level int, now time.Time) (Bundle, error) {
	what := fmt.Sprintf("bundle %d", number)
	if v.targets == nil {
		return Bundle{}, fmt.Errorf("%s is %w: no list of bundles came yet", what, ErrUnsigned)
	}
	for _, end := range []struct {
		what string
		at   time.Time
	}{
		{"root.json", v.root.Signed.Expires},
		{"timestamp.json", v.until.timestamp},
		{"snapshot.json", v.until.snapshot},
		{"targets.json", v.targets.Signed.Expires},
	} {
		if now.After(end.at) {
			return Bundle{}, expired(end.what, end.at, now)
		}
	}
	if number < v.targets.Floor {
		return Bundle{}, fmt.Errorf("%s is %w, %d", what, ErrBelowFloor, v.targets.Floor)
	}
	for _, b := range v.targets.bundles {
		switch {
		case b.Number != number:
		case now.After(b.Expires):
			return Bundle{}, expired(what, b.Expires, now)
		case b.Level > level:
			return Bundle{}, fmt.Errorf("%s is %w: language level %d, and this one knows %d", what, ErrLevel, b.Level, level)
		default:
			return b, nil
		}
	}
	return Bundle{}, fmt.Errorf("%s is %w: it is not in the signed list", what, ErrUnsigned)
}
