package controller

import (
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/wire"
)

const approvalText = bansText + `access:
- { who: "user:erika", role: admin }
- { who: "user:max", role: admin }
- { who: "user:otto", role: operator, hosts: env=prod }
- { who: "user:vera", role: viewer }
`

// awaiting is the request that an error says to wait.
func awaiting(t *testing.T, err error) api.Request {
	t.Helper()
	var waits *api.WaitingError
	if !errors.As(err, &waits) || waits.Request.State != api.RequestWaiting {
		t.Fatalf("it does not wait: %v", err)
	}
	return waits.Request
}

// approving is a fleet with two hosts, where a second person approves some things.
func approving(t *testing.T, what string) *fleet {
	t.Helper()
	f := newFleet(t, "example.net")
	for host, env := range map[string]string{"web-1": "prod", "web-2": "test"} {
		_, err := f.join(host, f.token(map[string]string{"env": env}, 1))
		ok(t, err)
	}
	f.text += approvalText + "approve: " + what + "\n"
	_, err := f.publish("input: {default: drop}\n")
	ok(t, err)
	return f
}

// bansNow are those that hold.
func (f *fleet) bansNow() string {
	f.Helper()
	all, err := f.client.Bans(f.Context(), "", "")
	ok(f, err)
	var out []string
	for _, e := range all.Entries {
		out = append(out, strings.Join(strings.Fields(e.What+" "+e.Hosts+" "+e.Who), " "))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// tamper changes the database behind the controller.
func (f *fleet) tamper(statement string, args ...any) {
	f.Helper()
	db, err := sql.Open("sqlite", strings.TrimPrefix(f.database, "sqlite:")+"?_pragma=busy_timeout(60000)")
	ok(f, err)
	defer db.Close()
	_, err = db.ExecContext(f.Context(), statement, args...)
	ok(f, err)
}

func aBan(what, hosts string) api.NewHoldings {
	return api.NewHoldings{Hosts: hosts, ForSeconds: 3600, Entries: []api.NewHolding{{What: what}}}
}

// TestUnsound: what no approval makes right is refused at once, and waits for nobody.
func TestUnsound(t *testing.T) {
	t.Parallel()
	f := approving(t, "[ban, unban, roll-out, token]")
	erika, ctx, long := f.logged("erika"), t.Context(), strings.Repeat("x", 1025)
	for name, ask := range map[string]func() error{
		"a reason to lift": func() error {
			_, err := erika.Unban(ctx, api.Lift{What: []string{"203.0.113.9"}, Reason: long})
			return err
		},
		"nothing to lift": func() error { _, err := erika.Unban(ctx, api.Lift{What: []string{""}}); return err },
		"nothing to ban":  func() error { _, err := erika.Ban(ctx, aBan("", "")); return err },
		"a token of no uses": func() error {
			return erika.CreateToken(ctx, api.NewToken{Id: "a", Secret: strings.Repeat("0", 64), Expires: time.Now().Add(time.Hour)})
		},
		"why a roll-out goes on": func() error { _, err := erika.Command(ctx, 1, api.Resume, long); return err },
	} {
		if err := ask(); kind(err) != wire.KindBadRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := erika.Ban(ctx, aBan("203.0.113.1", ""))
	is := awaiting(t, err)
	if _, err := erika.Refuse(ctx, is.Id, long); kind(err) != wire.KindBadRequest {
		t.Errorf("why it is refused: %v", err)
	}
	all, err := erika.Requests(ctx, true)
	ok(t, err)
	if len(all.Requests) != 1 || all.Requests[0].State != api.RequestWaiting {
		t.Errorf("%+v", all)
	}
}

// TestApproval: what fleet.yaml has a second person approve is done then, once, as whoever asked.
func TestApproval(t *testing.T) {
	t.Parallel()
	f := approving(t, "[ban, roll-out]")
	erika, maxim, otto, vera := f.logged("erika"), f.logged("max"), f.logged("otto"), f.logged("vera")
	ctx := t.Context()

	_, err := erika.Ban(ctx, aBan("203.0.113.1", ""))
	is := awaiting(t, err)
	if is.What != "ban" || is.Who != "user:erika" || is.Path != "/api/v1/bans" || f.bansNow() != "" {
		t.Errorf("%+v; %s holds", is, f.bansNow())
	}
	_, err = erika.Unban(ctx, api.Lift{What: []string{"203.0.113.9"}}) // which wants none
	ok(t, err)
	if _, err := otto.Ban(ctx, aBan("203.0.113.1", "role=")); kind(err) != wire.KindBadRequest {
		t.Errorf("what no approval makes right: %v", err)
	}

	for who, c := range map[string]*api.Client{"who asked": erika, "who asked, in another session": f.logged("Erika"), "an operator of some hosts": otto, "a viewer": vera} {
		want := wire.KindRole
		if who == "an operator of some hosts" {
			want = wire.KindNotFound
		}
		if _, err := c.Approve(ctx, is.Id, api.Approval{}); kind(err) != want {
			t.Errorf("%s approves: %v", who, err)
		}
	}
	if _, err := maxim.Approve(ctx, is.Id, api.Approval{Alone: true}); kind(err) != wire.KindRole {
		t.Errorf("alone elsewhere: %v", err)
	}
	if _, err := maxim.Approve(ctx, "0123456789abcdef", api.Approval{}); kind(err) != wire.KindNotFound {
		t.Errorf("an unknown one: %v", err)
	}
	seen, err := vera.Request(ctx, is.Id)
	ok(t, err)
	if string(seen.Body) != `{"entries":[{"what":"203.0.113.1"}],"for-seconds":3600}` {
		t.Errorf("a viewer is shown %s", seen.Body)
	}
	done, err := maxim.Approve(ctx, is.Id, api.Approval{Why: "as agreed"})
	ok(t, err)
	answer := api.Held{}
	if err := json.Unmarshal(done.Answer, &answer); err != nil || done.State != api.RequestDone || done.By != "user:max" || len(answer.Written) != 1 || f.bansNow() != "203.0.113.1 user:erika" {
		t.Errorf("%v %+v; %s holds", err, done, f.bansNow())
	}
	if _, err := maxim.Approve(ctx, is.Id, api.Approval{}); kind(err) != wire.KindTaken || !strings.Contains(err.Error(), "it is done by user:max since") {
		t.Errorf("approved twice: %v", err)
	}
	if _, err := erika.Refuse(ctx, is.Id, ""); kind(err) != wire.KindTaken {
		t.Errorf("refused afterwards: %v", err)
	}

	// Who may do it for the hosts that it is for may approve it, and sees it.
	_, err = erika.Ban(ctx, aBan("203.0.113.2", "env=prod and role=web"))
	some := awaiting(t, err)
	_, err = erika.Ban(ctx, aBan("203.0.113.3", "env=test"))
	others := awaiting(t, err)
	list, err := otto.Requests(ctx, true)
	ok(t, err)
	if len(list.Requests) != 1 || list.Requests[0].Id != some.Id {
		t.Errorf("an operator of some hosts sees %+v", list)
	}
	done, err = otto.Approve(ctx, some.Id, api.Approval{})
	ok(t, err)
	if done.State != api.RequestDone || !strings.Contains(f.bansNow(), "203.0.113.2 env=prod and role=web user:erika") {
		t.Errorf("%+v; %s holds", done, f.bansNow())
	}
	if _, err := otto.Refuse(ctx, others.Id, ""); kind(err) != wire.KindNotFound {
		t.Errorf("who may not know of it refuses: %v", err)
	}
	if _, err := vera.Refuse(ctx, others.Id, ""); kind(err) != wire.KindRole {
		t.Errorf("a viewer refuses: %v", err)
	}
	_, err = erika.Refuse(ctx, others.Id, "a mistake")
	ok(t, err)
	list, err = erika.Requests(ctx, true)
	ok(t, err)
	if i := slices.IndexFunc(list.Requests, func(r api.Request) bool { return r.Id == others.Id }); i < 0 || list.Requests[i].Asks != others.Asks || !strings.HasPrefix(others.Asks, "ban 203.0.113.3 ") {
		t.Errorf("what was refused is listed as %+v, asked was %q", list, others.Asks)
	}
	entries, err := f.controller.Store.Audit(ctx, 0, 1000)
	ok(t, err)
	for _, what := range []string{"request.create", "request.refuse"} {
		if !slices.ContainsFunc(entries, func(e store.Entry) bool {
			return e.What == what && strings.Contains(string(e.Diff), `"asks":"ban 203.0.113.3 `)
		}) {
			t.Errorf("the audit does not say what %s was about", what)
		}
	}
	if _, err := maxim.Approve(ctx, others.Id, api.Approval{}); kind(err) != wire.KindTaken {
		t.Errorf("approved after it was refused: %v", err)
	}

	// To stop a roll-out needs nobody else, to go on with it does.
	_, err = erika.Command(ctx, 1, api.Pause, "")
	ok(t, err)
	_, err = erika.Command(ctx, 1, api.Resume, "")
	resume := awaiting(t, err)
	done, err = maxim.Approve(ctx, resume.Id, api.Approval{})
	ok(t, err)
	if done.State != api.RequestDone {
		t.Errorf("%+v", done)
	}
	var told []string
	audit, err := f.client.Audit(ctx, -1, 100)
	ok(t, err)
	for _, e := range audit.Entries {
		if strings.HasPrefix(e.What, "request.") && strings.Contains(string(e.Diff), is.Id) {
			told = append(told, e.What+" "+e.Who+" "+string(e.Diff))
		}
	}
	if len(told) != 2 || !strings.HasPrefix(told[0], "request.create user:erika") || !strings.HasPrefix(told[1], "request.approve user:max") || !strings.Contains(told[1], `"who":"user:erika"`) {
		t.Errorf("the audit: %q", told)
	}
}

// TestApprovalIsOfAnother: nobody is two persons by what they were given, or gave.
func TestApprovalIsOfAnother(t *testing.T) {
	t.Parallel()
	f := approving(t, "ban")
	ctx := t.Context()
	erika, maxim := f.logged("erika"), f.logged("max")
	program := func(by *api.Client, name string) *api.Client {
		t.Helper()
		token, _, err := f.access(by, name, api.Admin, "")
		ok(t, err)
		return f.elsewhere(token)
	}
	person := func(by *api.Client, name string) *api.Client {
		t.Helper()
		link, session := api.NewSecret(), api.NewSecret()
		hash, err := api.SecretHash(link)
		ok(t, err)
		_, err = by.CreateLink(ctx, api.NewLink{User: name, Secret: hex.EncodeToString(hash[:]), Role: api.Admin, Expires: time.Now().Add(time.Hour)})
		ok(t, err)
		_, err = api.LogIn(ctx, "https://"+f.web, link, session, f.tls())
		ok(t, err)
		return f.elsewhere(session)
	}
	ofErika, ofRoot := program(erika, "a"), program(f.client, "b")
	ofToken := program(ofErika, "c")
	renamed, again, guest := person(erika, "emma"), person(ofToken, "elke"), person(f.client, "gast")
	for _, test := range []struct {
		what       string
		asks, says *api.Client
		fine       bool
	}{
		{"two people", erika, maxim, true},
		{"herself by a token that she made", erika, ofErika, false},
		{"two tokens of hers", ofErika, ofToken, false},
		{"a program for a person", erika, ofRoot, false},
		{"a name that she has made up", erika, renamed, false},
		{"a name made up by a token of hers, and of that one", erika, again, false},
		{"two names that she has made up", renamed, again, false},
		{"what her token asks", ofErika, erika, false},
		{"what a token of a token of hers asks", ofToken, erika, false},
		{"what her token asks, by somebody else", ofToken, maxim, true},
		{"what the name that she has made up asks", renamed, erika, false},
		{"a program that root made, by a person", ofRoot, erika, true},
		{"two people, one of whom root lets log in", guest, maxim, true},
		{"root for a person", erika, f.client, true},
		{"a person for root", f.client, erika, true},
		{"root for itself", f.client, f.client, false},
	} {
		_, err := test.asks.Ban(ctx, aBan("203.0.113.1", ""))
		is := awaiting(t, err)
		done, err := test.says.Approve(ctx, is.Id, api.Approval{})
		if test.fine && (err != nil || done.State != api.RequestDone) || !test.fine && kind(err) != wire.KindRole {
			t.Errorf("%s: %v %+v", test.what, err, done)
		}
		if !test.fine {
			_, err = test.asks.Refuse(ctx, is.Id, "")
			ok(t, err)
		}
	}
	// A token is not who made it, though it counts as them where somebody approves.
	watcher, _, err := f.access(erika, "watch", api.Viewer, "env=test")
	ok(t, err)
	watch := f.elsewhere(watcher)
	_, err = erika.Ban(ctx, aBan("203.0.113.3", ""))
	is := awaiting(t, err)
	if _, err := watch.Request(ctx, is.Id); kind(err) != wire.KindNotFound {
		t.Errorf("a token of some hosts sees what who made it asks: %v", err)
	}
	if _, err := watch.Refuse(ctx, is.Id, ""); kind(err) != wire.KindNotFound {
		t.Errorf("and refuses it: %v", err)
	}
	if status, err := f.client.Status(ctx); err != nil || status.Database != "" {
		t.Errorf("what somebody may not do is no matter of the database: %v %+v", err, status)
	}
	if _, err := erika.Approve(ctx, is.Id, api.Approval{}); kind(err) != wire.KindRole {
		t.Error(err)
	}
	if status, err := f.client.Status(ctx); err != nil || status.Database != "" {
		t.Errorf("nor is it what they may not approve: %v %+v", err, status)
	}

	_, err = f.client.Ban(ctx, aBan("203.0.113.4", ""))
	is = awaiting(t, err)
	done, err := f.client.Approve(ctx, is.Id, api.Approval{Alone: true})
	ok(t, err)
	if !done.Alone || done.State != api.RequestDone {
		t.Errorf("alone: %+v", done)
	}
	_, err = ofRoot.Ban(ctx, aBan("203.0.113.5", ""))
	is = awaiting(t, err)
	if _, err := f.client.Approve(ctx, is.Id, api.Approval{Alone: true}); kind(err) != wire.KindRole {
		t.Errorf("alone for another: %v", err)
	}
}

// TestApprovalAsOfNow: what was asked for is done with the rights that who asked has when it is
// approved, and is what was asked for.
func TestApprovalAsOfNow(t *testing.T) {
	t.Parallel()
	f := approving(t, "[ban, access]")
	ctx := t.Context()
	erika, maxim, otto := f.logged("erika"), f.logged("max"), f.logged("otto")
	approve := func(what, id string, state api.RequestState, why string) {
		t.Helper()
		done, err := maxim.Approve(ctx, id, api.Approval{})
		ok(t, err)
		if done.State != state || !strings.Contains(done.Failure, why) {
			t.Errorf("%s: %+v", what, done)
		}
	}
	_, err := otto.Ban(ctx, aBan("203.0.113.1", ""))
	is := awaiting(t, err)
	ok(t, otto.EndSession(ctx)) // who goes home meant it anyway
	approve("asked before the end of a session", is.Id, api.RequestDone, "")
	if f.bansNow() != "203.0.113.1 env=prod user:otto" {
		t.Error(f.bansNow())
	}

	otto = f.logged("otto")
	_, err = otto.Ban(ctx, aBan("203.0.113.2", ""))
	is = awaiting(t, err)
	f.text = strings.Replace(f.text, "user:otto", "user:nobody", 1)
	_, err = f.publish("input: {default: drop}\n# 2\n")
	ok(t, err)
	approve("the role is withdrawn", is.Id, api.RequestFailed, "has no role here")

	token := api.NewSecret()
	hash, err := api.SecretHash(token)
	ok(t, err)
	access := store.Access{ID: api.AccessID(hash), Kind: store.AccessToken, Secret: hash, Who: "token:ci", Role: "operator", Expires: time.Now().Add(time.Hour)}
	ok(t, f.controller.Store.CreateAccess(ctx, "operator:root", access))
	ci := f.elsewhere(token)
	_, err = ci.Ban(ctx, aBan("203.0.113.3", ""))
	is = awaiting(t, err)
	ok(t, f.client.WithdrawAccess(ctx, access.ID))
	over, err := f.client.Request(ctx, is.Id)
	ok(t, err)
	if over.State != api.RequestRefused || !strings.HasPrefix(over.By, "operator:") || len(over.Body) > 0 || over.Asks != is.Asks || over.Asks == "ban" {
		t.Errorf("its token was withdrawn: %+v", over)
	}

	_, err = erika.Ban(ctx, aBan("203.0.113.4", ""))
	is = awaiting(t, err)
	f.tamper(`update request set state = 'approved', decided = 1 where id = ?`, is.Id)
	if now, err := erika.Request(ctx, is.Id); err != nil || now.State != api.RequestFailed || !strings.Contains(now.Failure, "the controller ended while it was done") {
		t.Errorf("a controller that was killed meanwhile: %v %+v", err, now)
	}
	f.tamper(`update request set state = 'waiting', decided = 0 where id = ?`, is.Id)
	row, err := f.controller.Store.Request(ctx, is.Id)
	ok(t, err)
	row.Body = []byte(strings.Replace(string(row.Body), "113.4", "113.5", 1))
	if row.Sum() == row.ID {
		t.Error("another body has the same id")
	}
	f.tamper(`update request set body = ? where id = ?`, row.Body, is.Id)
	if _, err := maxim.Approve(ctx, is.Id, api.Approval{}); kind(err) != wire.KindRole || !strings.Contains(err.Error(), "somebody has changed it in the database") {
		t.Errorf("a body that was changed: %v", err)
	}
	f.tamper(`update request set expires = 1 where id = ?`, is.Id)
	if now, err := erika.Request(ctx, is.Id); err != nil || now.State != api.RequestExpired {
		t.Errorf("%v %+v", err, now)
	}
	for range 21 {
		_, err = erika.Ban(ctx, aBan("203.0.113.6", ""))
	}
	if kind(err) != wire.KindBadRequest || !strings.Contains(err.Error(), "20 requests of user:erika wait") {
		t.Errorf("without an end: %v", err)
	}
	if _, _, err := f.access(maxim, "ci", api.Viewer, ""); awaiting(t, err).What != "access" {
		t.Error(err)
	}
	if strings.Contains(f.bansNow(), "203.0.113.2") || strings.Contains(f.bansNow(), "203.0.113.3") || strings.Contains(f.bansNow(), "203.0.113.5") {
		t.Error(f.bansNow())
	}
}
