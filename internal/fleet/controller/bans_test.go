package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/base/selector"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/hub"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// TestWaitingBehind: a host that can take nothing says why, and not that it has yet to answer.
func TestWaitingBehind(t *testing.T) {
	t.Parallel()
	s := stand{online: true, taken: taken{speaks: true, said: wire.LiveApplied{
		Living: wire.Living{Incarnation: 1, Seq: 4}, Waiting: "the rules are gone",
	}}}
	if state, why, _ := s.says(5, "", 1); state != api.LiveWaiting || why != "the rules are gone" {
		t.Errorf("it is %s: %s", state, why)
	}
	s.taken.said.Waiting = ""
	if state, _, _ := s.says(5, "", 1); state != api.LivePending {
		t.Errorf("it is %s", state)
	}
}

func TestBans(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	_, err := f.client.Ban(t.Context(), api.NewHoldings{Entries: []api.NewHolding{{What: "203.0.113.7"}}})
	if err == nil || !strings.Contains(err.Error(), "no bundle is published yet") {
		t.Errorf("a ban before any bundle: %v", err)
	}
	f.text += bansText
	_, err = f.publish("input: {default: drop}\n")
	ok(t, err)
	web, db := f.token(map[string]string{"role": "web"}, 2), f.token(map[string]string{"role": "db"}, 1)
	hosts := map[string]*bearer{}
	for name, token := range map[string]trust.Token{"web-1": web, "web-2": web, "db-1": db} {
		a, err := f.join(name, token)
		ok(t, err)
		hosts[name] = a.bear(nil)
	}
	made := banned(t, f, api.NewHoldings{Hosts: "role=web", ForSeconds: 3600, Reason: "ssh: <40> bad \u202e passwords"}, "203.0.113.7", "2001:db8::0/48")
	if len(made.Written) != 2 || made.Written[1].What != "2001:db8::/48" || made.Written[0].Expires.Sub(made.Written[0].Made) != time.Hour || !strings.HasPrefix(made.Written[0].Who, "operator:") {
		t.Errorf("%+v", made)
	}
	hosts["web-1"].will("2001:db8::/48 203.0.113.7")
	hosts["web-2"].will("2001:db8::/48 203.0.113.7")
	everywhere := banned(t, f, api.NewHoldings{}, "203.0.113.8")
	if e := everywhere.Written[0]; e.Expires.Sub(e.Made) != 7*24*time.Hour {
		t.Errorf("a ban without a time: %+v", e)
	}
	hosts["db-1"].will("203.0.113.8")
	f.until("all have answered", func() bool {
		is, err := f.client.Living(t.Context(), everywhere.Seq, "")
		ok(t, err)
		return is.Proved == 3
	})
	one, err := f.client.OneBan(t.Context(), made.Written[0].Id)
	ok(t, err)
	if standing(one.Hosts) != "proved 2" || one.Entry.Of != 2 || one.Entry.Proved != 2 {
		t.Errorf("%+v", one)
	}
	_, err = f.client.OneAllow(t.Context(), made.Written[0].Id)
	is404(t, "a ban among allows", err)

	// What the fleet does not let the controller do.
	for what, want := range map[string]string{
		"203.0.112.0/23": "fleet.yaml:4:1: 203.0.112.0/23 is larger than a /24", "2001:db8::/47": "is larger than a /48",
		"DE": "not an IP address", "203.0.113.9-": "", "fe80::1%eth0": "",
	} {
		made := banned(t, f, api.NewHoldings{}, what, "203.0.113.9")
		if len(made.Written) != 1 || len(made.Refused) != 1 || made.Refused[0].What != what || !strings.Contains(made.Refused[0].Why, want) {
			t.Errorf("%s: %+v", what, made)
		}
	}
	if made := banned(t, f, api.NewHoldings{ForSeconds: 8 * 24 * 3600}, "203.0.113.9"); len(made.Refused) != 1 || !strings.Contains(made.Refused[0].Why, "for at most 7d") {
		t.Errorf("eight days: %+v", made)
	}
	many := make([]string, 20)
	for i := range many {
		many[i] = fmt.Sprintf("192.0.2.%d", i)
	}
	var in api.NewHoldings
	for _, w := range many {
		in.Entries = append(in.Entries, api.NewHolding{What: w})
	}
	if _, err := f.client.Ban(t.Context(), in); err == nil || !strings.Contains(err.Error(), "fleet.yaml:4:1") || !strings.Contains(err.Error(), "20 bans") {
		t.Errorf("too many: %v", err)
	}
	for name, in := range map[string]api.NewHoldings{
		"nothing": {}, "a selector": {Hosts: "role=", Entries: []api.NewHolding{{What: "203.0.113.9"}}},
	} {
		if _, err := f.client.Ban(t.Context(), in); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if made := banned(t, f, api.NewHoldings{Reason: "\x1b[2J"}, "203.0.113.9"); len(made.Refused) != 1 {
		t.Errorf("a reason that clears screens: %+v", made)
	}

	// Who is let in.
	let := func(what, service string, seconds int64) string {
		made, err := f.client.Allow(t.Context(), api.NewHoldings{ForSeconds: seconds, Entries: []api.NewHolding{{What: what, Service: service}}})
		ok(t, err)
		if len(made.Refused) > 0 {
			return made.Refused[0].Why
		}
		return ""
	}
	for want, why := range map[string]string{
		"198.51.101.1 is not an address that": let("198.51.101.1", "", 60), "for longer than 8h": let("198.51.100.1", "", 9*3600), "needs an end": let("198.51.100.1", "", 0),
		"sssh": let("198.51.100.1", "sssh", 60), "": let("198.51.100.1", "ssh", 60),
	} {
		if !strings.Contains(why, want) {
			t.Errorf("%q does not say %q", why, want)
		}
	}
	hosts["db-1"].will("198.51.100.1 203.0.113.8 203.0.113.9")

	// A host that refuses one, and one that enforces none.
	hosts["web-1"].mutex.Lock()
	hosts["web-1"].refuses["203.0.113.20"] = "203.0.113.20 is in never-ban"
	hosts["web-1"].mutex.Unlock()
	hosts["web-2"].mutex.Lock()
	hosts["web-2"].waiting = "no policy runs"
	hosts["web-2"].mutex.Unlock()
	hosts["db-1"].conn.Cut()
	f.until("one is away", func() bool { return len(f.controller.hub.Online()) == 2 })
	made = banned(t, f, api.NewHoldings{}, "203.0.113.20")
	hosts["web-1"].will("198.51.100.1 2001:db8::/48 203.0.113.20 203.0.113.7 203.0.113.8 203.0.113.9")
	f.until("two have answered", func() bool {
		one, err = f.client.OneBan(t.Context(), made.Written[0].Id)
		ok(t, err)
		return standing(one.Hosts) == "offline 1, refused 1, waiting 1"
	})
	if why := one.Hosts[1].Reason; why != "203.0.113.20 is in never-ban" {
		t.Errorf("why not: %q", why)
	}

	// Lifted, of one selector and of all; it comes to whoever was away.
	lifted, err := f.client.Unban(t.Context(), api.Lift{What: []string{"203.0.113.0/24", "192.0.2.1"}, Hosts: "role = web", Reason: "it was us"})
	ok(t, err)
	if len(lifted.Lifted) != 1 || lifted.Lifted[0].What != "203.0.113.7" || !slices.Equal(lifted.NotThere, []string{"192.0.2.1"}) {
		t.Errorf("%+v", lifted)
	}
	hosts["web-2"].will("198.51.100.1 2001:db8::/48 203.0.113.20 203.0.113.8 203.0.113.9")
	_, err = f.client.Disallow(t.Context(), api.Lift{What: []string{"0.0.0.0/0"}, Service: "ssh"})
	ok(t, err)
	hosts["db-1"].agent.bear(hosts["db-1"])
	hosts["db-1"].will("203.0.113.20 203.0.113.8 203.0.113.9")
	all, err := f.client.Bans(t.Context(), "203.0.113.8/31", "")
	ok(t, err)
	if len(all.Entries) != 2 {
		t.Errorf("%+v", all)
	}
	_, err = f.client.OneBan(t.Context(), lifted.Lifted[0].Id)
	is404(t, "what was lifted", err)

	// What the controller knew when it was ended.
	hosts["web-1"].mutex.Lock()
	before := hosts["web-1"].asked
	hosts["web-1"].mutex.Unlock()
	ok(t, f.stop())
	f.run()
	for _, b := range hosts {
		b.agent.bear(b)
	}
	f.until("all are back", func() bool { return len(f.controller.hub.Online()) == 3 })
	banned(t, f, api.NewHoldings{}, "203.0.113.21")
	hosts["db-1"].will("203.0.113.20 203.0.113.21 203.0.113.8 203.0.113.9")
	hosts["web-1"].mutex.Lock()
	defer hosts["web-1"].mutex.Unlock()
	if n := hosts["web-1"].asked; n > before {
		t.Errorf("a host that had everything asked %d times", n-before)
	}
}

func is404(t testing.TB, what string, err error) {
	t.Helper()
	if f := (*wire.Failure)(nil); !errors.As(err, &f) || f.Kind != wire.KindNotFound {
		t.Errorf("%s: %v", what, err)
	}
}

// TestBansOfManyParts has a host come that is far behind, and get the whole in parts.
func TestBansOfManyParts(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	f.text += strings.Replace(bansText, "max: 20", "max: 20000", 1)
	_, err := f.publish("input: {default: drop}\n")
	ok(t, err)
	a, err := f.join("web-1", f.token(map[string]string{"role": "web"}, 1))
	ok(t, err)
	const number = 4500
	var in api.NewHoldings
	var want []string
	for i := range number {
		what := fmt.Sprintf("198.51.%d.%d", i/250, i%250)
		in.Entries, want = append(in.Entries, api.NewHolding{What: what, Reason: strings.Repeat("<", i%100)}), append(want, what)
	}
	_, err = f.client.Ban(t.Context(), in)
	ok(t, err)
	b := a.bear(nil) // it gets those that are in memory, or asks for the whole
	slices.Sort(want)
	b.until("a host has all", func() bool { return b.has() == strings.Join(want, " ") })
	b.conn.Cut()
	b.until("it is away", func() bool { return len(f.controller.hub.Online()) == 0 })
	_, err = f.client.Unban(t.Context(), api.Lift{What: want[1:]})
	ok(t, err)
	f.until("the controller has heard of it", func() bool {
		f.controller.living.mutex.Lock()
		defer f.controller.living.mutex.Unlock()
		return f.controller.living.at.Seq == 2*number-1
	})
	f.controller.living.mutex.Lock()
	f.controller.living.recent = nil // as if it had been away for long
	f.controller.living.mutex.Unlock()
	b.bear(b)
	b.will(want[0])
}

// TestOlderWhileItRuns: an older copy of the database is noticed by a controller that runs.
func TestOlderWhileItRuns(t *testing.T) {
	t.Parallel()
	f := newBanning(t)
	banned(t, f, api.NewHoldings{}, "203.0.113.1")
	f.tamper(`delete from change where revision > (select revision - 3 from fleet); update fleet set revision = revision - 3`)
	f.until("it is seen", func() bool {
		is, err := f.controller.Store.Fleet(t.Context())
		ok(t, err)
		return is.Restored && f.controller.view.Load().restored
	})
	if _, err := f.client.Ban(t.Context(), aBan("203.0.113.4", "")); err == nil || !strings.Contains(err.Error(), "the database was restored") {
		t.Error(err)
	}
}

// TestBansOfSomeHosts: who has a role for some hosts bans on those, sees what is of them, and
// lifts what is of them alone.
func TestBansOfSomeHosts(t *testing.T) {
	t.Parallel()
	f := newBanning(t)
	for host, env := range map[string]string{"web-1": "prod", "web-2": "test"} {
		_, err := f.join(host, f.token(map[string]string{"role": "web", "env": env}, 1))
		ok(t, err)
	}
	prod, err := selector.Parse("env=prod")
	ok(t, err)
	by := caller{Who: "token:ci\x1b[2J" + strings.Repeat("ä", 200), Role: api.Operator, Hosts: prod}
	ban := func(hosts, what string) *api.Held {
		made, err := f.controller.holdAll(t.Context(), by, trust.LivingBan, api.NewHoldings{Hosts: hosts, Entries: []api.NewHolding{{What: what}}})
		ok(t, err)
		return made
	}
	if e := ban("role=web or role=db", "203.0.113.1").Written[0]; e.Hosts != "(role=web or role=db) and env=prod" || len(e.Who) > mostWho || strings.Contains(e.Who, "\x1b") {
		t.Errorf("%+v", e)
	}
	if e := ban("", "203.0.113.2").Written[0]; e.Hosts != "env=prod" {
		t.Errorf("%+v", e)
	}
	all, other := banned(t, f, api.NewHoldings{}, "203.0.113.3").Written[0], banned(t, f, api.NewHoldings{Hosts: "env=test"}, "203.0.113.4").Written[0]
	for path, want := range map[string]int{"/api/v1/bans/" + all.Id: 200, "/api/v1/bans/" + other.Id: 404, "/api/v1/bans": 200, "/api/v1/living": 200} {
		status, _ := f.ask(by, "GET", path)
		if status != want {
			t.Errorf("%s answers %d", path, status)
		}
	}
	is, err := f.controller.standing(t.Context(), all.Seq, all.Id, "", prod)
	ok(t, err)
	if len(is.Hosts) != 1 || is.Hosts[0].Host != "web-1" {
		t.Errorf("%+v", is)
	}
	lifted, err := f.controller.liftAll(t.Context(), by, trust.LivingBan, trust.LivingUnban, api.Lift{What: []string{"203.0.113.0/24"}})
	ok(t, err)
	if len(lifted.Lifted) != 2 {
		t.Errorf("lifted: %+v", lifted)
	}
	left, err := f.client.Bans(t.Context(), "", "")
	ok(t, err)
	if len(left.Entries) != 2 {
		t.Errorf("left: %+v", left)
	}
}

// TestBehind: hosts that have left, or know no bans, hold no batch up.
func TestBehind(t *testing.T) {
	t.Parallel()
	var a applied
	a.init()
	now := time.Now()
	online := map[string]hub.Presence{}
	joins := func(host string, has *wire.Living) {
		online[host] = hub.Presence{}
		a.joins(host, has, now, now)
	}
	says := func(host string, seq int64) {
		a.says(host, &wire.LiveApplied{Living: wire.Living{Incarnation: 1, Seq: seq}}, now)
	}
	is := func(want bool) {
		t.Helper()
		if a.behind(online, 7) != want {
			t.Errorf("behind: %v", !want)
		}
	}
	is(false)
	for _, host := range []string{"a", "b", "c"} {
		joins(host, &wire.Living{Incarnation: 1, Seq: 6})
	}
	joins("old", nil)
	says("a", 7)
	is(true)
	delete(online, "c")
	is(false)
	says("b", 8)
	joins("c", &wire.Living{Incarnation: 1, Seq: 6})
	is(false)
}
