package controller

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/base/selector"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
	"sluice/internal/language/policy"
)

// TestApprovedOnce: of many who approve the same at two controllers, one has it done.
func TestApprovedOnce(t *testing.T) {
	t.Parallel()
	f := approving(t, "publish")
	ctx := t.Context()
	second := f.second()
	erika := f.logged("erika")
	maxim := f.logged("max")
	socket := f.client
	f.client = erika
	_, err := f.publish("input: {default: drop}\n# 2\n")
	f.client = socket
	is := awaiting(t, err)
	before, err := f.client.Rollouts(ctx, 100)
	ok(t, err)
	elsewhere := second.logged("max")
	var done sync.Map
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			_, err := []*api.Client{maxim, elsewhere}[i%2].Approve(ctx, is.Id, api.Approval{})
			done.Store(i, err)
		})
	}
	all.Wait()
	fine := 0
	for i := range 8 {
		err, _ := done.Load(i)
		if err == nil {
			fine++
		} else if kind(err.(error)) != wire.KindTaken {
			t.Error(err)
		}
	}
	after, err := f.client.Rollouts(ctx, 100)
	ok(t, err)
	if fine != 1 || len(after) != len(before)+1 {
		t.Errorf("%d approved it, and %d roll-outs began", fine, len(after)-len(before))
	}
}

// TestEachApproval: what the document says to want approval fleet.yaml can say, and has a body
// that can wait.
func TestEachApproval(t *testing.T) {
	t.Parallel()
	var names []string
	for pattern, o := range api.Operations() {
		_, known := suspendable(o.ID)
		if known != (o.Approve != "") {
			t.Errorf("%s: approval %q, and a body is known: %v", pattern, o.Approve, known)
		}
		if o.Approve != "" {
			names = append(names, o.Approve)
			if strings.HasPrefix(pattern, "GET") || o.Role == api.Viewer {
				t.Errorf("%s changes nothing", pattern)
			}
		}
	}
	slices.Sort(names)
	if want := slices.Sorted(slices.Values(policy.Approvals)); !slices.Equal(slices.Compact(names), want) {
		t.Errorf("the document says %q, and fleet.yaml %q", names, want)
	}
	f := newFleet(t, "example.net")
	_, err := f.join("web-1", f.token(map[string]string{"env": "prod"}, 1))
	ok(t, err)
	prod, err := selector.Parse("env=prod")
	ok(t, err)
	who := caller{Who: "user:a", Role: api.Admin, Hosts: prod, session: "a"}
	for _, test := range []struct {
		of   concern
		want bool
	}{
		{concern{}, false},
		{concern{hosts: prod}, true},
		{concern{named: []string{"web-1"}}, true},
		{concern{named: []string{"web-1", "web-9"}}, false},
		{concern{labels: map[string]string{"env": "prod"}}, true},
		{concern{labels: map[string]string{}}, false},
	} {
		if got := f.controller.covers(who, test.of); got != test.want {
			t.Errorf("%+v: %v", test.of, got)
		}
	}
}

// TestHostWaits: a host that a token lets in when a person approves it waits for that, also while
// the controller starts again, and has no rights before.
func TestHostWaits(t *testing.T) {
	t.Parallel()
	f := approving(t, "ban")
	ctx := t.Context()
	token, err := trust.NewToken(f.repository.Root(), []string{f.address}, map[string]string{"env": "prod"})
	ok(t, err)
	ok(t, f.client.CreateToken(ctx, api.NewToken{Id: "a", Secret: trust.SecretHash(token.Secret), Labels: token.Labels, Uses: 3, Expires: time.Now().Add(time.Hour), Approve: true}))
	_, err = f.join("web-3", token)
	if kind(err) != wire.KindPending || !strings.Contains(err.Error(), "host web-3, key ") {
		t.Fatal(err)
	}
	f.keepWeb = true
	ok(t, f.stop())
	f.run()
	erika, otto := f.logged("erika"), f.logged("otto")
	list, err := erika.Requests(ctx, false)
	ok(t, err)
	if len(list.Requests) != 1 || list.Requests[0].What != "enrol" || list.Requests[0].Who != "host:web-3" || f.states()["web-3"].Host != "" {
		t.Fatalf("%+v", list)
	}
	id := list.Requests[0].Id
	if seen, err := otto.Requests(ctx, false); err != nil || len(seen.Requests) != 1 {
		t.Errorf("an operator of hosts with its labels sees %v %+v", err, seen)
	}
	if _, err := otto.Approve(ctx, id, api.Approval{}); kind(err) != wire.KindRole {
		t.Errorf("an operator lets it in: %v", err)
	}
	program, _, err := f.access(f.client, "ci", api.Admin, "")
	ok(t, err)
	if _, err := f.elsewhere(program).Approve(ctx, id, api.Approval{}); kind(err) != wire.KindRole {
		t.Errorf("a program lets it in: %v", err)
	}
	testing, _, err := f.access(f.client, "ci", api.Admin, "env=test")
	ok(t, err)
	if _, err := f.elsewhere(testing).Request(ctx, id); kind(err) != wire.KindNotFound {
		t.Errorf("an admin of other hosts sees it: %v", err)
	}
	let, err := erika.Approve(ctx, id, api.Approval{})
	ok(t, err)
	if let.State != api.RequestApproved {
		t.Errorf("%+v", let)
	}
	if _, err := f.join("web-3", token); kind(err) != wire.KindPending { // with another key
		t.Errorf("another host of that name: %v", err)
	}
	tokens, err := f.client.Tokens(ctx)
	ok(t, err)
	if !slices.ContainsFunc(tokens.Tokens, func(t api.Token) bool { return t.Id == "a" && t.Approve && t.Used == 0 }) {
		t.Errorf("%+v", tokens)
	}
}
