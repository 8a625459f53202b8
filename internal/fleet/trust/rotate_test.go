package trust

import (
	"crypto/ed25519"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// rotate makes a change in force and has a controller and hosts take it.
func (f *fleet) rotate(c Change, now time.Time) {
	f.t.Helper()
	rooted, err := f.repository.Rotate(c, now, f.root[:2]...)
	ok(f.t, err)
	if rooted.Missing != 0 {
		f.t.Fatalf("%+v", rooted)
	}
}

// Each key is replaced by another one; hosts that slept meanwhile follow, and what the
// replaced key signs afterwards counts for nothing.
func TestRotation(t *testing.T) {
	t.Parallel()
	for role, rotate := range map[string]func(t *testing.T, f *fleet, now time.Time) (stolen func() error){
		"timestamp": func(t *testing.T, f *fleet, now time.Time) func() error {
			old := &Online{view: f.online.view, keys: f.online.keys}
			f.rotate(Change{Roles: map[string]RoleKeys{"timestamp": {[]ed25519.PublicKey{f.onlineKey("timestamp")}, 1}}}, now)
			return f.byOld(t, old, now)
		},
		"snapshot": func(t *testing.T, f *fleet, now time.Time) func() error {
			old := &Online{view: f.online.view, keys: f.online.keys}
			f.rotate(Change{Roles: map[string]RoleKeys{"snapshot": {[]ed25519.PublicKey{f.onlineKey("snapshot")}, 1}}}, now)
			return f.byOld(t, old, now)
		},
		"policy": func(t *testing.T, f *fleet, now time.Time) func() error {
			old := f.policy
			f.policy = newKeys(t, 2)
			f.rotate(Change{Roles: map[string]RoleKeys{"targets": {publics(f.policy), 2}}}, now)
			_, err := f.repository.Metadata()
			is(t, err, ErrUnsigned) // until it is signed again
			return func() error {
				return f.host2(t).Update(f.around(t, f.resigned(t, f.online.kept.Targets, old...), now), now)
			}
		},
		"root": func(t *testing.T, f *fleet, now time.Time) func() error {
			old := f.root
			f.root = append(newKeys(t, 1), old[1], old[2])
			rooted, err := f.repository.Rotate(Change{Roles: map[string]RoleKeys{"root": {publics(f.root), 2}}}, now, old[1:]...)
			ok(t, err)
			if rooted.Missing != 0 {
				t.Errorf("%+v", rooted)
			}
			return func() error {
				thief := *f.repository
				thief.dir = t.TempDir()
				rooted, err := thief.Rotate(Change{}, now, old[0], old[1])
				ok(t, err)
				if rooted.Missing != 1 {
					t.Errorf("%+v", rooted)
				}
				stolen, err := thief.pendingRoot()
				ok(t, err)
				m := f.online.Metadata()
				m.Roots = append(m.Roots[:len(m.Roots):len(m.Roots)], stolen.bytes)
				return f.host2(t).Update(m, now)
			}
		},
		"live": func(t *testing.T, f *fleet, now time.Time) func() error {
			old := must(f.online.SignLive(KindMembers, 9, "stolen"))
			f.rotate(Change{Live: []ed25519.PublicKey{f.onlineKey("live")}}, now)
			return func() error {
				h := f.host2(t)
				ok(t, h.Update(f.online.Metadata(), now))
				_, _, err := h.Live(KindMembers, must(f.online.SignLive(KindMembers, 1, "right")))
				ok(t, err)
				_, _, err = h.Live(KindMembers, old)
				return err
			}
		},
		"offline CA": func(t *testing.T, f *fleet, now time.Time) func() error {
			old := f.certificate("web-1", now)
			certificate, key, err := NewCA("example.net", now)
			ok(t, err)
			own, ownKey, err := NewIntermediate("example.net", certificate, key, now)
			ok(t, err)
			ok(t, AddOnlineCA(f.dir, own, ownKey))
			f.rotate(Change{CA: [][]byte{certificate}}, now)
			return func() error {
				reopened, err := OpenOnline(f.dir)
				ok(t, err)
				f.online = reopened
				h := f.host2(t)
				ok(t, h.Update(f.online.Metadata(), now))
				clock := func() time.Time { return now }
				_, host, controller := meet(t, h.ClientTLS(f.certificate("web-1", now), clock), f.online.ServerTLS(nil, clock), now)
				ok(t, errors.Join(host, controller))
				_, _, controller = meet(t, h.ClientTLS(old, clock), f.online.ServerTLS(nil, clock), now)
				return controller
			}
		},
	} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, "example.net", 2)
			h := f.host()
			ok(t, h.Update(f.sign(start, "one"), start))
			now := start.Add(time.Hour)
			stolen := rotate(t, f, now)
			m := f.sign(now, "two")
			ok(t, h.Update(m, now))
			ok(t, f.host().Update(m, now)) // from the first root.json
			ok(t, errOf(h.Bundle(2, 1, now)))
			if err := stolen(); !errors.Is(err, ErrUnsigned) && !errors.Is(err, ErrThreshold) {
				t.Errorf("the old key counts: %v", err)
			}
			_, err := OpenRepository(filepath.Dir(f.repository.dir))
			ok(t, err)
		})
	}
}

// host2 is a host that has heard of the newest root.json.
func (f *fleet) host2(t *testing.T) *Host {
	h, err := NewHost(t.TempDir(), f.repository.Root())
	ok(t, err)
	return h
}

// byOld is what the old key of a controller signs after it was replaced.
func (f *fleet) byOld(t *testing.T, old *Online, now time.Time) func() error {
	return func() error {
		thief := &Online{dir: t.TempDir(), kept: f.online.kept, view: old.view, keys: old.keys}
		m, err := thief.Refresh("", now.Add(time.Minute))
		ok(t, err)
		return f.host2(t).Update(m, now.Add(time.Minute))
	}
}

// A policy key was stolen, and signed numbers that nothing could follow: replacing it
// ends them.
func TestStolenPolicyKeyIsOutlived(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net", 1)
	h := f.host()
	ok(t, h.Update(f.sign(start, "one"), start))
	thief, err := OpenRepository(filepath.Dir(f.repository.dir))
	ok(t, err)
	thief.dir = t.TempDir()
	ok(t, os.CopyFS(thief.dir, os.DirFS(f.repository.dir)))
	thief.targets.Incarnation, thief.targets.Signed.Version = 1<<40, 1<<40
	_, err = thief.Sign(f.next, start, f.policy[0])
	ok(t, err)
	bad := f.around(t, thief.bytes, start)
	ok(t, h.Update(bad, start))
	ok(t, h.Accept(1<<40, 1<<40))

	now := start.Add(time.Hour)
	f.policy = newKeys(t, 1)
	f.rotate(Change{Roles: map[string]RoleKeys{
		"targets": {publics(f.policy), 1}, "snapshot": {[]ed25519.PublicKey{f.onlineKey("snapshot")}, 1}, "timestamp": {[]ed25519.PublicKey{f.onlineKey("timestamp")}, 1},
	}}, now)
	ok(t, h.Update(f.sign(now, "two"), now))
	ok(t, h.Accept(1, 1))
	ok(t, errOf(h.Bundle(2, 1, now)))
}

// Who has two of three root keys replaces every key, and hosts follow: what the operators sign
// counts for nothing then.
func TestTwoRootKeys(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net", 2)
	h := f.host()
	ok(t, h.Update(f.sign(start, "one"), start))
	now, policy, right := start.Add(time.Hour), f.policy, f.online.kept.Targets
	root := newKeys(t, 1)
	f.policy = newKeys(t, 1)
	rooted, err := f.repository.Rotate(Change{Roles: map[string]RoleKeys{
		"root": {publics(root), 1}, "targets": {publics(f.policy), 1},
		"snapshot": {[]ed25519.PublicKey{f.onlineKey("snapshot")}, 1}, "timestamp": {[]ed25519.PublicKey{f.onlineKey("timestamp")}, 1},
	}}, now, f.root[0], f.root[1], root[0])
	ok(t, err)
	if rooted.Missing != 0 {
		t.Fatalf("%+v", rooted)
	}
	ok(t, h.Update(f.sign(now, "stolen"), now))
	ok(t, errOf(h.Bundle(2, 1, now)))
	if err := f.host2(t).Update(f.around(t, f.resigned(t, right, policy...), now), now); !errors.Is(err, ErrUnsigned) && !errors.Is(err, ErrThreshold) {
		t.Errorf("what the operators sign: %v", err)
	}
}

// Two of three holders sign a new root.json, one after the other.
func TestPendingRoot(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net", 1)
	is(t, errOf(f.repository.CosignRoot(f.root[0])), fs.ErrNotExist)
	rooted, err := f.repository.Rotate(Change{}, start, f.root[0])
	ok(t, err)
	if rooted.Version != 2 || rooted.Missing != 1 {
		t.Errorf("%+v", rooted)
	}
	again, err := OpenRepository(filepath.Dir(f.repository.dir))
	ok(t, err)
	if len(again.roots) != 1 {
		t.Error("in force without the second signature")
	}
	for _, by := range []Signer{f.root[0], newKeys(t, 1)[0]} { // the same again, and a stranger
		rooted, err = again.CosignRoot(by)
		ok(t, err)
		if rooted.Missing != 1 {
			t.Errorf("%+v", rooted)
		}
	}
	rooted, err = again.CosignRoot(f.root[2])
	ok(t, err)
	if rooted.Missing != 0 || len(again.roots) != 2 {
		t.Errorf("%+v", rooted)
	}
	is(t, errOf(again.CosignRoot(f.root[2])), fs.ErrNotExist)
	is(t, errOf(again.Rotate(Change{Roles: map[string]RoleKeys{"x": {}}}, start)), fs.ErrNotExist)
	if _, err := again.Rotate(Change{Roles: map[string]RoleKeys{"root": {publics(f.root), 4}}}, start); err == nil {
		t.Error("a threshold that no keys reach")
	}
}
