package fleet

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
	"sluice/internal/language/policy"
)

// document signs one, whose blob the controller has.
func (s *stage) document(kind string, seq int64, payload any) *wire.Document {
	s.t.Helper()
	envelope := must(s.online.SignLive(kind, seq, payload))
	hash := s.file("", string(envelope)).SHA256
	return &wire.Document{Sha256: hash, Size: int64(len(envelope)), Content: wire.Hash(must(json.Marshal(payload)))}
}

// members signs what sets hold.
func (s *stage) members(seq int64, sets map[string]string) *wire.Document {
	s.t.Helper()
	m := trust.Members{Sets: map[string]trust.Content{}}
	for name, text := range sets {
		f := s.file("", text)
		m.Sets[name] = trust.Content{SHA256: f.SHA256, Size: f.Size}
	}
	return s.document(trust.KindMembers, seq, m)
}

func (s *stage) view(bundle string) string {
	text, err := os.ReadFile(filepath.Join(s.dir, "bundles", bundle, viewName))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// What the live key says of members and guests comes into the view of the host, is reported
// once it is proved, and only what has changed is fetched.
func TestDocuments(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		_, end := s.member()
		defer end()
		guest := trust.Guest{Interface: "tap0", Addresses: []netip.Addr{netip.MustParseAddr("10.30.0.5")}, Labels: map[string]string{"app": "yes"}, Rules: "version: 1\n"}
		d := wire.Desired{
			Bundle: 1, Rollout: 1, Members: s.members(5, map[string]string{"web": "203.0.113.5\n2001:db8:7::5\n", "none": ""}),
			Guests: s.document(trust.KindGuests, 7, trust.Guests{Host: "web-1", Guests: map[string]trust.Guest{"vm-1": guest}}),
		}
		s.desire(d)
		r := s.await(wire.StateConfirmed, time.Minute)
		if r.Members != d.Members.Content || r.Guests != d.Guests.Content {
			t.Errorf("%+v", r)
		}
		for _, want := range []string{"web:\n        - 203.0.113.5\n        - 2001:db8:7::5\n", "none: []", "vm-1:\n        interface: tap0\n        addresses:\n            - 10.30.0.5\n        labels:\n            app: \"yes\"\n        rules: guest-rules/vm-1.yaml\n"} {
			if !strings.Contains(s.view("1"), want) {
				t.Errorf("no %q in\n%s", want, s.view("1"))
			}
		}
		rules := filepath.Join(s.dir, "bundles", "1", rulesFolder, "vm-1.yaml")
		if text, err := os.ReadFile(rules); err != nil || string(text) != "version: 1\n" {
			t.Errorf("%q, %v", text, err)
		}
		// What is refused leaves no trace.
		refused := d
		guest.Rules = "version: 2\n"
		refused.Guests = s.document(trust.KindGuests, 7, trust.Guests{Host: "web-1", Guests: map[string]trust.Guest{"vm-1": guest}})
		s.set(func() { s.kernel.refuse = "it cannot be read" })
		s.desire(refused)
		s.await(wire.StateRefused, time.Minute)
		if text, err := os.ReadFile(rules); err != nil || string(text) != "version: 1\n" {
			t.Errorf("after a refusal: %q, %v", text, err)
		}
		s.set(func() { s.kernel.refuse = "" })
		s.desire(d)
		s.await(wire.StateConfirmed, time.Minute)
		s.mu.Lock()
		s.fetched = nil
		s.mu.Unlock()
		next := d
		next.Members = s.members(9, map[string]string{"web": "203.0.113.5\n2001:db8:7::5\n", "none": "203.0.113.6\n"})
		s.desire(next)
		if r = s.await(wire.StateConfirmed, time.Minute); r.Members != next.Members.Content || r.Guests != d.Guests.Content {
			t.Errorf("%+v", r)
		}
		if len(s.fetched) != 2 { // the document, and what one set holds
			t.Errorf("fetched %q", s.fetched)
		}
		again := next // signed again: the content is the same
		again.Members = s.members(11, map[string]string{"web": "203.0.113.5\n2001:db8:7::5\n", "none": "203.0.113.6\n"})
		s.desire(again)
		synctest.Wait()
		if len(s.fetched) != 2 {
			t.Errorf("what has not changed was fetched: %q", s.fetched)
		}
		if files := must(os.ReadDir(filepath.Join(s.dir, setsName))); len(files) != 2 {
			t.Errorf("%v", files)
		}

		for _, c := range []struct {
			what   string
			change func(*wire.Desired)
			want   string
		}{
			{"older", func(d *wire.Desired) { d.Members = s.members(4, map[string]string{"web": "203.0.113.5\n"}) }, "older than what was seen before: number 4"},
			{"another's", func(d *wire.Desired) {
				d.Guests = s.document(trust.KindGuests, 7, trust.Guests{Host: "web-2", Guests: map[string]trust.Guest{}})
			}, `for another host: they are those of host "web-2"`},
			{"path", func(d *wire.Desired) {
				d.Guests = s.document(trust.KindGuests, 7, trust.Guests{Host: "web-1", Guests: map[string]trust.Guest{"../vm": guest}})
			}, `"../vm" is not the name of a guest`},
			{"other kind", func(d *wire.Desired) { d.Guests = d.Members }, "malformed"},
			{"not content", func(d *wire.Desired) {
				d.Guests = &wire.Document{Sha256: d.Guests.Sha256, Size: d.Guests.Size, Content: wire.Hash(nil)}
			}, "not what was signed"},
			{"no address", func(d *wire.Desired) { d.Members = s.members(20, map[string]string{"web": "web-1\n"}) }, "set web: a set is malformed"},
		} {
			wrong := again
			c.change(&wrong)
			s.desire(wrong)
			if r := s.await(wire.StateRefused, time.Minute); !strings.Contains(r.Error, c.want) || r.Members != next.Members.Content {
				t.Errorf("%s: %+v", c.what, r)
			}
		}
	})
}

// Members that take no more than elements of sets are not tried, and go back where a probe fails.
func TestMembersWithoutTrial(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		_, end := s.member()
		defer end()
		with := func(seq int64, address string) wire.Desired {
			return wire.Desired{Bundle: 1, Rollout: 1, Members: s.members(seq, map[string]string{"web": address + "\n"})}
		}
		s.set(func() { s.kernel.edits, s.kernel.probes = true, []string{"https://localhost/"} })
		s.desire(with(1, "203.0.113.5"))
		s.await(wire.StateConfirmed, time.Minute)
		s.set(func() {
			if n := len(s.kernel.runs); n != 1 {
				t.Errorf("a bundle that is new to the host ran %d times", n)
			}
		})
		edited := with(2, "203.0.113.6")
		s.desire(edited)
		if r := s.await(wire.StateConfirmed, time.Minute); r.Members != edited.Members.Content || r.Generation != "2" || r.Proved.IsZero() {
			t.Errorf("%+v", r)
		}
		s.set(func() { s.kernel.failed = "https://localhost/" })
		s.desire(with(3, "203.0.113.7"))
		if r := s.await(wire.StateReverted, time.Minute); r.Members != edited.Members.Content || !strings.Contains(r.Error, "connection refused") {
			t.Errorf("%+v", r)
		}
		s.set(func() {
			if n := len(s.kernel.runs); n != 2 {
				t.Errorf("%d run", n)
			}
		})
		if view := s.view("1"); !strings.Contains(view, "203.0.113.6") || strings.Contains(view, "203.0.113.7") {
			t.Error(view)
		}
	})
}

// reader is a kernel that reads the policies that it is to load.
type reader struct{ *kernel }

func (r reader) Apply(ctx context.Context, file string, confirm time.Duration, keepEdits bool, checked func()) (*Applied, error) {
	if _, err := policy.Load(file); err != nil {
		return nil, &RefusedError{err.Error()}
	}
	return r.kernel.Apply(ctx, file, confirm, keepEdits, checked)
}

// Whoever has stolen the live key gives no guest an address or an interface that the policy key has
// not signed, and what was there before stays.
func TestGuestsOfStolenKey(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		_, end := s.prepared(func(m *Member) { m.Engine = reader{s.kernel} })
		defer end()
		s.next.File = s.file("fleet.yaml", "version: 1\nfleet: example.net\nparts: [parts/*.yaml]\nsets: {api: {guests: app=api, within: [10.30.0.0/16]}}\nguests: {public: [203.0.113.0/24], interfaces: [\"tap*\"]}\n")
		bundle := s.sign("version: 1\nguests: {enforce: forward, public: map}\nforward: {default: drop, rules: [allow any from guests to any]}\n")
		seq := int64(0)
		with := func(at, address, public, label string) wire.Desired {
			seq++
			g := trust.Guest{Interface: at, Addresses: []netip.Addr{netip.MustParseAddr(address)}, Labels: map[string]string{"app": label}}
			if public != "" {
				g.Public = []netip.Addr{netip.MustParseAddr(public)}
			}
			return wire.Desired{Bundle: bundle, Rollout: 1, Guests: s.document(trust.KindGuests, seq, trust.Guests{Host: "web-1", Guests: map[string]trust.Guest{"vm-1": g}})}
		}
		good := with("tap0", "10.30.0.5", "203.0.113.9", "api")
		s.desire(good)
		s.await(wire.StateConfirmed, time.Minute)
		before := s.view("2")
		for _, c := range []struct{ at, address, public, label, want string }{
			{"eth1", "10.30.0.5", "", "api", "guest vm-1: eth1 is not an interface for guests"},
			{"tap0", "10.31.0.5", "", "api", "guest vm-1: 10.31.0.5 is not within any set by guests"},
			{"tap0", "192.0.2.1", "", "other", "guest vm-1: 192.0.2.1 is not within any set by guests"},
			{"tap0", "2001:db8::1", "", "api", "guest vm-1: 2001:db8::1 is not within any set by guests"},
			{"tap0", "10.30.0.5", "198.51.100.9", "api", "guest vm-1: 198.51.100.9 is not a public address for guests"},
		} {
			s.desire(with(c.at, c.address, c.public, c.label))
			if r := s.await(wire.StateRefused, time.Minute); !strings.Contains(r.Error, c.want) || r.Guests != good.Guests.Content {
				t.Errorf("%s: %+v", c.want, r)
			}
			if s.view("2") != before {
				t.Errorf("%s: it is in the view of the host", c.want)
			}
		}
		s.desire(with("tap1", "10.30.0.6", "203.0.113.10", "other"))
		s.await(wire.StateConfirmed, time.Minute)
	})
}
