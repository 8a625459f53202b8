package controller

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// What docs/internals/attacks.md says that a thief can do, by doing it, and where that ends.

// TestStolenControllerEnrols: who has the controller makes tokens with any labels. A host that
// comes by one learns the parts for those, and no operator's order of labels is needed.
func TestStolenControllerEnrols(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	_, err := f.publish("input: {default: drop}\n")
	ok(t, err)
	thief, err := f.join("db-9", f.token(map[string]string{"role": "db"}, 1))
	ok(t, err)
	go thief.obey(thief.stream(nil))
	f.until("it has what is for role=db", func() bool { return f.states()["db-9"].State == api.Proved })
	part := "version: 1\nhosts: role=db\n# input: {default: drop}\n# "
	if text, err := thief.client.Blob(t.Context(), trust.HashOf([]byte(part)), int64(len(part)), nil); err != nil || string(text) != part {
		t.Errorf("%q, %v", text, err)
	}
	// A host with other labels is refused that text: it is for no host that enrols honestly.
	other, err := f.join("web-9", f.token(map[string]string{"role": "web"}, 1))
	ok(t, err)
	if _, err := other.client.Blob(t.Context(), trust.HashOf([]byte(part)), int64(len(part)), nil); kind(err) != wire.KindNotFound {
		t.Errorf("a part for others: %v", err)
	}
	if n := f.audited("token.create"); n != 2 {
		t.Errorf("%d of 2 tokens are in the audit", n)
	}
}

// TestStolenControllerGivesRoles: who writes the database is whom they like, with any role, and
// approves what they ask for. It gets no policy to hosts that the policy keys have not signed.
func TestStolenControllerGivesRoles(t *testing.T) {
	t.Parallel()
	f := approving(t, "ban")
	token := api.NewSecret()
	hash, err := api.SecretHash(token)
	ok(t, err)
	f.tamper(`insert into access (id, kind, secret, who, role, hosts, member_of, created, created_by, expires, withdrawn, binds, makers)
		values ('x', 'session', ?, 'user:nobody', 'admin', '', '[]', 1, 'controller', ?, 0, '', '[]')`, fmt.Sprintf("%x", hash), time.Now().Add(time.Hour).UnixMicro())
	thief := f.elsewhere(token)
	_, err = f.client.Ban(t.Context(), aBan("203.0.113.1", "")) // what root asks for, somebody else approves
	done, err := thief.Approve(t.Context(), awaiting(t, err).Id, api.Approval{})
	ok(t, err)
	if done.State != api.RequestDone || f.bansNow() == "" {
		t.Errorf("%+v; %s holds", done, f.bansNow())
	}
	ok(t, thief.Revoke(t.Context(), "web-2", "stolen"))

	// Neither a controller nor a host takes what another key signs.
	a, err := f.join("web-3", f.token(map[string]string{"env": "prod"}, 1))
	ok(t, err)
	m := *f.controller.trust.Load()
	ok(t, a.trust.Update(m, time.Now()))
	own := newFleet(t, "example.net") // by keys of the thief's
	for range 2 {
		_, err = own.publish("input: {default: allow}\n")
		ok(t, err)
	}
	forged := *own.controller.trust.Load()
	_, err = thief.Publish(t.Context(), api.Publish{Roots: forged.Roots, Targets: forged.Targets, Bundle: 2})
	if kind(err) != wire.KindBadRequest || !strings.Contains(err.Error(), "not signed by a key of this fleet") {
		t.Errorf("the controller: %v", err)
	}
	for what, roots := range map[string][][]byte{"its root.json": forged.Roots, "the one of the fleet": m.Roots} {
		err := a.trust.Update(trust.Metadata{Roots: roots, Timestamp: forged.Timestamp, Snapshot: forged.Snapshot, Targets: forged.Targets}, time.Now())
		if !errors.Is(err, trust.ErrUnsigned) && !errors.Is(err, trust.ErrThreshold) {
			t.Errorf("a host with %s: %v", what, err)
		}
	}
	if b, err := a.trust.Bundle(2, 1, time.Now()); err == nil {
		t.Errorf("a host has %+v", b)
	}
}

// TestDatabaseIsRead: a copy of the database says what the policies are, which labels and facts
// hosts have, and what the audit has; no key and no secret is in it.
func TestDatabaseIsRead(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	_, err := f.publish("input: {default: drop}\n")
	ok(t, err)
	enrols := f.token(map[string]string{"role": "db"}, 2)
	_, err = f.join("db-1", enrols)
	ok(t, err)
	_, err = f.controller.Store.PutFacts(t.Context(), "db-1", []byte(`{"kernel":"6.1.0"}`))
	ok(t, err)
	asks, _, err := f.access(f.client, "ci", api.Admin, "")
	ok(t, err)
	ok(t, f.stop())

	path := filepath.Join(t.TempDir(), "copy.db")
	from := strings.TrimPrefix(f.database, "sqlite:")
	db, err := sql.Open("sqlite", from)
	ok(t, err)
	_, err = db.ExecContext(t.Context(), "vacuum into '"+path+"'")
	ok(t, err)
	ok(t, db.Close())
	s, err := store.Open(t.Context(), "sqlite:"+path)
	ok(t, err)
	defer s.Close()
	blob, err := s.OpenBlob(t.Context(), trust.HashOf([]byte("version: 1\ninput: {default: drop}\n")))
	ok(t, err)
	if text, err := io.ReadAll(blob); err != nil || !strings.Contains(string(text), "default: drop") {
		t.Errorf("the policy: %q, %v", text, err)
	}
	hosts, err := s.Hosts(t.Context())
	ok(t, err)
	if len(hosts) != 1 || hosts[0].Labels["role"] != "db" {
		t.Errorf("labels: %+v", hosts)
	}
	if text, err := s.Facts(t.Context(), hosts[0].Facts); err != nil || !strings.Contains(string(text), "6.1.0") {
		t.Errorf("facts: %s, %v", text, err)
	}
	entries := 0
	ok(t, s.EachEntry(context.Background(), 0, func(store.Entry) error { entries++; return nil }))
	if entries < 4 {
		t.Errorf("%d entries of the audit", entries)
	}
	raw, err := os.ReadFile(path)
	ok(t, err)
	secrets := []string{"PRIVATE KEY", enrols.Secret, asks, strings.TrimPrefix(asks, "sluice_access_")}
	for _, secret := range secrets {
		if secret == "" || strings.Contains(string(raw), secret) {
			t.Errorf("%.30q is in the database", secret)
		}
	}
}

// TestHostLies: a host that enforces nothing says that it does, and is believed; it is believed of
// nobody else.
func TestHostLies(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	for _, host := range []string{"web-1", "web-2"} {
		_, err := f.join(host, f.token(nil, 1))
		ok(t, err)
	}
	_, err := f.publish("input: {default: drop}\n")
	ok(t, err)
	liar, err := f.join("web-3", f.token(nil, 1))
	ok(t, err)
	conn := liar.stream(nil)
	d := told(t, liar, conn, func(d *wire.Desired) bool { return d.Bundle == 1 })
	now := time.Now()
	ok(t, conn.Send(t.Context(), &wire.Message{Report: &wire.Report{Order: d.Order, Rollout: d.Rollout, Bundle: 1, Running: 1, State: wire.StateConfirmed, Mark: "m", Proved: now, Verified: now}}))
	f.until("it is believed", func() bool { return f.states()["web-3"].State == api.Proved })
	for _, host := range []string{"web-1", "web-2"} {
		if is := f.states()[host]; is.State == api.Proved {
			t.Errorf("%s: %+v", host, is)
		}
	}
}
