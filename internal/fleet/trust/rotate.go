package trust

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/theupdateframework/go-tuf/v2/metadata"

	"sluice/internal/base/regular"
)

// Change is what the next root.json says otherwise than the one before: keys of roles
// ("root", "targets", "snapshot", "timestamp"), the live keys, the offline CAs. What is nil
// stays.
type Change struct {
	Roles map[string]RoleKeys
	Live  []ed25519.PublicKey
	CA    [][]byte // certificates, PEM
}

// Rooted is what happened to a new root.json.
type Rooted struct {
	Version int64     `json:"version"`
	Expires time.Time `json:"expires"`
	Missing int       `json:"missing"` // signatures of root keys; with 0 it is in force
}

// Rotate makes the next root.json, good for [RootFor], and signs it. It is in force when
// enough root keys of the version before, and enough of its own, have signed; until then
// it is next to as pending, for [Repository.CosignRoot]. Who drops the keys of a role
// ends what they signed: after those of policies, the list of bundles wants signing again.
func (r *Repository) Rotate(c Change, now time.Time, by ...Signer) (Rooted, error) {
	next, err := metadata.Root().FromBytes(r.Root())
	if err != nil {
		return Rooted{}, told("root.json", err)
	}
	next.Signatures = []metadata.Signature{}
	next.Signed.Version++
	next.Signed.Expires = now.Add(RootFor).UTC().Truncate(time.Second)
	for role, keys := range c.Roles {
		if _, known := next.Signed.Roles[role]; !known {
			return Rooted{}, fmt.Errorf("role %q: %w", role, fs.ErrNotExist)
		}
		if keys.Threshold < 1 || keys.Threshold > len(keys.Keys) {
			return Rooted{}, fmt.Errorf("%d of %d keys of %s: no more of them than there are", keys.Threshold, len(keys.Keys), role)
		}
		setRole(next, role, keys)
	}
	says := r.root.RootField
	if c.Live != nil {
		says.Live = hexKeys(c.Live)
	}
	if c.CA != nil {
		says.CA = nil
		for _, ca := range c.CA {
			says.CA = append(says.CA, string(ca))
		}
	}
	next.Signed.UnrecognizedFields = Field(says)
	return r.signRoot(next, by)
}

// PendingRoot is what happens to a new root.json that lacks signatures. The error is
// fs.ErrNotExist where none is pending.
func (r *Repository) PendingRoot() (Rooted, error) {
	next, err := r.pendingRoot()
	if err != nil {
		return Rooted{}, err
	}
	return r.rooted(next), nil
}

func (r *Repository) rooted(next *root) Rooted {
	return Rooted{Version: next.Signed.Version, Expires: next.Signed.Expires, Missing: max(r.root.lacks(next), next.lacks(next))}
}

func (r *Repository) pendingRoot() (*root, error) {
	text, err := regular.Read(filepath.Join(r.dir, pendingRoot), MaxRoot)
	if err != nil {
		return nil, err
	}
	return readRoot(text)
}

// CosignRoot adds signatures to a pending root.json. The error is fs.ErrNotExist where
// none is pending.
func (r *Repository) CosignRoot(by ...Signer) (Rooted, error) {
	next, err := r.pendingRoot()
	if err != nil {
		return Rooted{}, err
	}
	return r.signRoot(next.Metadata, by)
}

func (r *Repository) signRoot(next *metadata.Metadata[metadata.RootType], by []Signer) (Rooted, error) {
	text, err := signAll(next, by)
	if err != nil {
		return Rooted{}, err
	}
	made, err := readRoot(text)
	if err != nil {
		return Rooted{}, err
	}
	if made.Signed.Version != r.root.Signed.Version+1 || made.Fleet != r.root.Fleet {
		return Rooted{}, fmt.Errorf("the pending root.json is %w: version %d of %q", ErrMalformed, made.Signed.Version, made.Fleet)
	}
	out := r.rooted(made)
	pending := filepath.Join(r.dir, pendingRoot)
	if out.Missing > 0 {
		return out, writeFile(pending, text, 0o644)
	}
	if err := r.addRoot(text, made); err != nil {
		return out, err
	}
	if err := os.Remove(pending); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return out, err
	}
	return out, nil
}

// lacks is how many signatures of this root's root keys another one lacks.
func (r *root) lacks(next *root) int {
	role := r.Signed.Roles[metadata.ROOT]
	return max(role.Threshold-r.signatures(metadata.ROOT, next.Metadata), 0)
}

// signatures is how many keys of a role have signed a document.
func (r *root) signatures(role string, document any) int {
	n := 0
	for _, id := range r.Signed.Roles[role].KeyIDs {
		one := *r.Metadata
		one.Signed.Roles = map[string]*metadata.Role{role: {KeyIDs: []string{id}, Threshold: 1}}
		if one.VerifyDelegate(role, document) == nil {
			n++
		}
	}
	return n
}

// RootSigners are the keys that may sign a new root.json: those of the version that is in
// force, and of one that is pending.
func (r *Repository) RootSigners() []ed25519.PublicKey {
	keys, _ := r.root.keys(metadata.ROOT)
	if next, err := r.pendingRoot(); err == nil {
		more, _ := next.keys(metadata.ROOT)
		for _, key := range more {
			if !slices.ContainsFunc(keys, func(k ed25519.PublicKey) bool { return k.Equal(key) }) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// Live is which keys sign live entries.
func (r *Repository) Live() []ed25519.PublicKey { return r.root.live }

// CAs are the certificates of the offline certification authorities, PEM.
func (r *Repository) CAs() [][]byte {
	var all [][]byte
	for _, text := range r.root.CA {
		all = append(all, []byte(text))
	}
	return all
}
