package controller

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
	"sluice/internal/language/policy"
)

// within is an operation as it is asked for, in which ENV stands for the hosts of a role or for
// others, and FACTS, DRAFT, BAN, ALLOW, LATE, LATER, ORDER and SECRET for what is theirs.
type within struct {
	operation, path, body string
	// Where no ENV is asked for: what an answer has for whoever sees all, ENV unless given, and the same
	// of the hosts of a role.
	all, own string
	narrowed bool // what is asked for others is done for none
	mine     bool // it is of who asks alone
}

var withins = []within{
	{operation: "events"}, // which are read all the time
	{operation: "log"},
	{operation: "status", all: `"hosts":2`, own: `"hosts":1`},
	{operation: "hosts"},
	{operation: "inventory"},
	{operation: "facts", path: "/FACTS"},
	{operation: "askHost", path: "/web-ENV/agent/v1"},
	{operation: "askHostWith", path: "/web-ENV/agent/v1", body: `{}`},
	{operation: "findings", path: "?hosts=env%3DENV"},
	{operation: "samples", path: "?hosts=env%3DENV"},
	{operation: "guests"},
	{operation: "guest", path: "/vm-ENV"},
	{operation: "tokens"},
	{operation: "requests", all: "LATE", own: "LATE"},
	{operation: "request", path: "/LATE"},
	{operation: "lists", all: `"hosts":2`, own: `"hosts":1`},
	{operation: "rollouts", all: `"told":2`, own: `"told":1`},
	{operation: "rollout", path: "/2"},
	{operation: "bans"},
	{operation: "oneBan", path: "/BAN"},
	{operation: "allows"},
	{operation: "oneAllow", path: "/ALLOW"},
	{operation: "living", path: "?seq=1&hosts=env%3DENV"},
	{operation: "session", mine: true},
	{operation: "policy", all: "hosts: env=ENV", own: "hosts: env=ENV"},
	{operation: "checkPolicy", body: `{"texts": {"parts/60-own.yaml": "version: 1\n"}}`, all: "web-ENV", own: "web-ENV"},
	{operation: "diffPolicy", body: `{"texts": {"parts/60-own.yaml": "version: 1\ninput: {rules: [allow ssh]}\n"}}`, all: "web-ENV", own: "web-ENV"},

	{operation: "map", body: `{"service": "ssh"}`, all: "web-ENV", own: "web-ENV"},
	{operation: "reach", body: `{"service": "ssh"}`, all: "web-ENV", own: "web-ENV"},
	{operation: "askExplain", body: `{"question": {"source": "192.0.2.1", "destination": "198.51.100.1", "port": "22", "hook": "input"}}`, all: "web-ENV", own: "web-ENV"},
	{operation: "askQuery", body: `{"question": {"service": "ssh"}}`, all: "web-ENV", own: "web-ENV"},
	{operation: "drafts", all: "DRAFT", own: "DRAFT"},
	{operation: "draft", path: "/DRAFT"},
	{operation: "createDraft", body: `{"texts": {"parts/70-new.yaml": "version: 1\nhosts: env=ENV\ninput: {rules: [allow ntp]}\n"}}`},
	{operation: "removeDraft", path: "/DRAFT"},
	{operation: "ban", body: `{"hosts": "env=ENV", "for-seconds": 3600, "entries": [{"what": "203.0.113.9"}]}`, narrowed: true},
	{operation: "unban", body: `{"hosts": "env=ENV", "what": ["203.0.113.1-203.0.113.2"]}`},
	{operation: "allow", body: `{"hosts": "env=ENV", "for-seconds": 3600, "entries": [{"what": "198.51.100.9"}]}`, narrowed: true},
	{operation: "disallow", body: `{"hosts": "env=ENV", "what": ["198.51.100.1-198.51.100.2"]}`},
	{operation: "approve", path: "/LATE/approve", body: `{}`},
	{operation: "refuse", path: "/LATER/refuse", body: `{}`},
	{operation: "putGuest", path: "/vm-ENV", body: `{"host": "web-ENV", "interface": "tap1", "addresses": ["10.30.0.9"]}`},
	{operation: "putGuest", path: "/vm-shown", body: `{"host": "web-ENV", "interface": "tap2", "addresses": ["10.30.0.9"]}`},
	{operation: "removeGuest", path: "/vm-ENV"},
	{operation: "createToken", body: `{"id": "new", "secret": "SECRET", "uses": 1, "expires": "2100-01-01T00:00:00Z", "labels": {"env": "ENV"}}`},
	{operation: "withdrawToken", path: "/token-ENV"},
	{operation: "createAccess", body: `{"name": "ci", "secret": "SECRET", "role": "admin", "hosts": "env=ENV", "expires": "SOON"}`, narrowed: true},
	{operation: "setLabels", path: "/web-ENV/labels", body: `{"order": "ORDER"}`},
	{operation: "restoreHost", path: "/web-ENV/restore"},
	{operation: "revoke", path: "/web-ENV/revoke", body: `{}`},
	{operation: "endSession", mine: true},
}

// TestWithin: by a role for the hosts of a selector each operation that takes such a role does for
// those what it does for all, and of others it shows and changes nothing, and says of what there is
// no more than of what there is not. Each such operation of the document has a row.
func TestWithin(t *testing.T) {
	t.Parallel()
	patterns := map[string]string{}
	for pattern, o := range api.Operations() {
		if o.Within != slices.ContainsFunc(withins, func(w within) bool { return w.operation == o.ID }) {
			t.Errorf("%s: within %v, and has a row: %v", o.ID, o.Within, !o.Within)
		}
		patterns[o.ID] = pattern
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("192.0.2.0/24\n"))
	}))
	defer server.Close()
	f, ctx, envs := newFleet(t, "example.net"), t.Context(), []string{"shown", "hidden"}
	f.text += bansText + `access: [{ who: "user:erika", role: admin }, { who: "user:otto", role: admin, hosts: env=shown }]
sets: {vms: {guests: app, within: [10.30.0.0/16]}}
roll-out: {stages: [100%], settle: none}
`
	part := "version: 1\nsets: {scanners: {url: \"" + server.URL + "/list.txt\", live: true}}\ninput: {default: drop, rules: [drop from scanners]}\n"
	publish := func() {
		t.Helper()
		signed, err := f.repository.Sign(trust.Signing{
			Level: 1, File: f.file("fleet.yaml", "", f.text), Parts: []trust.File{
				f.file("parts/10-base.yaml", "", part), f.file("parts/20-shown.yaml", "env=shown", "version: 1\nhosts: env=shown\n"), f.file("parts/20-hidden.yaml", "env=hidden", "version: 1\nhosts: env=hidden\n"),
			},
			Lists: []trust.File{f.file(trust.URLLists+"/"+policy.SignedList("scanners", server.URL+"/list.txt"), "", "192.0.2.0/24\n")},
		}, time.Now(), f.policy)
		ok(t, err)
		_, err = f.give(signed.Bundle.Number)
		ok(t, err)
	}
	publish()
	otto, erika := f.session("otto"), f.session("erika")
	streams := []*reads{f.events(f.elsewhere(otto), ""), f.events(f.elsewhere(erika), "")}
	for _, s := range streams {
		f.until("events", func() bool { return len(s.all("reset")) == 1 })
	}
	f.until("what follows is told", func() bool {
		f.controller.events.mutex.Lock()
		defer f.controller.events.mutex.Unlock()
		return f.controller.events.hosts != nil
	})

	words := map[string][]string{"absent": {"DRAFT", "absent", "ENV", "absent", "FACTS", wire.Hash([]byte("absent")), "BAN", "absent", "ALLOW", "absent", "LATER", "absent", "LATE", "absent", "ORDER", "e30="}}
	for i, env := range envs {
		host, own := "web-"+env, map[string]string{"env": env}
		a, err := f.join(host, f.token(own, 1))
		ok(t, err)
		go a.obey(a.stream(nil))
		facts := []byte(`{"of":"` + env + `"}`)
		_, err = f.controller.Store.PutFacts(ctx, host, facts)
		ok(t, err)
		ok(t, f.client.CreateToken(ctx, api.NewToken{Id: "token-" + env, Secret: newSecret(t), Labels: own, Uses: 1, Expires: time.Now().Add(time.Hour)}))
		_, err = f.client.PutGuest(ctx, "vm-"+env, api.NewGuest{Host: host, Interface: "tap0", Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 30, 0, byte(1 + i)})}, Labels: map[string]string{"app": "shop"}})
		ok(t, err)
		banned, err := f.client.Ban(ctx, aBan(fmt.Sprintf("203.0.113.%d", 1+i), "env="+env))
		ok(t, err)
		allowed, err := f.client.Allow(ctx, aBan(fmt.Sprintf("198.51.100.%d", 1+i), "env="+env))
		ok(t, err)
		waits, err := trust.NewToken(f.repository.Root(), []string{f.address}, own)
		ok(t, err)
		ok(t, f.client.CreateToken(ctx, api.NewToken{Id: "waits-" + env, Secret: trust.SecretHash(waits.Secret), Labels: own, Uses: 2, Expires: time.Now().Add(time.Hour), Approve: true}))
		late := map[string]string{}
		for _, name := range []string{"late", "later"} {
			if _, err := f.join(name+"-"+env, waits); kind(err) != wire.KindPending {
				t.Fatal(err)
			}
			all, err := f.client.Requests(ctx, false)
			ok(t, err)
			for _, r := range all.Requests {
				if r.Who == "host:"+name+"-"+env {
					late[name] = r.Id
				}
			}
		}
		order, err := trust.SealLabels(trust.LabelOrder{Fleet: "example.net", Host: host, Number: time.Now().UnixMilli(), Expires: time.Now().Add(time.Hour), Labels: own}, f.policy)
		ok(t, err)
		by := f.elsewhere(map[string]string{"shown": otto, "hidden": erika}[env])
		draft, err := by.CreateDraft(ctx, api.NewDraft{Title: env, Texts: map[string]string{"parts/70-" + env + ".yaml": "version: 1\nhosts: env=" + env + "\ninput: {rules: [allow https]}\n"}})
		ok(t, err)
		words[env] = []string{"DRAFT", draft.Id, "ENV", env, "FACTS", wire.Hash(facts), "BAN", banned.Written[0].Id, "ALLOW", allowed.Written[0].Id, "LATER", late["later"], "LATE", late["late"], "ORDER", base64.StdEncoding.EncodeToString(order)}
	}
	publish() // so that there is a roll-out of these hosts
	f.until("it is done", func() bool {
		all, err := f.client.Rollouts(ctx, 1)
		ok(t, err)
		return all[0].ID == 2 && all[0].State.Phase == "done"
	})

	client := &http.Client{Transport: &http.Transport{TLSClientConfig: f.tls()}}
	t.Cleanup(client.CloseIdleConnections)
	ask := func(token string, w within, env string) (status int, text string) {
		t.Helper()
		say := strings.NewReplacer(append([]string{"SECRET", newSecret(t), "SOON", time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}, words[env]...)...)
		method, path, _ := strings.Cut(patterns[w.operation], " ")
		path, _, _ = strings.Cut(path, "/{")
		r, err := http.NewRequestWithContext(ctx, method, "https://"+f.web+path+say.Replace(w.path), strings.NewReader(say.Replace(w.body)))
		ok(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := client.Do(r)
		ok(t, err)
		defer answer.Body.Close()
		said, err := io.ReadAll(answer.Body)
		ok(t, err)
		return answer.StatusCode, string(said)
	}
	did := func() (n int) {
		ok(t, f.controller.Store.EachEntry(ctx, 0, func(e store.Entry) error {
			if e.Who == "user:otto" {
				n++
			}
			return nil
		}))
		return n
	}
	taking := within{operation: "putGuest", path: "/vm-hidden", body: `{"host": "web-shown", "interface": "tap3", "addresses": ["10.30.0.3"], "labels": {"app": "shop"}}`}
	if status, text := ask(otto, taking, "shown"); status != http.StatusNotFound || !strings.Contains(text, "vm-hidden") {
		t.Errorf("a guest of others comes to a host of their own: %d %s", status, text)
	}
	own := strings.NewReplacer(words["shown"]...)
	for _, w := range withins {
		asks := strings.NewReplacer(words["hidden"]...).Replace(w.path+w.body) != own.Replace(w.path+w.body)
		switch {
		case w.operation == "events", w.operation == "log":
		case w.mine:
			if status, text := ask(otto, w, ""); status >= 300 || strings.Contains(text, "hidden") {
				t.Errorf("%s: %d %s", w.operation, status, text)
			}
		case !asks:
			all, some := w.all, w.own
			if all == "" {
				all, some = "ENV", "ENV"
			}
			status, text := ask(otto, w, "")
			hidden := strings.NewReplacer(words["hidden"]...).Replace(all)
			if status != http.StatusOK || !strings.Contains(text, own.Replace(some)) || strings.Contains(text, hidden) || strings.Contains(text, "hidden") {
				t.Errorf("%s: %d %s", w.operation, status, text)
			}
			if status, text := ask(erika, w, ""); status != http.StatusOK || !strings.Contains(text, hidden) {
				t.Errorf("%s of all hosts, without %s: %d %s", w.operation, hidden, status, text)
			}
		case w.narrowed:
			if status, text := ask(otto, w, "hidden"); status != http.StatusOK || !strings.Contains(text, `"env=hidden and env=shown"`) {
				t.Errorf("%s of others: %d %s", w.operation, status, text)
			}
		default:
			before := did()
			status, text := ask(otto, w, "hidden")
			as, there := ask(otto, w, "absent")
			for i := 1; i < len(words["hidden"]); i += 2 {
				text, there = strings.ReplaceAll(text, words["hidden"][i], "X"), strings.ReplaceAll(there, words["absent"][i], "X")
			}
			if status != as || text != there || did() != before {
				t.Errorf("%s of others: %d %s; of what there is not: %d %s", w.operation, status, text, as, there)
			}
		}
		if asks {
			if status, text := ask(otto, w, "shown"); status >= 300 || strings.HasPrefix(patterns[w.operation], "GET") && !strings.Contains(text, "shown") || strings.Contains(text, "not-there") {
				t.Errorf("%s of their own: %d %s", w.operation, status, text)
			}
		}
	}
	if all, err := f.client.Bans(ctx, "203.0.113.2", ""); err != nil || len(all.Entries) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	f.until("events of others", func() bool { return strings.Contains(streams[1].texts(), "web-hidden") })
	if text := streams[0].texts(); !strings.Contains(text, "web-shown") || strings.Contains(text, "hidden") {
		t.Errorf("who sees some hosts is told %s", text)
	}
}
