package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// TestHeart: hosts enrol, connect, are told a bundle, and are shown as proved.
func TestHeart(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	token := f.token(map[string]string{"role": "web"}, 3)
	for i := range 3 {
		a, err := f.join(fmt.Sprintf("web-%d", i+1), token)
		ok(t, err)
		conn := a.stream(nil)
		go a.obey(conn)
	}
	f.until("all online", func() bool {
		s, err := f.client.Status(t.Context())
		ok(t, err)
		return s.Online == 3
	})
	if h := f.states()["web-1"]; h.State != api.None || !h.Online || h.Labels["role"] != "web" || h.Version != "1.2" {
		t.Errorf("before a bundle: %+v", h)
	}
	made, err := f.publish("input: {default: drop}\n")
	ok(t, err)
	if made.ID != 1 || made.Bundle != 1 {
		t.Errorf("%+v", made)
	}
	f.until("the canary", func() bool {
		proved := 0
		for _, h := range f.states() {
			if h.State == api.Proved && h.Running == 1 && h.Desired == 1 && h.Mark == "m1" && !h.Since.IsZero() {
				proved++
			}
		}
		return proved >= 1
	})
	if _, err := f.join("web-4", token); err == nil || !strings.Contains(err.Error(), "used 3 times") {
		t.Errorf("a token of 3 uses is used a fourth time: %v", err)
	}
	var failure *wire.Failure
	if err := f.client.Revoke(t.Context(), "web-9", "it was stolen"); !errors.As(err, &failure) || failure.Kind != wire.KindNotFound {
		t.Errorf("%v", err)
	}
}

func kind(err error) wire.Kind {
	var f *wire.Failure
	if errors.As(err, &f) {
		return f.Kind
	}
	return ""
}

// TestTwoHosts: a copy of a host is refused and shown.
func TestTwoHosts(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	a, err := f.join("web-1", f.token(nil, 1))
	ok(t, err)
	go a.obey(a.stream(nil))
	f.until("web-1", func() bool { return f.states()["web-1"].Online })
	copied := *a
	copied.instance = "copy"
	conn := copied.stream(nil)
	m, err := conn.Receive(t.Context())
	if err != nil || m.Refused == nil || m.Refused.Kind != wire.KindTaken {
		t.Fatalf("%v, %v", m, err)
	}
	h := f.states()["web-1"]
	if h.State != api.Claimed || !strings.Contains(h.Reason, "two hosts claim this name") {
		t.Errorf("%+v", h)
	}
}

// TestStates: what hosts say becomes what is shown, also by the controller after this one.
func TestStates(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	a, err := f.join("web-1", f.token(nil, 1))
	ok(t, err)
	if h := f.states()["web-1"]; h.State != api.Offline || h.Reason != "it has never connected" {
		t.Errorf("%+v", h)
	}
	conn := a.stream(nil)
	_, err = f.publish("input: {default: drop}\n")
	ok(t, err)
	var d *wire.Desired
	for d == nil || d.Bundle == 0 {
		m, err := conn.Receive(t.Context())
		ok(t, err)
		if m.Desired != nil {
			d = m.Desired
		}
	}
	if d.Rollout != 1 || d.ConfirmSeconds != 60 || d.Order.Revision == 0 {
		t.Errorf("%+v", d)
	}
	polled, err := a.client.Desired(t.Context())
	if err != nil || polled.Bundle != d.Bundle || polled.Order.Compare(d.Order) < 0 {
		t.Errorf("%+v, %v", polled, err)
	}
	now := time.Now().UTC().Truncate(time.Second)
	for _, test := range []struct {
		report wire.Report
		state  api.HostState
		reason string
	}{
		{wire.Report{Bundle: 1, Rollout: 1, State: wire.StateFetched}, api.Stale, "bundle 1 is fetched, and it runs none"},
		{wire.Report{Bundle: 1, Rollout: 1, State: wire.StatePending, Running: 1}, api.Stale, "in force and not confirmed"},
		{wire.Report{Bundle: 1, Rollout: 1, State: wire.StateProved, Running: 1, Proved: now}, api.Stale, "in force and not confirmed"},
		{wire.Report{Bundle: 1, Rollout: 1, State: wire.StateConfirmed, Running: 1}, api.Stale, "not proved"},
		{wire.Report{Bundle: 1, Rollout: 1, State: wire.StateConfirmed, Running: 1, Proved: now, Verified: now, Mark: "m"}, api.Proved, ""},
		{wire.Report{Bundle: 1, Rollout: 1, State: wire.StateConfirmed, Running: 1, Proved: now, Verified: now, Mark: "m", Error: "the disk is full"}, api.Proved, "it takes nothing new: the disk is full"},
		{wire.Report{Bundle: 1, Rollout: 1, State: wire.StateNone, Error: "the disk is full"}, api.Stale, "and it runs none: the disk is full"},
		{wire.Report{Bundle: 1, Rollout: 1, State: wire.StateConfirmed, Running: 1, Drift: "tcp/22 from 192.0.2.1 passes"}, api.Drift, "tcp/22 from 192.0.2.1"},
		{wire.Report{Bundle: 1, Rollout: 1, State: wire.StateReverted, Error: "the probe failed"}, api.Refused, "bundle 1 was reverted: the probe failed"},
		{wire.Report{Bundle: 1, Rollout: 1, State: wire.StateRefused, Error: "guard.yaml"}, api.Refused, "bundle 1 was refused: guard.yaml"},
		{wire.Report{Bundle: 1, Rollout: 1, State: wire.StateConfirmed, Running: 1, Proved: now, Verified: now, Mark: "m"}, api.Proved, ""},
	} {
		test.report.Order = d.Order
		ok(t, conn.Send(t.Context(), &wire.Message{Report: &test.report}))
		var h api.Host
		f.until(string(test.state)+" "+test.reason, func() bool {
			h = f.states()["web-1"]
			return h.State == test.state && strings.Contains(h.Reason, test.reason)
		})
		if test.state == api.Proved && (!h.Since.Equal(now) || !h.Verified.Equal(now) || h.Mark != "m") {
			t.Errorf("%+v", h)
		}
	}
	conn.Cut()
	f.until("offline", func() bool { return f.states()["web-1"].State == api.Offline })
	ok(t, f.stop())
	f.run()
	h := f.states()["web-1"]
	if h.State != api.Offline || !strings.Contains(h.Reason, "not heard from for") || h.Running != 1 || h.Desired != 1 || h.Version != "1.2" {
		t.Errorf("after a restart: %+v", h)
	}
	a.stream(nil)
	f.until("proved again", func() bool { return f.states()["web-1"].State == api.Proved })
}

// TestDatabaseGone: hosts are served what was known last, and nothing is written.
func TestDatabaseGone(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	token := f.token(nil, 2)
	a, err := f.join("web-1", token)
	ok(t, err)
	go a.obey(a.stream(nil))
	_, err = f.publish("input: {default: drop}\n")
	ok(t, err)
	f.until("proved", func() bool { return f.states()["web-1"].State == api.Proved })
	secret := api.NewSecret()
	hash, err := api.SecretHash(secret)
	ok(t, err)
	ok(t, f.controller.Store.CreateAccess(t.Context(), "operator", store.Access{
		ID: api.AccessID(hash), Kind: store.AccessToken, Secret: hash, Who: "token:x", Role: "admin", Expires: time.Now().Add(time.Hour),
	}))
	elsewhere, stranger := f.elsewhere(secret), f.elsewhere(api.NewSecret())
	_, err = elsewhere.Hosts(t.Context(), "")
	ok(t, err)
	ended, end := context.WithCancel(t.Context())
	end()
	r := httptest.NewRequestWithContext(ended, http.MethodGet, "/api/v1/hosts", http.NoBody)
	r.Header.Set("Authorization", "Bearer "+secret)
	if who, err := f.controller.identify(r); err == nil {
		t.Errorf("the database is there, and %s was not looked up", who.Who)
	}
	ok(t, f.controller.Store.Close())
	f.until("the database's absence", func() bool {
		hosts, err := f.client.Hosts(t.Context(), "")
		ok(t, err)
		return hosts.Database != "" && len(hosts.Hosts) == 1 && hosts.Hosts[0].State == api.Proved
	})
	hosts, err := elsewhere.Hosts(t.Context(), "")
	if err != nil || len(hosts.Hosts) != 1 || !strings.HasPrefix(hosts.Database, "since ") {
		t.Errorf("who asked before is told what was known last: %+v, %v", hosts, err)
	}
	if _, err := stranger.Hosts(t.Context(), ""); kind(err) != wire.KindUnavailable {
		t.Errorf("one whom nobody can look up: %v", err)
	}
	if err := elsewhere.Revoke(t.Context(), "web-1", ""); kind(err) != wire.KindUnavailable {
		t.Errorf("a write: %v", err)
	}
	f.controller.lately.withdrawn(api.AccessID(hash))
	if _, err := elsewhere.Hosts(t.Context(), ""); kind(err) != wire.KindUnavailable {
		t.Errorf("one that was withdrawn: %v", err)
	}
	d, err := a.client.Desired(t.Context())
	if err != nil || d.Bundle != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	fresh := a.over(a.certificate) // whose key nobody can look up
	if _, err := fresh.Trust(t.Context()); err != nil {
		t.Error(err)
	}
	again := *a
	again.client = fresh
	conn := again.stream(nil)
	m, err := conn.Receive(t.Context())
	if err != nil || m.Trust == nil {
		t.Errorf("%v, %v", m, err)
	}
	if _, err := f.join("web-2", token); kind(err) != wire.KindUnavailable {
		t.Errorf("enrol: %v", err)
	}
	_, err = f.client.Command(t.Context(), 1, api.Pause, "")
	if kind(err) != wire.KindUnavailable {
		t.Errorf("pause: %v", err)
	}
	if err := f.client.Revoke(t.Context(), "web-1", ""); kind(err) != wire.KindUnavailable {
		t.Errorf("revoke: %v", err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestPublishRefuses(t *testing.T) {
	t.Parallel()
	f, other := newFleet(t, "example.net"), newFleet(t, "other.example.net")
	_, err := other.publish("input: {default: drop}\n")
	ok(t, err)
	foreign, err := other.repository.Metadata()
	ok(t, err)
	if _, err := f.client.Publish(t.Context(), api.Publish{Roots: foreign.Roots, Targets: foreign.Targets, Bundle: 1}); kind(err) != wire.KindBadRequest {
		t.Errorf("another fleet's: %v", err)
	}
	_, err = f.publish("input: {default: drop}\n")
	ok(t, err)
	m, err := f.repository.Metadata()
	ok(t, err)
	if _, err := f.client.Publish(t.Context(), api.Publish{Roots: m.Roots, Targets: m.Targets, Bundle: 9}); kind(err) != wire.KindBadRequest || !strings.Contains(err.Error(), "no bundle 9") {
		t.Errorf("%v", err)
	}
	signed, err := f.repository.Sign(trust.Signing{Level: 1, File: f.file("fleet.yaml", "", "version: 1\nfleet: example.net\n# 2")}, time.Now(), f.policy)
	ok(t, err)
	m, err = f.repository.Metadata()
	ok(t, err)
	if _, err := f.client.Publish(t.Context(), api.Publish{Roots: m.Roots, Targets: m.Targets, Bundle: signed.Bundle.Number}); kind(err) != wire.KindNotFound {
		t.Errorf("without its manifest: %v", err)
	}
	m.Targets[len(m.Targets)/2] ^= 1
	if _, err := f.client.Publish(t.Context(), api.Publish{Roots: m.Roots, Targets: m.Targets, Bundle: 1}); kind(err) != wire.KindBadRequest {
		t.Errorf("a changed byte: %v", err)
	}
	if err := f.client.PutBlob(t.Context(), trust.HashOf(nil), strings.NewReader("x")); kind(err) != wire.KindBadRequest {
		t.Errorf("a blob that has another hash: %v", err)
	}
	all, err := f.client.Rollouts(t.Context(), 100)
	if err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
}

// told waits for what a stream is told of a bundle, with what is asked of it.
func told(t *testing.T, a *agent, conn *wire.Conn, is func(*wire.Desired) bool) *wire.Desired {
	t.Helper()
	for {
		m, err := conn.Receive(t.Context())
		ok(t, err)
		if m.Trust != nil {
			ok(t, a.trust.Update(trust.Metadata{Roots: m.Trust.Roots, Timestamp: m.Trust.Timestamp, Snapshot: m.Trust.Snapshot, Targets: m.Trust.Targets}, time.Now()))
		}
		if m.Desired != nil && is(m.Desired) {
			return m.Desired
		}
	}
}

// TestRollOutOfPolicy: how fleet.yaml says so.
func TestRollOutOfPolicy(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	f.text += `roll-out:
  stages: [2 hosts, 100%]
  settle: none
  confirm: 20s
  probes: [https://localhost/healthz, tcp 127.0.0.1:22, controller]
  halt: {failed: 3}
  on-halt: hold
`
	a, err := f.join("web-1", f.token(nil, 1))
	ok(t, err)
	conn := a.stream(nil)
	made, err := f.publish("input: {default: drop}\n")
	ok(t, err)
	p := made.Plan
	if fmt.Sprintf("%v %v %v %v %s %d", p.Stages, p.Settle, p.Confirm, p.Halt, p.OnHalt, p.Level) != "[2 hosts 100%] 0s 20s {3 0} hold 1" {
		t.Errorf("%+v", p)
	}
	d := told(t, a, conn, func(d *wire.Desired) bool { return d.Bundle == 1 })
	if d.ConfirmSeconds != 20 {
		t.Errorf("%+v", d)
	}
	f.text += "  freeze: [\"Fri 16:00 - Mon 08:00 Europe/Berlin\"]\n"
	made, err = f.publish("input: {default: drop}\n")
	ok(t, err)
	if is := fmt.Sprint(made.Plan.Freeze); is != "[Fri 16:00 - Mon 08:00 Europe/Berlin]" {
		t.Error(is)
	}
	f.text = "version: 1\nfleet: example.net\nparts: 7\n"
	if _, err := f.publish("input: {default: drop}\n"); kind(err) != wire.KindBadRequest {
		t.Errorf("a fleet.yaml that cannot be read: %v", err)
	}
}

// TestFacts: they are asked for where they are not known, once.
func TestFacts(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	a, err := f.join("web-1", f.token(nil, 1))
	ok(t, err)
	facts := []byte(`{"kernel":"6.18"}`)
	asked := func() bool {
		t.Helper()
		conn, err := wire.Dial(t.Context(), a.client.HTTP, a.client.Base)
		ok(t, err)
		defer conn.Cut()
		ok(t, conn.Send(t.Context(), &wire.Message{Hello: &wire.Hello{Version: "1", Instance: "a", Facts: wire.Hash(facts)}}))
		m, err := conn.Receive(t.Context())
		for err == nil && m.Desired == nil {
			m, err = conn.Receive(t.Context())
		}
		ok(t, err)
		// What follows desired comes at once, or not at all; a revocation ends the wait.
		done := make(chan struct{})
		go func() {
			defer close(done)
			if m, err = conn.Receive(t.Context()); err == nil && m.Ask != nil {
				err = conn.Send(t.Context(), &wire.Message{Facts: &wire.Facts{Facts: facts}})
			}
		}()
		select {
		case <-done:
			return m != nil && m.Ask != nil
		case <-time.After(200 * time.Millisecond):
			return false
		}
	}
	f.until("the question", asked)
	f.until("the facts", func() bool {
		hosts, err := f.controller.Store.Hosts(t.Context(), "web-1")
		ok(t, err)
		return hosts[0].Facts == wire.Hash(facts)
	})
	if asked() {
		t.Error("they are asked for again")
	}
	ok(t, f.stop())
	f.run()
	if asked() {
		t.Error("the controller after this one asks again")
	}
}

// TestPublishedElsewhere: hosts hear at one controller of what was published at another on the
// same database.
func TestPublishedElsewhere(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	_, err := f.publish("input: {default: drop}\n")
	ok(t, err)
	a, err := f.join("web-1", f.token(map[string]string{"role": "web"}, 1))
	ok(t, err)
	a = a.of(f.second())
	_, err = f.publish("input: {default: drop}\n# 2\n")
	ok(t, err)
	f.until("it hears of bundle 2", func() bool {
		m, err := a.client.Trust(t.Context())
		ok(t, err)
		ok(t, a.trust.Update(trust.Metadata{Roots: m.Roots, Timestamp: m.Timestamp, Snapshot: m.Snapshot, Targets: m.Targets}, time.Now()))
		_, err = a.trust.Bundle(2, 1, time.Now())
		return err == nil
	})
}
