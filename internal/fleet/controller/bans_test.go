package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/base/selector"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/hub"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// bearer is a host that bears bans: it keeps to what trust and wire say of them, and has a
// map in the place of a kernel.
type bearer struct {
	*agent
	conn *wire.Conn

	mutex    sync.Mutex
	at       wire.Living
	holds    map[string]borne  // by ID
	refuses  map[string]string // by what
	waiting  string
	messages int // of live
	asked    int
}

type borne struct {
	trust.Living
	incarnation int64
}

const bansText = "bans: {max: 20, for: 7d, widest: [24, 48]}\nexceptions: {who: [198.51.100.0/24], longest: 8h}\n"

// bear connects a host, which keeps the bans and allows that it receives until the stream ends.
func (a *agent) bear(has *bearer) *bearer {
	a.Helper()
	if has == nil {
		has = &bearer{holds: map[string]borne{}, refuses: map[string]string{}}
	}
	has.agent = a
	conn, err := wire.Dial(a.Context(), a.client.HTTP, a.client.Base)
	ok(a, err)
	a.Cleanup(conn.Cut)
	has.mutex.Lock()
	at := has.at
	has.mutex.Unlock()
	ok(a, conn.Send(a.Context(), &wire.Message{Hello: &wire.Hello{Version: "1.2", LanguageLevel: 1, Instance: a.instance, Labels: a.labels, Living: &at}}))
	has.conn = conn
	go has.obeyLiving(conn)
	return has
}

func (b *bearer) obeyLiving(conn *wire.Conn) {
	for {
		m, err := conn.Receive(context.Background())
		if err != nil {
			return
		}
		switch {
		case m.Trust != nil:
			if err := b.trust.Update(trust.Metadata{Roots: m.Trust.Roots, Timestamp: m.Trust.Timestamp, Snapshot: m.Trust.Snapshot, Targets: m.Trust.Targets}, time.Now()); err != nil {
				b.Log(b.host, err)
			}
		case m.Live != nil:
			b.mutex.Lock()
			b.messages++
			b.mutex.Unlock()
			if err := b.lives(m.Live); err != nil {
				b.Log(b.host, err)
				continue
			}
			if b.says() != nil {
				return
			}
		}
	}
}

// lives takes what came, and asks for what is missing before it.
func (b *bearer) lives(live *wire.Live) error {
	from, lowest := "", int64(-1)
	for {
		more := live.More
		if len(live.Envelope) == 0 {
			more = true
		} else {
			payload, seq, err := b.trust.Live(trust.KindBans, live.Envelope)
			if err != nil {
				return err
			}
			is, err := trust.ReadBans(payload, seq)
			if err != nil {
				return err
			}
			incarnation := b.trust.State().Incarnation
			b.mutex.Lock()
			switch {
			case is.Whole:
				for id, h := range b.holds {
					if h.incarnation == incarnation && id > is.From && (is.To == "" || id <= is.To) {
						delete(b.holds, id)
					}
				}
				if from = is.To; lowest < 0 || seq < lowest {
					lowest = seq
				}
				if !more { // and what came meanwhile
					b.at, more, from = wire.Living{Incarnation: incarnation, Seq: lowest}, true, ""
				}
			case b.at.Incarnation != incarnation || is.After > b.at.Seq:
				more = true // a gap
			default:
				b.at.Seq = max(b.at.Seq, seq)
			}
			if is.Whole || !more || is.After <= b.at.Seq {
				for _, e := range is.Entries {
					if s, _ := selector.Parse(e.Hosts); e.Hosts != "" && !s.Match(named(b.host, b.labels)) {
						continue
					}
					if delete(b.holds, e.ID); e.Kind == trust.LivingBan || e.Kind == trust.LivingAllow {
						b.holds[e.ID] = borne{e, incarnation}
					}
				}
			}
			b.mutex.Unlock()
		}
		if !more {
			return nil
		}
		b.mutex.Lock()
		at := b.at
		b.asked++
		b.mutex.Unlock()
		var err error
		if live, err = b.client.Living(context.Background(), at, from); err != nil {
			return err
		}
	}
}

func (b *bearer) says() error {
	b.mutex.Lock()
	m := &wire.LiveApplied{Living: b.at, Proved: time.Now(), Waiting: b.waiting}
	for id, h := range b.holds {
		if why := b.refuses[h.What]; why != "" {
			m.Refused = append(m.Refused, wire.NotLive{Id: id, Why: why})
		}
	}
	b.mutex.Unlock()
	return b.conn.Send(context.Background(), &wire.Message{LiveApplied: m})
}

// has is what a host holds, sorted.
func (b *bearer) has() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	var all []string
	for _, h := range b.holds {
		all = append(all, h.What)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func (b *bearer) will(have string) {
	b.Helper()
	b.until(b.host+" has "+have, func() bool { return b.has() == have })
}

func banned(t testing.TB, f *fleet, in api.NewHoldings, what ...string) *api.Held {
	t.Helper()
	for _, w := range what {
		in.Entries = append(in.Entries, api.NewHolding{What: w})
	}
	made, err := f.client.Ban(t.Context(), in)
	ok(t, err)
	return made
}

// standing is how many hosts are in which state.
func standing(all []api.HostStanding) string {
	n := map[api.LiveState]int{}
	for _, h := range all {
		n[h.State]++
	}
	var texts []string
	for _, s := range slices.Sorted(maps.Keys(n)) {
		texts = append(texts, fmt.Sprint(s, " ", n[s]))
	}
	return strings.Join(texts, ", ")
}

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
		"203.0.112.0/23": "fleet.yaml:4:1: 203.0.112.0/23 is wider than a /24", "2001:db8::/47": "is wider than a /48",
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
		"198.51.101.1 is not among those": let("198.51.101.1", "", 60), "for longer than 8h": let("198.51.100.1", "", 9*3600), "need an end": let("198.51.100.1", "", 0),
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

	// Lifted, of one selector and of all; it comes to who was away.
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
	f := newFleet(t, "example.net")
	f.text += bansText
	_, err := f.publish("input: {default: drop}\n")
	ok(t, err)
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
	f := newFleet(t, "example.net")
	f.text += bansText
	_, err := f.publish("input: {default: drop}\n")
	ok(t, err)
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

// TestOlderWhileItRuns: an older copy of the database is noticed by a controller that runs.
func TestOlderWhileItRuns(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	f.text += bansText
	_, err := f.publish("input: {default: drop}\n")
	ok(t, err)
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

// TestIncarnationBeforeItIsSigned: a controller that was killed when it had taken a new incarnation
// and signed nothing in it does not take the database of that for an older copy.
func TestIncarnationBeforeItIsSigned(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	f.text += bansText
	_, err := f.publish("input: {default: drop}\n")
	ok(t, err)
	ok(t, f.stop())
	f.tamper(`delete from audit where seq = (select audit_seq from fleet)`)
	f.tamper(`update fleet set audit_seq = audit_seq - 1, audit_hash = (select hash from audit where seq = audit_seq - 1)`)
	_, err = f.repository.Sign(trust.Signing{Level: 1, Restore: true, File: f.file("fleet.yaml", "", f.text), Parts: []trust.File{f.file("parts/10-base.yaml", "", "version: 1\n")}}, time.Now(), f.policy)
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
	f := newFleet(t, "example.net")
	f.text += bansText
	_, err := f.publish("input: {default: drop}\n")
	ok(t, err)
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

// TestBansOfSomeHosts: who has a role for some hosts bans on those, sees what is of them, and
// lifts what is of them alone.
func TestBansOfSomeHosts(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	f.text += bansText
	_, err := f.publish("input: {default: drop}\n")
	ok(t, err)
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
