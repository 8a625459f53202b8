package trust

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/theupdateframework/go-tuf/v2/metadata"
)

func is(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

func TestHostTakesWhatWasSigned(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net", 2)
	h := f.host()
	is(t, errOf(h.Bundle(1, 1, start)), ErrUnsigned)
	m := f.sign(start, "one")
	ok(t, h.Update(m, start))
	ok(t, h.Update(m, start)) // the same again
	f.sign(start.Add(time.Hour), "two")
	m, err := f.online.Refresh("head", start.Add(2*time.Hour))
	ok(t, err)
	ok(t, h.Update(m, start.Add(2*time.Hour)))

	h, err = OpenHost(h.dir) // as after a start
	ok(t, err)
	for number, text := range map[int64]string{1: "one", 2: "two"} {
		b, err := h.Bundle(number, 1, start.Add(2*time.Hour))
		ok(t, err)
		manifest, err := os.ReadFile(f.repository.manifestPath(number))
		ok(t, err)
		is(t, errOf(b.Manifest(append(manifest, ' '))), ErrHash)
		read, err := b.Manifest(manifest)
		ok(t, err)
		ok(t, read.Parts[0].Check([]byte(text)))
		is(t, read.Parts[0].Check([]byte("xxx")), ErrHash)
	}
	s := h.State()
	if s.AuditHead != "head" || s.Incarnation != 1 || len(s.Bundles) != 2 || s.Fleet != "example.net" {
		t.Errorf("state %+v", s)
	}
	is(t, errOf(h.Bundle(3, 1, start)), ErrUnsigned)
	f.next.Level = 9
	ok(t, h.Update(f.sign(start.Add(3*time.Hour), "three"), start.Add(3*time.Hour)))
	is(t, errOf(h.Bundle(3, 8, start)), ErrLevel)
	_, err = OpenHost(t.TempDir())
	is(t, err, fs.ErrNotExist)
}

func errOf[T any](_ T, err error) error { return err }

// Whatever a host refuses leaves what it believes as it was, in memory and on the disk.
func TestHostRefuses(t *testing.T) {
	t.Parallel()
	f, other := newFleet(t, "example.net", 2), newFleet(t, "example.org", 2)
	twin := newFleet(t, "example.net", 2) // of the same name, with other keys
	first := f.sign(start, "one")
	second := f.sign(start.Add(time.Hour), "two")
	h := f.host()
	ok(t, h.Update(second, start.Add(time.Hour)))
	before, err := os.ReadFile(filepath.Join(h.dir, keptName))
	ok(t, err)
	now := start.Add(2 * time.Hour)
	later, err := f.online.Refresh("", now)
	ok(t, err)

	one := func(change func(m *Metadata)) Metadata {
		m := later
		change(&m)
		return m
	}
	byOne := f.resigned(t, later.Targets, f.policy[0])
	for name, c := range map[string]struct {
		m    Metadata
		at   time.Time
		want error
	}{
		"older":               {first, now, ErrRolledBack},
		"of another fleet":    {other.sign(start, "x"), now, ErrForeignFleet},
		"of a twin":           {twin.sign(now, "x"), now, ErrUnsigned},
		"timestamp ended":     {later, now.Add(25 * time.Hour), ErrExpired},
		"root ended":          {later, now.Add(3 * 365 * day), ErrExpired},
		"by one of two":       {f.around(t, byOne, now), now, ErrThreshold},
		"by none":             {f.around(t, f.resigned(t, later.Targets), now), now, ErrUnsigned},
		"by online keys":      {f.around(t, f.resigned(t, later.Targets, f.online.anyKey(), f.online.anyKey()), now), now, ErrUnsigned},
		"targets of before":   {one(func(m *Metadata) { m.Targets = first.Targets }), now, ErrRolledBack},
		"snapshot of before":  {one(func(m *Metadata) { m.Snapshot = first.Snapshot }), now, ErrHash},
		"timestamp of before": {one(func(m *Metadata) { m.Timestamp = first.Timestamp }), now, ErrRolledBack},
		"no timestamp":        {one(func(m *Metadata) { m.Timestamp = nil }), now, ErrMalformed},
		"no snapshot":         {one(func(m *Metadata) { m.Snapshot = nil }), now, ErrMalformed},
		"no targets":          {one(func(m *Metadata) { m.Targets = nil }), now, ErrMalformed},
		"a million targets":   {one(func(m *Metadata) { m.Targets = manyTargets(1_000_000) }), now, ErrTooLarge},
		"many targets":        {f.around(t, manyTargets(65), now), now, ErrTooLarge},
		"large timestamp":     {one(func(m *Metadata) { m.Timestamp = make([]byte, MaxOnline+1) }), now, ErrTooLarge},
		"long chain":          {one(func(m *Metadata) { m.Roots = make([][]byte, maxRoots+1) }), now, ErrTooLarge},
		"null":                {one(func(m *Metadata) { m.Targets = []byte(`{"signed":{"targets":{"a":null}},"signatures":[]}`) }), now, ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			is(t, h.Update(c.m, c.at), c.want)
			after, err := os.ReadFile(filepath.Join(h.dir, keptName))
			ok(t, err)
			if diff := cmp.Diff(string(before), string(after)); diff != "" {
				t.Error(diff)
			}
		})
	}
	ok(t, h.Update(later, now)) // and believes what is right afterwards
}

// resigned signs a targets.json again by these keys alone.
func (f *fleet) resigned(t *testing.T, data []byte, by ...Signer) []byte {
	m, err := metadata.Targets().FromBytes(data)
	ok(t, err)
	m.Signatures = []metadata.Signature{}
	m.Signed.Version++
	text, err := signAll(m, by)
	ok(t, err)
	return text
}

// around is what a stolen controller says of a targets.json.
func (f *fleet) around(t *testing.T, targets []byte, now time.Time) Metadata {
	var says struct {
		Signed struct{ Version int64 }
	}
	ok(t, json.Unmarshal(targets, &says))
	stolen := &Online{dir: t.TempDir(), kept: f.online.kept, view: f.online.view, keys: f.online.keys}
	snapshot := metadata.Snapshot(now.Add(day))
	snapshot.Signed.Version = now.Unix() + 9
	snapshot.Signed.Meta["targets.json"] = metaOf(targets, says.Signed.Version)
	text, err := signOnline(stolen, snapshot, metadata.SNAPSHOT)
	ok(t, err)
	stamp := metadata.Timestamp(now.Add(day))
	stamp.Signed.Version = now.Unix() + 9
	stamp.Signed.Meta["snapshot.json"] = metaOf(text, snapshot.Signed.Version)
	stamp.Signed.UnrecognizedFields = Field(TimestampField{})
	stampText, err := signOnline(stolen, stamp, metadata.TIMESTAMP)
	ok(t, err)
	return Metadata{f.online.kept.Chain, stampText, text, targets}
}

func (o *Online) anyKey() Signer {
	for _, key := range o.keys {
		return key
	}
	return nil
}

func manyTargets(n int) []byte {
	const head = `{"signatures":[],"signed":{"_type":"targets","version":9,"spec_version":"1.0.31","expires":"2027-01-01T00:00:00Z",` +
		`"sluice":{"fleet":"example.net","incarnation":1,"floor":0},"targets":{`
	var b strings.Builder
	b.WriteString(head)
	for i := range n {
		fmt.Fprintf(&b, `"b/%d":{"length":1,"hashes":{"sha256":"00"}},`, i)
	}
	return []byte(strings.TrimSuffix(b.String(), ",") + "}}}")
}

// A floor and an incarnation only rise; a bundle ends by itself.
func TestFloorIncarnationAndEnd(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net", 1)
	f.sign(start, "one")
	f.sign(start, "two")
	f.next.Floor = 2
	h := f.host()
	ok(t, h.Update(f.sign(start, "three"), start))
	is(t, errOf(h.Bundle(1, 1, start)), ErrBelowFloor)
	ok(t, errOf(h.Bundle(2, 1, start)))
	f.next.Floor = 1
	is(t, errOf(f.repository.Sign(f.next, start, f.policy...)), ErrRolledBack)
	f.next.Floor = 9
	if _, err := f.repository.Sign(f.next, start, f.policy...); err == nil {
		t.Error("a floor above every bundle would refuse all")
	}
	f.next.Floor = 0

	ok(t, h.Accept(1, 5))
	ok(t, h.Accept(1, 5))
	is(t, h.Accept(1, 4), ErrRolledBack)
	is(t, h.Accept(2, 1), ErrUnsigned)
	f.next.Restore = true
	ok(t, h.Update(f.sign(start.Add(time.Hour), "four"), start.Add(time.Hour)))
	f.next.Restore = false
	is(t, h.Accept(1, 6), ErrRolledBack)
	ok(t, h.Accept(2, 1))

	// Controllers were dead for 40 days: nothing changes, and then all goes on.
	now := start.Add(40 * day)
	is(t, errOf(h.Bundle(4, 1, now)), ErrExpired)
	m, err := f.online.Refresh("", now)
	ok(t, err)
	ok(t, h.Update(m, now))
	ok(t, errOf(h.Bundle(4, 1, now)))
	// The policy's own end, which no controller moves.
	now = start.Add(91 * day)
	m, err = f.online.Refresh("", now)
	ok(t, err)
	is(t, h.Update(m, now), ErrExpired)
	is(t, errOf(h.Bundle(4, 1, now)), ErrExpired)
	// Signed again, without a change: the same bundle, longer.
	signed, err := f.repository.Sign(f.next, now, f.policy[0])
	ok(t, err)
	if signed.New || signed.Bundle.Number != 4 || signed.Signatures != 1 {
		t.Errorf("signed %+v", signed)
	}
	ok(t, h.Update(f.publish(now), now))
	ok(t, errOf(h.Bundle(4, 1, now)))
	is(t, errOf(h.Bundle(2, 1, now)), ErrExpired)
}

// What a controller's backup restores is newer than what hosts saw before.
func TestRestoredControllerIsNotBehind(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net", 1)
	f.sign(start, "one")
	backup := f.online.kept
	h := f.host()
	for i := range 50 {
		now := start.Add(time.Duration(i) * time.Hour)
		fresh, err := f.online.Refresh("", now)
		ok(t, err)
		ok(t, h.Update(fresh, now))
	}
	ok(t, writeKept(f.dir, backup))
	restored, err := OpenOnline(f.dir)
	ok(t, err)
	now := start.Add(51 * time.Hour)
	m, err := restored.Refresh("", now)
	ok(t, err)
	ok(t, h.Update(m, now))
}

func TestBundlesAreKept(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net", 1)
	for i := range keepBundles + 3 {
		f.sign(start, strings.Repeat("x", i+1))
	}
	all := f.repository.Bundles()
	if len(all) != keepBundles || all[0].Number != 4 {
		t.Errorf("%d bundles from %d", len(all), all[0].Number)
	}
	texts, err := f.repository.Manifests()
	ok(t, err)
	files, err := os.ReadDir(filepath.Join(f.repository.dir, "bundles"))
	ok(t, err)
	if len(texts) != keepBundles || len(files) != keepBundles {
		t.Errorf("%d manifests, %d files", len(texts), len(files))
	}
	kept := must(os.ReadDir(filepath.Join(f.repository.dir, "blobs")))
	if _, err := f.repository.Blob(f.next.File.SHA256); err != nil || len(kept) != keepBundles+1 {
		t.Errorf("%d blobs, one of each part and fleet.yaml: %v", len(kept), err)
	}
	again, err := OpenRepository(filepath.Dir(f.repository.dir))
	ok(t, err)
	if !maps.EqualFunc(texts, must(again.Manifests()), func(a, b []byte) bool { return string(a) == string(b) }) {
		t.Error("read otherwise than written")
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Two people sign one after the other.
func TestCosign(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net", 2)
	signed, err := f.repository.Sign(f.next, start, f.policy[0])
	ok(t, err)
	if signed.Signatures != 1 || signed.Needed != 2 {
		t.Errorf("signed %+v", signed)
	}
	m, err := f.repository.Metadata()
	is(t, err, ErrThreshold)
	is(t, f.online.Publish(m, start), ErrThreshold)
	is(t, f.repository.Cosign(newKeys(t, 1)[0]), ErrUnsigned)
	ok(t, f.repository.Cosign(f.policy[1]))
	ok(t, f.host().Update(f.publish(start), start))
}

func TestLive(t *testing.T) {
	t.Parallel()
	f, other := newFleet(t, "example.net", 1), newFleet(t, "example.org", 1)
	h := f.host()
	ok(t, h.Update(f.sign(start, "one"), start))
	other.sign(start, "one")
	live := func(f *fleet, kind string, seq int64) []byte {
		return must(f.online.SignLive(kind, seq, map[string]any{"n": seq}))
	}
	payload, seq, err := h.Live(KindMembers, live(f, KindMembers, 7))
	ok(t, err)
	if string(payload) != `{"n":7}` || seq != 7 {
		t.Errorf("%s %d", payload, seq)
	}
	old := live(f, KindMembers, 6)
	opened := func(kind string, envelope []byte) error { _, _, err := h.Live(kind, envelope); return err }
	ok(t, opened(KindMembers, live(f, KindMembers, 7)))
	is(t, opened(KindMembers, old), ErrRolledBack)
	is(t, opened("bans", live(f, KindMembers, 8)), ErrMalformed)
	is(t, opened(KindMembers, live(other, KindMembers, 8)), ErrUnsigned)
	is(t, opened(KindMembers, must(seal(KindMembers, liveBody{"example.net", 1, 8, json.RawMessage("1")}, f.policy[0]))), ErrUnsigned)
	is(t, opened(KindMembers, make([]byte, MaxEnvelope+1)), ErrTooLarge)
	key := must(f.online.among("live", f.online.view.root.live))
	is(t, opened(KindMembers, must(seal(KindMembers, liveBody{"example.org", 1, 8, json.RawMessage("1")}, key))), ErrForeignFleet)
	is(t, opened(KindMembers, must(seal(KindMembers, liveBody{"example.net", 2, 8, json.RawMessage("1")}, key))), ErrUnsigned)
	for _, text := range []string{`{"n":null}`, `{"n":1,"n":1}`, strings.Repeat("[", maxNesting) + strings.Repeat("]", maxNesting)} {
		is(t, opened(KindMembers, must(seal(KindMembers, liveBody{"example.net", 1, 8, json.RawMessage(text)}, key))), ErrMalformed)
	}
	// A new incarnation begins its numbers again, and ends those of the old one.
	f.next.Restore = true
	ok(t, h.Update(f.sign(start.Add(time.Hour), "two"), start.Add(time.Hour)))
	is(t, opened(KindMembers, must(seal(KindMembers, liveBody{"example.net", 1, 99, json.RawMessage("1")}, key))), ErrRolledBack)
	ok(t, opened(KindMembers, live(f, KindMembers, 1)))
}

// TestLiveSettles has a host die with bans whose number is not on the disk, and one where it is.
func TestLiveSettles(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net", 1)
	h := f.host()
	ok(t, h.Update(f.sign(start, "one"), start))
	live := func(seq int64) error {
		_, _, err := h.Live(KindBans, must(f.online.SignLive(KindBans, seq, Bans{})))
		return err
	}
	again := func() { h = must(OpenHost(h.dir)) }
	ok(t, live(7))
	is(t, live(6), ErrRolledBack)
	again()
	ok(t, live(6))
	ok(t, h.Settle())
	again()
	is(t, live(5), ErrRolledBack)
	ok(t, live(8))
	ok(t, h.Accept(1, 1)) // which writes all of it
	again()
	is(t, live(7), ErrRolledBack)
}

func TestManifestLimits(t *testing.T) {
	t.Parallel()
	good := Manifest{Version: ManifestVersion, Fleet: "example.net", Number: 1, Level: 1, FleetFile: fileOf("fleet.yaml", "", "x")}
	for name, c := range map[string]struct {
		change func(m *Manifest)
		want   error
	}{
		"1 GiB part":    {func(m *Manifest) { m.Parts = []File{{"p.yaml", "", m.FleetFile.SHA256, 1 << 30}} }, ErrTooLarge},
		"1 GiB bundle":  {func(m *Manifest) { m.Parts = manyFiles(256, MaxFile) }, ErrTooLarge},
		"1 TiB lists":   {func(m *Manifest) { m.Lists = make([]File, 5); fillLists(m.Lists, MaxList) }, ErrTooLarge},
		"large list":    {func(m *Manifest) { m.Lists = make([]File, 1); fillLists(m.Lists, MaxList+1) }, ErrTooLarge},
		"many parts":    {func(m *Manifest) { m.Parts = manyFiles(maxParts+1, 0) }, ErrTooLarge},
		"outside":       {func(m *Manifest) { m.FleetFile.Path = "../fleet.yaml" }, ErrMalformed},
		"absolute":      {func(m *Manifest) { m.FleetFile.Path = "/etc/passwd" }, ErrMalformed},
		"twice":         {func(m *Manifest) { m.Parts = []File{m.FleetFile} }, ErrMalformed},
		"no hash":       {func(m *Manifest) { m.FleetFile.SHA256 = "" }, ErrMalformed},
		"negative":      {func(m *Manifest) { m.FleetFile.Size = -1 }, ErrMalformed},
		"newer version": {func(m *Manifest) { m.Version = 2 }, ErrLevel},
	} {
		t.Run(name, func(t *testing.T) {
			m := good
			c.change(&m)
			is(t, errOf(m.Encode()), c.want)
		})
	}
	ok(t, errOf(good.Encode()))
}

func TestSelect(t *testing.T) {
	t.Parallel()
	m := Manifest{FleetFile: fileOf("fleet.yaml", "", ""), Parts: []File{
		fileOf("a", "", ""), fileOf("b", "role=db", ""), fileOf("c", "host=web-1", ""), fileOf("d", "role=web and not env=test", ""),
	}}
	files, err := m.Select("web-1", map[string]string{"role": "web"})
	ok(t, err)
	var names []string
	for _, f := range files {
		names = append(names, f.Path)
	}
	if got := strings.Join(names, " "); got != "fleet.yaml a c d" {
		t.Error(got)
	}
	m.Parts[0].Selector = "role="
	is(t, errOf(m.Select("web-1", nil)), ErrMalformed)
}

func manyFiles(n int, size int64) (all []File) {
	for i := range n {
		all = append(all, File{"p/" + strings.Repeat("x", i%100) + string(rune('a'+i/100%26)) + strings.Repeat("y", i/2600), "", HashOf(nil), size})
	}
	return all
}

func fillLists(all []File, size int64) {
	for i := range all {
		all[i] = File{fmt.Sprintf("trust/lists/l-%d.txt", i), "", HashOf(nil), size}
	}
}
