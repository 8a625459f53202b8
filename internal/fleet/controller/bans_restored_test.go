package controller

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/hub"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// second is another controller on the same database.
func (f *fleet) second() *fleet {
	f.Helper()
	ok(f, f.stop())
	second := *f
	second.dir, second.address = filepath.Join(f.TempDir(), "second"), ""
	ok(f, os.CopyFS(second.dir, os.DirFS(f.dir)))
	f.run()
	second.client = api.NewClient(second.dir)
	second.run()
	f.Cleanup(func() { ok(f, second.stop()) })
	return &second
}

// of is the host where it connects to another controller.
func (a *agent) of(f *fleet) *agent {
	a.fleet = f
	a.certified(a.enrolled.Certificate)
	return a
}

// TestBansOfTwoControllers has two on one database, and a host at each.
func TestBansOfTwoControllers(t *testing.T) {
	t.Parallel()
	f := newBanning(t)
	token := f.token(map[string]string{"role": "web"}, 2)
	one, err := f.join("web-1", token)
	ok(t, err)
	other, err := f.join("web-2", token)
	ok(t, err)
	second := f.second()
	first, other2 := one.bear(nil), other.of(second).bear(nil)
	banned(t, f, api.NewHoldings{}, "203.0.113.1")
	made := banned(t, second, api.NewHoldings{}, "203.0.113.2")
	first.will("203.0.113.1 203.0.113.2")
	other2.will("203.0.113.1 203.0.113.2")
	for _, c := range []*fleet{f, second} {
		f.until("each controller says it of both", func() bool {
			is, err := c.client.Living(t.Context(), made.Seq, "role=web")
			ok(t, err)
			return is.Proved == 2
		})
	}
	f.tamper(`update applied set at = at - 600000000`)
	for _, c := range []*fleet{f, second} {
		is, err := c.client.Living(t.Context(), made.Seq, "role=web")
		ok(t, err)
		if is.Proved != 2 {
			t.Errorf("a host that has had nothing to say for long, and was seen: %+v", is)
		}
	}
	banned(t, f, api.NewHoldings{}, "203.0.113.3")
	counted := regexp.MustCompile(`sluice_fleet_propagation_seconds_count\{stage="ban"\} [1-9]\n`)
	f.until("how long bans took is counted by each, of its host", func() bool {
		return counted.MatchString(f.scraped()) && counted.MatchString(second.scraped())
	})
}

// TestBansOfARestoredDatabase puts an older copy of the database back: until there is a new
// incarnation nothing is banned and no host counts as proved, and that leaves hosts what they
// have, and lifts only what it knows.
func TestBansOfARestoredDatabase(t *testing.T) {
	t.Parallel()
	f := newBanning(t)
	a, err := f.join("web-1", f.token(map[string]string{"role": "web"}, 1))
	ok(t, err)
	b := a.bear(nil)
	banned(t, f, api.NewHoldings{}, "203.0.113.1")
	b.will("203.0.113.1")
	database := filepath.Dir(strings.TrimPrefix(f.database, "sqlite:"))
	backup := filepath.Join(t.TempDir(), "backup")
	ok(t, f.stop())
	ok(t, os.CopyFS(backup, os.DirFS(database)))
	f.run()
	b.bear(b)
	f.until("it is back", func() bool { return len(f.controller.hub.Online()) == 1 })
	banned(t, f, api.NewHoldings{}, "203.0.113.2")
	b.will("203.0.113.1 203.0.113.2")
	ok(t, f.stop())
	ok(t, os.RemoveAll(database))
	ok(t, os.CopyFS(database, os.DirFS(backup)))
	f.run()
	if _, err := f.client.Ban(t.Context(), aBan("203.0.113.4", "")); err == nil || !strings.Contains(err.Error(), "the database was restored") {
		t.Error(err)
	}
	if v := f.controller.view.Load(); !v.restored {
		t.Error("the view does not say that the database is older")
	}
	is := known{at: time.Now(), report: wire.Report{Bundle: 1, Rollout: 1, State: wire.StateConfirmed, Running: 1, Proved: time.Now()}}
	v := *f.controller.view.Load()
	v.desired = map[string]store.Desired{"web-1": {Host: "web-1", Bundle: 1, Rollout: 1}}
	if state, reason, _ := stateOf(is, v.hosts["web-1"], &v, hub.Presence{}, true, time.Now()); state != api.Restored || !strings.Contains(reason, "bundle 1 is in force and proved, and the database is an older copy") {
		t.Error(state, reason)
	}
	signed, err := f.repository.Sign(trust.Signing{Level: 1, Restore: true, File: f.file("fleet.yaml", "", f.text), Parts: []trust.File{f.file("parts/10-base.yaml", "", "version: 1\n")}}, time.Now(), f.policy)
	ok(t, err)
	_, err = f.give(signed.Bundle.Number)
	ok(t, err)
	b.bear(b)
	f.until("it is back", func() bool { return len(f.controller.hub.Online()) == 1 })
	if f.controller.view.Load().restored {
		t.Error("a new incarnation is still called older")
	}
	made := banned(t, f, api.NewHoldings{}, "203.0.113.3", "203.0.113.2")
	b.will("203.0.113.1 203.0.113.2 203.0.113.3")
	_, err = f.client.Unban(t.Context(), api.Lift{What: []string{"203.0.113.2"}})
	ok(t, err)
	b.will("203.0.113.1 203.0.113.3")
	f.until("it has answered", func() bool {
		is, err := f.client.Living(t.Context(), made.Seq, "")
		ok(t, err)
		return is.Proved == 1
	})
}

// TestIncarnationBeforeItIsSigned: a controller that was killed when it had taken a new incarnation
// and signed nothing in it does not take the database of that for an older copy.
func TestIncarnationBeforeItIsSigned(t *testing.T) {
	t.Parallel()
	f := newBanning(t)
	ok(t, f.stop())
	f.tamper(`delete from audit where seq = (select audit_seq from fleet)`)
	f.tamper(`update fleet set audit_seq = audit_seq - 1, audit_hash = (select hash from audit where seq = audit_seq - 1)`)
	_, err := f.repository.Sign(trust.Signing{Level: 1, Restore: true, File: f.file("fleet.yaml", "", f.text), Parts: []trust.File{f.file("parts/10-base.yaml", "", "version: 1\n")}}, time.Now(), f.policy)
	ok(t, err)
	m, err := f.repository.Metadata()
	ok(t, err)
	online, err := trust.OpenOnline(f.dir)
	ok(t, err)
	ok(t, online.Publish(m, time.Now()))
	f.run()
	is, err := f.controller.Store.Fleet(t.Context())
	if err != nil || is.Restored || is.Incarnation != online.State().Incarnation {
		t.Errorf("%v: %+v", err, is)
	}
}

// TestIncarnationOfAnother: nor does one that hears of it from another controller, and had signed
// something last in the incarnation before.
func TestIncarnationOfAnother(t *testing.T) {
	t.Parallel()
	f := newBanning(t)
	second := f.second()
	f.tamper(`delete from audit where seq > 1`)
	f.tamper(`update fleet set audit_seq = 1, audit_hash = (select hash from audit where seq = 1)`)
	signed, err := f.repository.Sign(trust.Signing{Level: 1, Restore: true, File: f.file("fleet.yaml", "", f.text), Parts: []trust.File{f.file("parts/10-base.yaml", "", "version: 1\n")}}, time.Now(), f.policy)
	ok(t, err)
	_, err = f.give(signed.Bundle.Number)
	ok(t, err)
	want := f.controller.online.State().Incarnation
	f.until("the other one has heard of it", func() bool {
		return second.controller.online.State().Incarnation == want && second.controller.view.Load().position.Incarnation == want
	})
	ok(t, second.controller.sign(t.Context()))
	is, err := f.controller.Store.Fleet(t.Context())
	if err != nil || is.Restored || is.Incarnation != want {
		t.Errorf("%v: %+v", err, is)
	}
}
