package trust

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/theupdateframework/go-tuf/v2/metadata"

	"sluice/internal/base/regular"
)

// OnlineFor is how long what a controller signs says that it is the newest.
const OnlineFor = 24 * time.Hour

const (
	keysName = "keys"
	maxKey   = 64 << 10
)

// Online is what a controller has: the keys of snapshot.json and timestamp.json, of live
// entries and of the intermediate CA, in a folder of its own, and the documents that hosts
// get from it. Its methods may be called from several goroutines.
type Online struct {
	lock sync.Mutex
	dir  string
	kept kept
	view *view
	keys map[string]PrivateKey // by id
	ca   *authority
}

// NewOnline begins a controller's folder with the root.json of a new fleet. Keys are
// added by [AddOnlineKey] and [AddOnlineCA].
func NewOnline(dir string, root []byte) error {
	first, err := readRoot(root)
	if err != nil {
		return err
	}
	if err := first.signed(metadata.ROOT, first.Metadata); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, keysName), 0o700); err != nil {
		return err
	}
	return writeKept(dir, kept{Root: root, Chain: [][]byte{root}})
}

// AddOnlineKey puts a key of a role into a controller's folder. Which of them sign is
// what root.json says.
func AddOnlineKey(dir, role string, key PrivateKey) error {
	text, err := EncodePrivate(key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, keysName), 0o700); err != nil {
		return err
	}
	_, id := roleKey(key.Public())
	return writeFile(filepath.Join(dir, keysName, role+"-"+id[:8]+".pem"), text, 0o600)
}

// OpenOnline reads a controller's folder. The error is fs.ErrNotExist where there is none.
func OpenOnline(dir string) (*Online, error) {
	k, v, err := openKept(dir)
	if err != nil {
		return nil, err
	}
	o := &Online{dir: dir, kept: k, view: v}
	if err := o.readKeys(); err != nil {
		return nil, err
	}
	o.ca, err = readAuthority(dir)
	return o, err
}

func (o *Online) readKeys() error {
	names, err := filepath.Glob(filepath.Join(o.dir, keysName, "*-*.pem"))
	if err != nil {
		return err
	}
	o.keys = map[string]PrivateKey{}
	for _, name := range names {
		text, err := regular.Read(name, maxKey)
		if err != nil {
			return err
		}
		key, err := DecodeRoleKey(text)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		_, id := roleKey(key.Public())
		o.keys[id] = key
	}
	return nil
}

// among finds one of these keys in the folder.
func (o *Online) among(role string, keys []ed25519.PublicKey) (PrivateKey, error) {
	for _, public := range keys {
		_, id := roleKey(public)
		if key, known := o.keys[id]; known {
			return key, nil
		}
	}
	return nil, fmt.Errorf("%s has no %s key that root.json names: %w", filepath.Join(o.dir, keysName), role, fs.ErrNotExist)
}

func (o *Online) keep(next kept) error {
	v, err := next.read()
	if err != nil {
		return err
	}
	if err := writeKept(o.dir, next); err != nil {
		return err
	}
	o.kept, o.view = next, v
	return nil
}

// Publish takes new versions of root.json and targets.json, as a host would: Roots and
// Targets of m count. [Online.Refresh] has hosts see them.
func (o *Online) Publish(m Metadata, now time.Time) error {
	o.lock.Lock()
	defer o.lock.Unlock()
	next, err := o.with(m, now)
	if err == nil {
		err = o.readKeys()
	}
	if err != nil {
		return err
	}
	return o.keep(next)
}

// Published is what [Online.State] would say after [Online.Publish].
func (o *Online) Published(m Metadata, now time.Time) (State, error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	next, err := o.with(m, now)
	if err != nil {
		return State{}, err
	}
	v, err := next.read()
	if err != nil {
		return State{}, err
	}
	return stateOf(next, v), nil
}

func (o *Online) with(m Metadata, now time.Time) (next kept, err error) {
	next, root, err := o.kept.withRoots(o.view.root, m.Roots)
	if err != nil {
		return next, err
	}
	if root.Signed.IsExpired(now) {
		return next, expired("root.json", root.Signed.Expires, now)
	}
	for _, data := range m.Roots {
		if r, err := readRoot(data); err == nil && r.Signed.Version > o.view.root.Signed.Version {
			next.Chain = append(next.Chain[:len(next.Chain):len(next.Chain)], data)
		}
	}
	next, _, err = next.withTargets(root, o.view.targets, m.Targets, now)
	return next, err
}

// Refresh signs snapshot.json and timestamp.json again, good for [OnlineFor], with the
// head of the audit chain. It is called when a controller begins, each hour, and after
// each Publish. Versions are Unix seconds, so a controller whose folder comes from a
// backup is not behind what hosts have seen.
func (o *Online) Refresh(auditHead string, now time.Time) (Metadata, error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	if o.view.targets == nil {
		return Metadata{}, fmt.Errorf("nothing is published yet: %w", fs.ErrNotExist)
	}
	version := now.Unix()
	if o.kept.Timestamp != nil {
		last, err := metadata.Timestamp().FromBytes(o.kept.Timestamp)
		if err != nil {
			return Metadata{}, told("timestamp.json", err)
		}
		version = max(version, last.Signed.Version+1)
	}
	until := now.Add(OnlineFor).UTC().Truncate(time.Second)
	snapshot := metadata.Snapshot(until)
	snapshot.Signed.Version = version
	snapshot.Signed.Meta["targets.json"] = metaOf(o.kept.Targets, o.view.targets.Signed.Version)
	next := o.kept
	var err error
	if next.Snapshot, err = signOnline(o, snapshot, metadata.SNAPSHOT); err != nil {
		return Metadata{}, err
	}
	stamp := metadata.Timestamp(until)
	stamp.Signed.Version = version
	stamp.Signed.Meta["snapshot.json"] = metaOf(next.Snapshot, version)
	stamp.Signed.UnrecognizedFields = Field(TimestampField{auditHead})
	if next.Timestamp, err = signOnline(o, stamp, metadata.TIMESTAMP); err != nil {
		return Metadata{}, err
	}
	if err := o.keep(next); err != nil {
		return Metadata{}, err
	}
	return o.kept.metadata(), nil
}

func metaOf(data []byte, version int64) *metadata.MetaFiles {
	sum := sha256.Sum256(data)
	return &metadata.MetaFiles{Version: version, Length: int64(len(data)), Hashes: metadata.Hashes{"sha256": sum[:]}}
}

func signOnline[T metadata.Roles](o *Online, document *metadata.Metadata[T], role string) ([]byte, error) {
	keys, _ := o.view.root.keys(role)
	key, err := o.among(role, keys)
	if err != nil {
		return nil, err
	}
	if err := signDocument(document, key); err != nil {
		return nil, err
	}
	return document.ToBytes(false)
}

func (k kept) metadata() Metadata { return Metadata{k.Chain, k.Timestamp, k.Snapshot, k.Targets} }

// Metadata is what hosts get: the chain of root.json, and the rest once there was a
// Refresh.
func (o *Online) Metadata() Metadata {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.kept.metadata()
}

// State is what is published.
func (o *Online) State() State {
	o.lock.Lock()
	defer o.lock.Unlock()
	return stateOf(o.kept, o.view)
}

// Bundle is what is signed of a bundle that hosts may be given, see [Host.Bundle].
func (o *Online) Bundle(number int64, level int, now time.Time) (Bundle, error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.view.bundle(number, level, now)
}

// SignLive signs a live entry. Numbers of a kind grow, within an incarnation.
func (o *Online) SignLive(kind string, seq int64, payload any) ([]byte, error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	if o.kept.Incarnation == 0 {
		return nil, errors.New("nothing is published yet")
	}
	key, err := o.among("live", o.view.root.live)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(payload)
	if err != nil {
		return nil, err
	}
	return seal(kind, liveBody{o.view.root.Fleet, o.kept.Incarnation, seq, text}, key)
}
