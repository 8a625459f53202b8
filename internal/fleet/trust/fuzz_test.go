package trust

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/theupdateframework/go-tuf/v2/metadata"
)

// typed says that a decoder refused with one of this package's errors.
func typed(err error) bool {
	for _, known := range []error{
		ErrMalformed, ErrTooLarge, ErrUnsigned, ErrThreshold, ErrBelowFloor, ErrExpired, ErrForeignFleet, ErrRolledBack, ErrHash, ErrLevel, ErrWrongHost,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// FuzzUpdate changes each document that a controller pushes: as it is, so that no
// signature fits, and signed by the keys of its role, as a thief would. Nothing but what
// is signed is taken, and go-tuf survives what it is given.
func FuzzUpdate(f *testing.F) {
	fleet := newFleet(f, "example.net", 1)
	m := fleet.sign(start, "one")
	for which, data := range [][]byte{m.Roots[0], m.Timestamp, m.Snapshot, m.Targets} {
		f.Add(byte(which), data)
		f.Add(byte(which+4), data)
	}
	for which := range byte(8) {
		for _, text := range []string{
			`{"signed":{"meta":{"snapshot.json":{}}},"signatures":[]}`, `{"signed":null}`, `{"signed":{"targets":{"a":{}}}}`, `{"Signed":{},"signed":{}}`,
			`{"signed":{"_type":"timestamp","version":2000000000,"expires":"2027-01-01T00:00:00Z","meta":{}},"signatures":[]}`,
			`{"signed":{"_type":"snapshot","version":2000000000,"expires":"2027-01-01T00:00:00Z","meta":{}},"signatures":[]}`,
			`{"signed":{"_type":"root","version":2,"keys":{"a":{}},"roles":{"root":{}},"sluice":{"fleet":"example.net"}},"signatures":[{}]}`,
		} {
			f.Add(which, []byte(text))
		}
	}
	keys := map[string]Signer{"policy": fleet.policy[0]}
	for _, role := range []string{metadata.SNAPSHOT, metadata.TIMESTAMP} {
		public, _ := fleet.online.view.root.keys(role)
		keys[role] = must(fleet.online.among(role, public))
	}
	fresh := kept{Root: fleet.repository.roots[0]}
	view, err := fresh.read()
	ok(f, err)
	f.Fuzz(func(t *testing.T, which byte, data []byte) {
		c := m
		switch which % 8 {
		case 0:
			c.Roots = [][]byte{m.Roots[0], data}
		case 1:
			c.Timestamp = data
		case 2:
			c.Snapshot = data
		case 3:
			c.Targets = data
		case 4:
			c.Roots = [][]byte{m.Roots[0], forged[metadata.RootType](data, fleet.root[:2]...)}
		case 5:
			c.Timestamp = forged[metadata.TimestampType](data, keys[metadata.TIMESTAMP])
		case 6:
			c.Snapshot = forged[metadata.SnapshotType](data, keys[metadata.SNAPSHOT])
			stamp, err := metadata.Timestamp().FromBytes(m.Timestamp)
			ok(t, err)
			stamp.Signed.Meta["snapshot.json"] = metaOf(c.Snapshot, stamp.Signed.Meta["snapshot.json"].Version)
			c.Timestamp = must(signAll(stamp, []Signer{keys[metadata.TIMESTAMP]}))
		case 7:
			_, _, err := fresh.withTargets(fleet.online.view.root, nil, forged[metadata.TargetsType](data, keys["policy"]), start)
			if err != nil && !typed(err) {
				t.Errorf("an error of no kind: %v", err)
			}
			return
		}
		next, _, err := fresh.updated(view, c, start)
		switch {
		case err != nil && !typed(err):
			t.Errorf("an error of no kind: %v", err)
		case err == nil && !bytes.Equal(next.Targets, m.Targets):
			t.Error("took bundles that nobody signed")
		}
	})
}

// forged signs what data has for a document of a role, if it has one.
func forged[T metadata.Roles](data []byte, by ...Signer) []byte {
	if shaped("", data, MaxRoot) != nil {
		return data
	}
	document := &metadata.Metadata[T]{}
	if _, err := document.FromBytes(data); err != nil {
		return data
	}
	document.Signatures = []metadata.Signature{}
	text, err := signAll(document, by)
	if err != nil {
		return data
	}
	return text
}

func FuzzManifest(f *testing.F) {
	m := Manifest{Version: ManifestVersion, Fleet: "example.net", Number: 1, Level: 1, FleetFile: fileOf("fleet.yaml", "", "x"), Parts: []File{fileOf("a", "role=web", "y")}}
	text, err := m.Encode()
	ok(f, err)
	f.Add(text)
	f.Add([]byte(`{"version":1,"parts":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		read, err := readManifest(data)
		if err != nil {
			if !typed(err) {
				t.Errorf("an error of no kind: %v", err)
			}
			return
		}
		for _, p := range append([]File{read.FleetFile}, read.Parts...) {
			if strings.Contains("/"+p.Path+"/", "/../") || strings.HasPrefix(p.Path, "/") {
				t.Errorf("a path outside: %q", p.Path)
			}
		}
		again, err := read.Encode()
		ok(t, err)
		if twice, err := readManifest(again); err != nil || !sameManifest(read, twice) {
			t.Errorf("read otherwise than written: %v", err)
		}
		_, _ = read.Select("web-1", map[string]string{"role": "web"})
	})
}

func FuzzToken(f *testing.F) {
	made, err := NewToken([]byte("root"), []string{"203.0.113.1:7443"}, map[string]string{"role": "web"})
	ok(f, err)
	f.Add(made.String())
	f.Add(tokenPrefix)
	f.Fuzz(func(t *testing.T, text string) {
		read, err := ParseToken(text)
		if err != nil {
			if !typed(err) {
				t.Errorf("an error of no kind: %v", err)
			}
			return
		}
		if again, err := ParseToken(read.String()); err != nil || again.Secret != read.Secret {
			t.Errorf("read otherwise than written: %v", err)
		}
	})
}

func FuzzEnvelope(f *testing.F) {
	fleet := newFleet(f, "example.net", 1)
	m := fleet.sign(start, "one")
	live := must(fleet.online.SignLive(KindMembers, 1, "x"))
	f.Add(live)
	f.Add(must(SealLabels(LabelOrder{"example.net", "web-1", 5, start.Add(day), nil}, fleet.policy[0])))
	f.Add([]byte(`{"payloadType":"application/vnd.sluice.members+json","payload":"e30=","signatures":[{"keyid":"","sig":""}]}`))
	h, err := NewHost(f.TempDir(), fleet.repository.Root())
	ok(f, err)
	ok(f, h.Update(m, start))
	f.Fuzz(func(t *testing.T, data []byte) {
		payload, _, err := h.Live(KindMembers, data)
		if err == nil && string(payload) != `"x"` || err != nil && !typed(err) {
			t.Errorf("%s, %v", payload, err)
		}
		labels, err := h.Labels(data, "web-1", start)
		if err == nil && len(labels) > 0 || err != nil && !typed(err) {
			t.Errorf("%v, %v", labels, err)
		}
	})
}

// FuzzDocuments: what is read of a live document is of the shape that it says.
func FuzzDocuments(f *testing.F) {
	f.Add([]byte(`{"sets":{"web":{"sha256":"` + HashOf(nil) + `","size":0}}}`))
	f.Add([]byte(`{"host":"web-1","guests":{"vm-1":{"interface":"tap0","addresses":["10.30.0.5"],"public":["2001:db8::9"],"labels":{"app":"api"}}}}`))
	f.Add([]byte("10.30.0.5\n2001:db8::5\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := ReadMembers(data); err != nil && !typed(err) {
			t.Error(err)
		} else if err == nil {
			for name, c := range m.Sets {
				if !isHash(c.SHA256) || c.Size < 0 {
					t.Errorf("%q: %+v", name, c)
				}
			}
		}
		g, err := ReadGuests(data, "web-1")
		if err != nil && !typed(err) || err == nil && g.Host != "web-1" {
			t.Errorf("%+v, %v", g, err)
		}
		lines, err := Content{HashOf(data), int64(len(data))}.Read(data)
		if err != nil && !typed(err) {
			t.Error(err)
		}
		if err != nil {
			return
		}
		var all []netip.Addr
		for _, line := range lines {
			all = append(all, netip.MustParseAddr(line))
		}
		if !bytes.Equal(AddressText(all), data) {
			t.Errorf("read otherwise than written: %q", data)
		}
	})
}

func FuzzRequest(f *testing.F) {
	fleet := newFleet(f, "example.net", 1)
	_, request, err := NewRequest("web-1")
	ok(f, err)
	f.Add(request)
	f.Add(bytes.Repeat([]byte("-----BEGIN CERTIFICATE REQUEST-----\n"), 3))
	f.Fuzz(func(t *testing.T, data []byte) {
		issued, err := fleet.online.IssueHost(data, "web-1", start)
		if err != nil {
			if !typed(err) {
				t.Errorf("an error of no kind: %v", err)
			}
			return
		}
		block, _ := pem.Decode(issued.Chain)
		leaf, err := x509.ParseCertificate(block.Bytes)
		ok(t, err)
		if leaf.IsCA || len(leaf.URIs) != 1 || leaf.URIs[0].String() != "spiffe://example.net/host/web-1" || len(leaf.DNSNames)+len(leaf.IPAddresses)+len(leaf.EmailAddresses) > 0 || leaf.NotAfter.After(start.Add(CertificateFor+time.Second)) {
			t.Errorf("issued more than was asked: %+v", leaf)
		}
	})
}
