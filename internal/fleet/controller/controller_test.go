package controller

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

func TestRevokedAtOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	token := f.token(nil, 2)
	a, err := f.join("web-1", token)
	ok(t, err)
	conn := a.stream(nil)
	f.until("web-1", func() bool { return f.states()["web-1"].Online })
	if _, err := a.client.Desired(t.Context()); err != nil {
		t.Error(err)
	}
	ok(t, f.client.Revoke(t.Context(), "web-1", "its disk was sold"))
	for {
		m, err := conn.Receive(t.Context())
		ok(t, err)
		if m.Refused != nil {
			if m.Refused.Kind != wire.KindRevoked || !strings.Contains(m.Refused.Text, "its disk was sold") {
				t.Errorf("it is told %+v", m.Refused)
			}
			break
		}
	}
	if _, err := conn.Receive(t.Context()); err == nil {
		t.Error("the stream goes on")
	}
	_, desired := a.client.Desired(t.Context()) // on the connection that was let in
	_, dial := wire.Dial(t.Context(), a.client.HTTP, a.client.Base)
	_, renew := a.client.Renew(t.Context(), &wire.Renew{Request: a.request()})
	for what, err := range map[string]error{"desired": desired, "stream": dial, "renew": renew} {
		if kind(err) != wire.KindRevoked || !strings.Contains(err.Error(), "its disk was sold") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if len(f.states()) != 0 {
		t.Errorf("%v", f.states())
	}
	again, err := f.join("web-1", token) // anew, with another key
	ok(t, err)
	if _, err := again.client.Desired(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := a.over(a.certificate).Desired(t.Context()); kind(err) != wire.KindTaken && kind(err) != wire.KindRevoked {
		t.Errorf("the old key: %v", err)
	}
}

// TestEnrolRefuses: with one sentence, and nobody is enrolled.
func TestEnrolRefuses(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	token := f.token(nil, 1)
	a, err := f.join("web-1", token)
	ok(t, err)
	_, fine, err := trust.NewRequest("web-2")
	ok(t, err)
	good := f.token(nil, 5)
	late := f.token(nil, 1)
	for _, test := range []struct {
		name string
		e    wire.Enrol
		kind wire.Kind
		want string
	}{
		{"an unknown secret", wire.Enrol{Secret: "x", Host: "web-2", Request: string(fine)}, wire.KindToken, "this fleet has no such token"},
		{"a used token", wire.Enrol{Secret: token.Secret, Host: "web-2", Request: string(fine)}, wire.KindToken, "used once already"},
		{"no request", wire.Enrol{Secret: good.Secret, Host: "web-2", Request: "pem"}, wire.KindBadRequest, "request"},
		{"a name that is taken", wire.Enrol{Secret: good.Secret, Host: "web-1", Request: string(fine)}, wire.KindTaken, "with another key"},
	} {
		if _, err := a.client.Enrol(t.Context(), &test.e); kind(err) != test.kind || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	for name, body := range map[string]string{
		"no JSON": "x", "a wrong name": `{"secret": "x", "host": "../web", "request": "x"}`, "nothing": "", "too large": `{"secret": "` + strings.Repeat("x", wire.MostRequest) + `"}`,
	} {
		answer, err := a.client.HTTP.Post(a.client.Base+wire.PathEnrol, "application/json", strings.NewReader(body))
		ok(t, err)
		if answer.Body.Close(); answer.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", name, answer.Status)
		}
	}
	var in sync.WaitGroup
	var enrolled atomic.Int64
	for i := range 8 { // at once, of a token that is good for one
		in.Go(func() {
			_, request, err := trust.NewRequest("x")
			if err != nil {
				t.Error(err)
			}
			_, err = a.client.Enrol(t.Context(), &wire.Enrol{Secret: late.Secret, Host: fmt.Sprint("many-", i), Request: string(request)})
			if err == nil {
				enrolled.Add(1)
			} else if kind(err) != wire.KindToken {
				t.Error(err)
			}
		})
	}
	in.Wait()
	if enrolled.Load() != 1 || len(f.states()) != 2 {
		t.Errorf("%d are enrolled by a token for one: %v", enrolled.Load(), f.states())
	}
}

// TestWithoutCertificate: nothing but root.json and enrolling.
func TestWithoutCertificate(t *testing.T) {
	t.Parallel()
	f, other := newFleet(t, "example.net"), newFleet(t, "other.example.net")
	a, err := f.join("web-1", f.token(nil, 1))
	ok(t, err)
	b, err := other.join("web-1", other.token(nil, 1))
	ok(t, err)
	open := a.over(nil)
	_, desired := open.Desired(t.Context())
	_, signed := open.Trust(t.Context())
	_, renew := open.Renew(t.Context(), &wire.Renew{Request: a.request()})
	_, blob := open.Blob(t.Context(), wire.Hash(nil), 1, nil)
	_, dial := wire.Dial(t.Context(), open.HTTP, open.Base)
	for what, err := range map[string]error{"desired": desired, "trust": signed, "renew": renew, "blob": blob, "stream": dial} {
		if kind(err) != wire.KindCertificate {
			t.Errorf("%s: %v", what, err)
		}
	}
	foreign := &wire.Client{Base: a.client.Base, HTTP: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{*b.certificate}}}}} //nolint:gosec // the controller has to refuse
	if _, err := foreign.Desired(t.Context()); err == nil || kind(err) != "" {
		t.Errorf("a certificate of another fleet: %v", err)
	}
	if _, err := b.over(nil).Roots(t.Context()); err != nil {
		t.Error(err)
	}
	b.address = f.address
	if _, err := b.over(b.certificate).Desired(t.Context()); err == nil || !strings.Contains(err.Error(), "other.example.net") {
		t.Errorf("a controller of another fleet: %v", err)
	}
}

func TestRenew(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	a, err := f.join("web-1", f.token(nil, 1))
	ok(t, err)
	old := a.certificate
	renewed, err := a.client.Renew(t.Context(), &wire.Renew{Request: a.request()})
	ok(t, err)
	a.certified(renewed.Certificate)
	if _, err := a.client.Desired(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := a.over(old).Desired(t.Context()); err != nil { // the answer may have been lost
		t.Error(err)
	}
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

// TestBlobs: a host gets its own parts, whole or as a patch, and nobody else's.
func TestBlobs(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	web, err := f.join("web-1", f.token(map[string]string{"role": "web"}, 1))
	ok(t, err)
	db, err := f.join("db-1", f.token(map[string]string{"role": "db"}, 1))
	ok(t, err)
	var lines strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&lines, "# %d %x\n", i, i*i)
	}
	one, two := lines.String(), lines.String()+"# more\n"
	for _, text := range []string{one, two} {
		_, err = f.publish(text)
		ok(t, err)
	}
	first, second := "version: 1\n"+one, "version: 1\n"+two
	part := trust.HashOf([]byte("version: 1\nhosts: role=db\n# " + strings.ReplaceAll(one, "\n", "\n# ")))
	for _, from := range [][]byte{nil, []byte(first), []byte("another")} {
		got, err := web.client.Blob(t.Context(), trust.HashOf([]byte(second)), 1<<20, from)
		if err != nil || string(got) != second {
			t.Errorf("from %d bytes: %d, %v", len(from), len(got), err)
		}
	}
	answer, err := web.client.HTTP.Get(web.client.Base + wire.PathBlobs + trust.HashOf([]byte(second)) + "?from=" + trust.HashOf([]byte(first)))
	ok(t, err)
	defer answer.Body.Close()
	if patch, err := io.ReadAll(answer.Body); err != nil || answer.Header.Get("Content-Type") != wire.PatchType || len(patch) > 1000 {
		t.Errorf("%d bytes of %s for a line more", len(patch), answer.Header.Get("Content-Type"))
	}
	if _, err := db.client.Blob(t.Context(), part, 1<<20, nil); err != nil {
		t.Error(err)
	}
	if _, err := web.client.Blob(t.Context(), part, 1<<20, nil); kind(err) != wire.KindNotFound {
		t.Errorf("a part of others: %v", err)
	}
	for _, path := range []string{"x", strings.Repeat("A", 64), trust.HashOf(nil) + "?from=x", "../desired"} {
		answer, err := web.client.HTTP.Get(web.client.Base + wire.PathBlobs + path)
		ok(t, err)
		if answer.Body.Close(); answer.StatusCode == http.StatusOK && !strings.HasSuffix(path, "desired") {
			t.Errorf("%s: %s", path, answer.Status)
		}
	}
}

// TestPrune: of bundles that are signed no more, those go that no host runs or is told to run.
func TestPrune(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	one, err := f.join("web-1", f.token(nil, 1))
	ok(t, err)
	conn := one.stream(&wire.Report{Bundle: 2, Running: 2, State: wire.StateConfirmed}) // of before a restore, say
	defer conn.Cut()
	for n := range 23 {
		_, err = f.publish(fmt.Sprintf("# %d\n", n))
		ok(t, err)
		f.until("web-1 is sent the first bundle", func() bool { return f.controller.view.Load().desired["web-1"].Bundle == 1 })
	}
	f.until("the report", func() bool { return f.controller.statuses.read("web-1").settled == 2 })
	ok(t, f.controller.prune(t.Context()))
	bundles, err := f.controller.Store.Bundles(t.Context())
	ok(t, err)
	var numbers []int64
	for _, b := range bundles {
		numbers = append(numbers, b.Number)
	}
	if len(numbers) != 22 || !slices.Equal(numbers[19:], []int64{4, 2, 1}) {
		t.Errorf("bundles %v, of 23", numbers)
	}
	ok(t, f.controller.prune(t.Context()))
}

// TestPublishRefuses: what a host would refuse does not become a bundle.
// TestPushed: what is desired comes with the files that a host does not have and may see,
// unless they are large.
func TestPushed(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	f.text += "roll-out: {stages: [100%], settle: none}\n"
	conns := map[string]*wire.Conn{}
	for host, role := range map[string]string{"web-1": "web", "db-1": "db"} {
		a, err := f.join(host, f.token(map[string]string{"role": role}, 1))
		ok(t, err)
		conns[host] = a.stream(nil)
	}
	gets := func(host string, bundle int64) map[string]bool {
		t.Helper()
		for {
			m, err := conns[host].Receive(t.Context())
			ok(t, err)
			if m.Desired == nil || m.Desired.Bundle != bundle {
				continue
			}
			got := map[string]bool{}
			for _, text := range m.Desired.Blobs {
				got[string(text)] = true
			}
			ok(t, conns[host].Send(t.Context(), &wire.Message{Report: &wire.Report{
				Order: m.Desired.Order, Rollout: m.Desired.Rollout, Bundle: bundle, State: wire.StateConfirmed, Running: bundle, Proved: time.Now(),
			}}))
			return got
		}
	}
	publish := func(text string) (base, db, manifest string) {
		t.Helper()
		_, err := f.publish(text)
		ok(t, err)
		for hash, content := range must(f.repository.Manifests()) {
			if m := (&trust.Manifest{}); json.Unmarshal(content, m) == nil && m.Parts[0].SHA256 == trust.HashOf([]byte("version: 1\n"+text)) {
				manifest = string(f.files[hash])
				base, db = string(f.files[m.Parts[0].SHA256]), string(f.files[m.Parts[1].SHA256])
			}
		}
		return base, db, manifest
	}
	base, db, manifest := publish("input: {default: drop}\n")
	for host, want := range map[string][]string{"web-1": {manifest, f.text, base}, "db-1": {manifest, f.text, base, db}} {
		if got := gets(host, 1); len(got) != len(want) || slices.ContainsFunc(want, func(text string) bool { return !got[text] }) {
			t.Errorf("%s gets %v, want %q", host, got, want)
		}
	}
	base, _, manifest = publish("input: {default: reject}\n")
	if got := gets("web-1", 2); len(got) != 2 || !got[manifest] || !got[base] {
		t.Errorf("of another part: %v", got)
	}
	gets("db-1", 2)
	_, _, manifest = publish("input: {default: drop}\n# " + strings.Repeat("x", wire.MostPushed) + "\n")
	if got := gets("web-1", 3); len(got) != 1 || !got[manifest] {
		t.Errorf("of a large part: %d blobs", len(got))
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
