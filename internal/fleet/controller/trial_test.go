package controller

import (
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/rollout"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/language/policy"
)

// did is what the audit says that somebody did, the newest last.
func (f *fleet) did(who string) (all []string) {
	f.Helper()
	ok(f, f.controller.Store.EachEntry(f.Context(), 0, func(e store.Entry) error {
		if e.Who == who {
			all = append(all, e.What)
		}
		return nil
	}))
	return all
}

// TestTriedFirst: of what can wait for approval nothing does that its operation would refuse now,
// and what waits changes nothing before it is approved, and is done then. Each operation of the
// document that can wait has a row.
func TestTriedFirst(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(numbered(0, 200)))
	}))
	defer server.Close()
	url, ctx := server.URL+"/list.txt", t.Context()
	f := newFleet(t, "example.net")
	for _, host := range []string{"web-1", "web-2"} {
		a, err := f.join(host, f.token(map[string]string{"env": "prod"}, 1))
		ok(t, err)
		go a.obey(a.stream(nil))
	}
	text := f.text + approvalText + "approve: [" + strings.Join(policy.Approvals, ", ") + "]\nsigning: controller\nsets: {vms: {guests: app, within: [10.30.0.0/16]}}\nroll-out: {stages: [100%], settle: SETTLE}\n"
	sign := func(settle string) int64 {
		t.Helper()
		signed, err := f.repository.Sign(trust.Signing{Level: 1, File: f.file("fleet.yaml", "", strings.Replace(text, "SETTLE", settle, 1)), Parts: []trust.File{
			f.file("parts/10-base.yaml", "", "version: 1\nsets: {scanners: {url: \""+url+"\", live: true}}\ninput: {default: drop, rules: [drop from scanners]}\n"),
		}, Lists: []trust.File{f.file(trust.URLLists+"/"+policy.SignedList("scanners", url), "", numbered(0, 190))}}, time.Now(), f.policy)
		ok(t, err)
		return signed.Bundle.Number
	}
	_, err := f.give(sign("none"))
	ok(t, err)
	f.until("the list", func() bool {
		all, err := f.client.Lists(ctx)
		ok(t, err)
		return len(all.Lists) == 1 && all.Lists[0].Sha256 == trust.HashOf([]byte(numbered(0, 200)))
	})
	f.until("the first roll-out is done", func() bool {
		all, err := f.client.Rollouts(ctx, 1)
		ok(t, err)
		return all[0].State.Phase == rollout.Done
	})

	erika, maxim, socket := f.logged("erika"), f.logged("max"), f.client
	soon := time.Now().Add(time.Hour)
	guest := api.NewGuest{Host: "web-1", Interface: "tap0", Addresses: []netip.Addr{netip.MustParseAddr("10.30.0.1")}, Labels: map[string]string{"app": "shop"}}
	elsewhere := guest
	elsewhere.Addresses = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	labels := func(by trust.Signer) []byte {
		t.Helper()
		envelope, err := trust.SealLabels(trust.LabelOrder{Fleet: "example.net", Host: "web-1", Number: time.Now().UnixMilli(), Expires: soon, Labels: map[string]string{"env": "test"}}, by)
		ok(t, err)
		return envelope
	}
	give := func(number int64) error {
		f.client = erika
		defer func() { f.client = socket }()
		_, err := f.give(number)
		return err
	}
	lift := func(what string) api.Lift { return api.Lift{What: []string{what}} }
	rows := map[string]bool{}
	draft, err := f.controller.Store.Propose(ctx, store.Draft{ID: "a", Who: "user:max", Bundle: 1, Texts: map[string]string{"parts/20.yaml": "version: 1\n"}})
	ok(t, err)
	f.controller.Sign = func(context.Context, string) (*api.Publish, error) {
		p := f.put(sign("2h"))
		return &p, nil
	}
	for _, row := range []struct {
		operation    string
		wrong, right func() error
	}{
		{"publish", func() error {
			m, err := f.repository.Metadata()
			ok(t, err)
			_, err = erika.Publish(ctx, api.Publish{Targets: m.Targets, Bundle: 99})
			return err
		}, func() error { return give(sign("1h")) }},
		{"command", func() error { _, err := erika.Command(ctx, 1, api.Resume, ""); return err }, func() error {
			_, err := erika.Command(ctx, 2, api.Pause, "") // which waits for nobody
			ok(t, err)
			_, err = erika.Command(ctx, 2, api.Resume, "")
			return err
		}},
		{
			"ban", func() error { _, err := erika.Ban(ctx, aBan("203.0.0.0/8", "")); return err },
			func() error { _, err := erika.Ban(ctx, aBan("203.0.113.1", "")); return err },
		},
		{
			"unban", func() error { _, err := erika.Unban(ctx, lift("203.0.113.2")); return err },
			func() error { _, err := erika.Unban(ctx, lift("203.0.113.1")); return err },
		},
		{
			"allow", func() error { _, err := erika.Allow(ctx, aBan("203.0.113.1", "")); return err },
			func() error { _, err := erika.Allow(ctx, aBan("198.51.100.1", "")); return err },
		},
		{
			"disallow", func() error { _, err := erika.Disallow(ctx, lift("198.51.100.2")); return err },
			func() error { _, err := erika.Disallow(ctx, lift("198.51.100.1")); return err },
		},
		{
			"putGuest", func() error { _, err := erika.PutGuest(ctx, "vm-1", elsewhere); return err },
			func() error { _, err := erika.PutGuest(ctx, "vm-1", guest); return err },
		},
		{"removeGuest", func() error { return erika.RemoveGuest(ctx, "vm-2") }, func() error { return erika.RemoveGuest(ctx, "vm-1") }},
		{
			"refreshList", func() error { _, err := erika.RefreshList(ctx, "others", api.ListRefresh{}); return err },
			func() error { _, err := erika.RefreshList(ctx, "scanners", api.ListRefresh{}); return err },
		},
		{
			"undoList", func() error { _, err := erika.UndoList(ctx, "others"); return err },
			func() error { _, err := erika.UndoList(ctx, "scanners"); return err },
		},
		{
			"setLabels", func() error { _, err := erika.SetLabels(ctx, "web-1", labels(newKey(t))); return err },
			func() error { _, err := erika.SetLabels(ctx, "web-1", labels(f.policy)); return err },
		},
		{"createToken", func() error {
			return erika.CreateToken(ctx, api.NewToken{Id: "a", Secret: newSecret(t), Uses: 1, Expires: time.Now().Add(-time.Hour)})
		}, func() error {
			return erika.CreateToken(ctx, api.NewToken{Id: "a", Secret: newSecret(t), Uses: 1, Expires: soon})
		}},
		{"createAccess", func() error {
			_, err := erika.CreateAccess(ctx, api.NewAccess{Name: "ci", Secret: newSecret(t), Role: "root", Expires: soon})
			return err
		}, func() error {
			_, err := erika.CreateAccess(ctx, api.NewAccess{Name: "ci", Secret: newSecret(t), Role: api.Viewer, Expires: soon})
			return err
		}},
		{"createLink", func() error {
			_, err := erika.CreateLink(ctx, api.NewLink{User: "a", Secret: newSecret(t), Expires: time.Now().Add(48 * time.Hour)})
			return err
		}, func() error {
			_, err := erika.CreateLink(ctx, api.NewLink{User: "a", Secret: newSecret(t), Expires: soon})
			return err
		}},
		{
			"rollOutDraft", func() error { _, err := erika.RollOutDraft(ctx, "b", ""); return err },
			func() error { _, err := erika.RollOutDraft(ctx, draft.ID, ""); return err },
		},
		{"revoke", func() error { return erika.Revoke(ctx, "web-9", "") }, func() error { return erika.Revoke(ctx, "web-2", "") }},
	} {
		rows[row.operation] = true
		before := len(f.did("user:erika"))
		if waits := (*api.WaitingError)(nil); errors.As(row.wrong(), &waits) || len(f.did("user:erika")) != before {
			t.Errorf("%s: what is wrong waits: %+v, and did %v", row.operation, waits, f.did("user:erika")[before:])
		}
		is := awaiting(t, row.right())
		if did := f.did("user:erika"); did[len(did)-1] != "request.create" || len(did) > before+1 && row.operation != "command" {
			t.Errorf("%s: before it is approved it did %v", row.operation, did[before:])
		}
		done, err := maxim.Approve(ctx, is.Id, api.Approval{})
		ok(t, err)
		if did := f.did("user:erika"); done.State != api.RequestDone || did[len(did)-1] == "request.create" && !strings.HasSuffix(row.operation, "List") {
			t.Errorf("%s: %+v; it did %v", row.operation, done, did[before:])
		}
	}
	for _, o := range api.Operations() {
		if rows[o.ID] != (o.Approve != "") {
			t.Errorf("%s can wait for %q, and has a row: %v", o.ID, o.Approve, rows[o.ID])
		}
	}
}

// TestApprovedLater: what somebody makes for some time is good for that time from its approval on.
func TestApprovedLater(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	f.ahead = &atomic.Int64{}
	f.text += approvalText + "approve: [token, access]\n"
	_, err := f.publish("input: {default: drop}\n")
	ok(t, err)
	erika, maxim, ctx := f.logged("erika"), f.logged("max"), t.Context()
	ends, link := time.Now().Add(15*time.Minute), api.NewSecret()
	hash, err := api.SecretHash(link)
	ok(t, err)
	_, err = erika.CreateAccess(ctx, api.NewAccess{Name: "ci", Secret: newSecret(t), Role: api.Viewer, Expires: ends})
	access := awaiting(t, err)
	_, err = erika.CreateLink(ctx, api.NewLink{User: "vera", Secret: hex.EncodeToString(hash[:]), Expires: ends})
	login := awaiting(t, err)
	enrols := awaiting(t, erika.CreateToken(ctx, api.NewToken{Id: "a", Secret: newSecret(t), Uses: 1, Expires: ends}))
	const wait = 30 * time.Minute
	f.ahead.Store(int64(wait))
	for _, is := range []api.Request{access, login, enrols} {
		if done, err := maxim.Approve(ctx, is.Id, api.Approval{}); err != nil || done.State != api.RequestDone {
			t.Fatalf("%v: %+v", err, done)
		}
	}
	all, err := f.client.Accesses(ctx)
	ok(t, err)
	made := 0
	for _, a := range all.Access {
		if a.Kind != api.AccessKindSession {
			made++
			if a.Expires.Before(ends.Add(wait)) {
				t.Errorf("%s is good until %s", a.Who, a.Expires)
			}
		}
	}
	tokens, err := f.client.Tokens(ctx)
	ok(t, err)
	if made != 2 || len(tokens.Tokens) != 1 || tokens.Tokens[0].Expires.Before(ends.Add(wait)) {
		t.Errorf("%+v %+v", all, tokens)
	}
	_, err = api.LogIn(ctx, "https://"+f.web, link, api.NewSecret(), f.tls())
	ok(t, err)
}
