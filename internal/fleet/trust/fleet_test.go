package trust

import (
	"crypto/ed25519"
	"testing"
	"time"
)

// start is when all of these fleets begin; no test reads a clock.
var start = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

// fleet is an operator with two policy keys and three root keys, and a controller.
type fleet struct {
	t            testing.TB
	root, policy []Signer
	repository   *Repository
	online       *Online
	dir          string // of the controller
	ca, caKey    []byte
	next         Signing
}

func newKeys(t testing.TB, n int) (keys []Signer) {
	for range n {
		key, err := NewKey()
		ok(t, err)
		keys = append(keys, key)
	}
	return keys
}

func publics(signers []Signer) (keys []ed25519.PublicKey) {
	for _, s := range signers {
		keys = append(keys, s.Public())
	}
	return keys
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newFleet founds a fleet whose policies need so many of two policy keys.
func newFleet(t testing.TB, name string, threshold int) *fleet {
	t.Helper()
	f := &fleet{t: t, root: newKeys(t, 3), policy: newKeys(t, 2), dir: t.TempDir()}
	var err error
	f.ca, f.caKey, err = NewCA(name, start)
	ok(t, err)
	founding := Founding{
		Fleet: name, CA: f.ca,
		Root: RoleKeys{publics(f.root), 2}, Policy: RoleKeys{publics(f.policy), threshold},
	}
	for role, keys := range map[string]*[]ed25519.PublicKey{"snapshot": &founding.Snapshot, "timestamp": &founding.Timestamp, "live": &founding.Live} {
		*keys = []ed25519.PublicKey{f.onlineKey(role)}
	}
	f.repository, err = Found(t.TempDir(), founding, start, f.root[:2]...)
	ok(t, err)
	ok(t, NewOnline(f.dir, f.repository.Root()))
	certificate, key, err := NewIntermediate(name, f.ca, f.caKey, start)
	ok(t, err)
	ok(t, AddOnlineCA(f.dir, certificate, key))
	f.online, err = OpenOnline(f.dir)
	ok(t, err)
	f.next = Signing{Level: 1, File: fileOf("fleet.yaml", "", "version: 1\n")}
	return f
}

func (f *fleet) onlineKey(role string) ed25519.PublicKey {
	key, err := NewKey()
	ok(f.t, err)
	ok(f.t, AddOnlineKey(f.dir, role, key))
	return key.Public()
}

func fileOf(path, selector, text string) File {
	return File{path, selector, HashOf([]byte(text)), int64(len(text))}
}

// sign makes a new bundle by changing a part, publishes it, and says what hosts get.
func (f *fleet) sign(now time.Time, text string) Metadata {
	f.t.Helper()
	f.next.Parts = []File{fileOf("parts/10-base.yaml", "", text)}
	f.next.Texts = map[string][]byte{f.next.File.SHA256: []byte("version: 1\n"), f.next.Parts[0].SHA256: []byte(text)}
	_, err := f.repository.Sign(f.next, now, f.policy...)
	ok(f.t, err)
	return f.publish(now)
}

func (f *fleet) publish(now time.Time) Metadata {
	f.t.Helper()
	m, err := f.repository.Metadata()
	ok(f.t, err)
	ok(f.t, f.online.Publish(m, now))
	m, err = f.online.Refresh("", now)
	ok(f.t, err)
	return m
}

func (f *fleet) host() *Host {
	f.t.Helper()
	h, err := NewHost(f.t.TempDir(), f.repository.roots[0])
	ok(f.t, err)
	return h
}
