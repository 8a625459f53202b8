package fleet

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// A host takes the labels that the policy keys order for it, and the parts that they select;
// an order that is of others, older, unsigned or over leaves it those that it has, and is told.
func TestLabelled(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		part := func(path, selector, text string) trust.File {
			f := s.file(path, text)
			f.Selector = selector
			return f
		}
		s.next.Parts = []trust.File{s.file("parts/10-base.yaml", "one"), part("parts/50-db.yaml", "role=db", "db"), part("parts/60-web.yaml", "role=web", "web")}
		two := must(s.repository.Sign(s.next, time.Now(), s.policy)).Bundle.Number
		for _, text := range must(s.repository.Manifests()) {
			s.blobs[wire.Hash(text)] = text
		}
		s.publish()
		kept, full := map[string]string{}, errors.New("the disk is full")
		var broken error
		begin := func(labels map[string]string) (*Member, func()) {
			m, end := s.prepared(func(m *Member) {
				m.Labels = labels
				m.Relabel = func(labels map[string]string) error {
					s.mu.Lock()
					defer s.mu.Unlock()
					if broken == nil {
						kept = labels
					}
					return broken
				}
			})
			return m, end
		}
		m, end := begin(map[string]string{"role": "web"})
		parts := func(yes, no string) {
			t.Helper()
			dir := m.folder(two)
			view := string(must(os.ReadFile(filepath.Join(dir, viewName))))
			if _, err := os.Lstat(filepath.Join(dir, yes)); err != nil || !strings.Contains(view, "role: "+m.labels()["role"]) {
				t.Fatalf("%v\n%s", err, view)
			}
			if _, err := os.Lstat(filepath.Join(dir, no)); err == nil {
				t.Fatalf("%s is there", no)
			}
		}
		s.desire(wire.Desired{Bundle: two, Rollout: 1})
		s.await(wire.StateConfirmed, time.Minute)
		parts("parts/60-web.yaml", "parts/50-db.yaml")

		number := int64(1000)
		order := func(by trust.Signer, change func(*trust.LabelOrder)) []byte {
			number++
			o := trust.LabelOrder{Fleet: "example.net", Host: "web-1", Number: number, Expires: time.Now().Add(24 * time.Hour), Labels: map[string]string{"role": "db"}}
			if change != nil {
				change(&o)
			}
			return must(trust.SealLabels(o, by))
		}
		db := order(s.policy, nil)
		s.desire(wire.Desired{Bundle: two, Rollout: 1, Labels: db})
		if r := s.await(wire.StateConfirmed, time.Minute); r.Labels != wire.Hash(db) || kept["role"] != "db" || r.Error != "" {
			t.Fatalf("%+v, %v", r, kept)
		}
		parts("parts/50-db.yaml", "parts/60-web.yaml")

		for want, bad := range map[string][]byte{
			"not signed by a key": order(must(trust.NewKey()), nil),
			"for another host":    order(s.policy, func(o *trust.LabelOrder) { o.Host = "web-2" }),
			"of another fleet":    order(s.policy, func(o *trust.LabelOrder) { o.Fleet = "example.org" }),
			"number 5 after 1001": order(s.policy, func(o *trust.LabelOrder) { o.Number = 5 }),
			"expired":             order(s.policy, func(o *trust.LabelOrder) { o.Expires = time.Now().Add(-time.Hour) }),
			"malformed: ":         order(s.policy, func(o *trust.LabelOrder) { o.Labels = map[string]string{"a b": ""} }),
			"malformed":           []byte("{}"),
			"too large":           []byte(strings.Repeat("a", 70<<10)),
		} {
			s.desire(wire.Desired{Bundle: two, Rollout: 1, Labels: bad})
			s.await(wire.StateConfirmed, time.Minute)
			time.Sleep(time.Second)
			synctest.Wait()
			if r := m.Report(); !strings.Contains(r.Error, "the labels that the controller orders are not taken: ") || !strings.Contains(r.Error, want) || r.Labels != wire.Hash(db) || m.labels()["role"] != "db" {
				t.Errorf("%s: %+v", want, r)
			}
		}

		// What cannot be recorded is tried again.
		web := order(s.policy, func(o *trust.LabelOrder) { o.Labels = map[string]string{"role": "web"} })
		s.set(func() { broken = full })
		s.desire(wire.Desired{Bundle: two, Rollout: 1, Labels: web})
		s.await(wire.StateConfirmed, time.Minute)
		if m.labels()["role"] != "db" {
			t.Fatal("labels are taken that are not recorded")
		}
		s.set(func() { broken = nil })
		time.Sleep(time.Minute)
		if r := s.await(wire.StateConfirmed, time.Minute); r.Labels != wire.Hash(web) || r.Error != "" || kept["role"] != "web" {
			t.Fatalf("%+v", r)
		}
		parts("parts/60-web.yaml", "parts/50-db.yaml")

		// Who is told that parts were taken back finds those from before, however long it takes to
		// prove them.
		s.set(func() {
			s.kernel.edits, s.kernel.verifies = true, 10*time.Second
			s.kernel.probes, s.kernel.failed = []string{"tcp 192.0.2.7:443"}, "tcp 192.0.2.7:443"
		})
		s.desire(wire.Desired{Bundle: two, Rollout: 1, Labels: order(s.policy, nil)})
		s.await(wire.StateReverted, time.Minute)
		for path, is := range map[string]bool{"parts/60-web.yaml": true, "parts/50-db.yaml": false} {
			if _, err := os.Lstat(filepath.Join(m.folder(two), path)); (err == nil) != is {
				t.Errorf("%s is there: %v", path, !is)
			}
		}
		s.set(func() { s.kernel.edits, s.kernel.verifies, s.kernel.failed = false, 0, "" })
		web = order(s.policy, func(o *trust.LabelOrder) { o.Labels = map[string]string{"role": "web"} })
		s.desire(wire.Desired{Bundle: two, Rollout: 1, Labels: web})
		s.await(wire.StateConfirmed, time.Minute)

		// The next agent goes on with them, and takes none from before.
		end()
		m, end = begin(kept)
		defer end()
		s.desire(wire.Desired{Bundle: two, Rollout: 1, Labels: db})
		time.Sleep(time.Minute)
		synctest.Wait()
		if r := m.Report(); !strings.Contains(r.Error, "after") || r.Labels != wire.Hash(web) || m.labels()["role"] != "web" {
			t.Fatalf("%+v", r)
		}
	})
}
