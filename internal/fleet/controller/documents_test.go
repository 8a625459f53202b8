package controller

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
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

// listener is a host that keeps the members and guests that it receives, and proves them.
type listener struct {
	*agent

	mutex    sync.Mutex
	sets     map[string]string
	guests   map[string]trust.Guest
	messages int // of what is desired
	pushed   int // texts that came with them
	fetched  int
	report   wire.Report
	silent   bool // it proves nothing
	conn     *wire.Conn
	ended    error
}

// listens joins a host and has it listen.
func (f *fleet) listens(host string, labels map[string]string) *listener {
	f.Helper()
	a, err := f.join(host, f.token(labels, 1))
	ok(f, err)
	l := &listener{agent: a, sets: map[string]string{}, report: wire.Report{State: wire.StateNone}}
	l.connect()
	return l
}

func (l *listener) connect() {
	l.conn = l.stream(&l.report)
	go l.listen()
}

func (l *listener) listen() {
	kept := map[string][]byte{}
	blob := func(d *wire.Desired, hash string, size int64) []byte {
		for _, b := range d.Blobs {
			kept[wire.Hash(b)] = b
		}
		if kept[hash] == nil && size > 0 {
			l.fetched++
			text, err := l.client.Blob(context.Background(), hash, size, nil)
			if l.Context().Err() != nil { // the test is over
				runtime.Goexit()
			}
			if err != nil {
				l.Errorf("%s: %v", l.host, err)
			}
			kept[hash] = text
		}
		return kept[hash]
	}
	open := func(d *wire.Desired, kind string, at *wire.Document) []byte {
		payload, _, err := l.trust.Live(kind, blob(d, at.Sha256, at.Size))
		if err != nil || wire.Hash(payload) != at.Content {
			l.Errorf("%s: %s: %v", l.host, kind, err)
		}
		return payload
	}
	for {
		m, err := l.conn.Receive(context.Background())
		if err != nil {
			l.mutex.Lock()
			l.ended = err
			l.mutex.Unlock()
			return
		}
		if m.Trust != nil {
			_ = l.trust.Update(trust.Metadata{Roots: m.Trust.Roots, Timestamp: m.Trust.Timestamp, Snapshot: m.Trust.Snapshot, Targets: m.Trust.Targets}, time.Now())
		}
		d := m.Desired
		if d == nil || d.Bundle == 0 {
			continue
		}
		l.mutex.Lock()
		l.messages++
		l.pushed += len(d.Blobs)
		l.report = wire.Report{Order: d.Order, Rollout: d.Rollout, Bundle: d.Bundle, Running: d.Bundle, State: wire.StateConfirmed, Proved: time.Now()}
		if d.Members != nil && d.Members.Content != l.report.Members {
			members := must(trust.ReadMembers(open(d, trust.KindMembers, d.Members)))
			l.sets = map[string]string{}
			for name, c := range members.Sets {
				l.sets[name] = strings.Join(must(c.Read(blob(d, c.SHA256, c.Size))), " ")
			}
			l.report.Members = d.Members.Content
		}
		if d.Guests != nil {
			l.guests = must(trust.ReadGuests(open(d, trust.KindGuests, d.Guests), l.host)).Guests
			l.report.Guests = d.Guests.Content
		}
		report, silent := l.report, l.silent
		l.mutex.Unlock()
		if !silent {
			_ = l.conn.Send(context.Background(), &wire.Message{Report: &report})
		}
	}
}

// has says what a host holds of all sets, and its guests.
func (l *listener) has() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	var guests []string
	for id, g := range l.guests {
		guests = append(guests, fmt.Sprint(id, "@", g.Interface, g.Addresses))
	}
	slices.Sort(guests)
	return fmt.Sprint(l.sets, guests)
}

// cut is why the stream has ended, nil while it goes on.
func (l *listener) cut() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.ended
}

func (l *listener) heard() int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.messages
}

func (l *listener) awaits(want string) {
	l.Helper()
	defer func() {
		if l.Failed() {
			l.Logf("%s holds %s after %d messages, and its stream ended by %v", l.host, l.has(), l.heard(), l.cut())
		}
	}()
	l.until(l.host+" has "+want, func() bool {
		if l.has() != want {
			time.Sleep(20 * time.Millisecond)
			return false
		}
		return true
	})
}

// given signs parts, by their selectors, and begins their roll-out, to all hosts at once.
func (f *fleet) given(parts map[string]string) {
	f.Helper()
	f.text += "roll-out: {stages: [100%], settle: none}\n"
	s := trust.Signing{Level: 1, File: f.file("fleet.yaml", "", f.text)}
	for selector, text := range parts {
		head := "version: 1\n"
		if selector != "" {
			head += "hosts: " + selector + "\n"
		}
		s.Parts = append(s.Parts, f.file(fmt.Sprintf("parts/%d.yaml", len(s.Parts)), selector, head+text))
	}
	signed, err := f.repository.Sign(s, time.Now(), f.policy)
	ok(f, err)
	_, err = f.give(signed.Bundle.Number)
	ok(f, err)
}

// TestMembers: sets by hosts hold the addresses of hosts, within their bounds, signed, and
// hosts hear of those that their parts name.
func TestMembers(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	f.text += "sets:\n  web: {hosts: role=web, within: [203.0.113.0/24]}\n  db: {hosts: role=db, within: [203.0.113.0/24]}\n  all: {union: [web, db]}\n  unused: {hosts: role=web, within: [203.0.113.0/24]}\n"
	f.addresses = map[string][]netip.Addr{
		"web-1": {netip.MustParseAddr("203.0.113.5"), netip.MustParseAddr("198.51.100.5")}, // of which one is outside
		"web-2": {netip.MustParseAddr("203.0.113.6")},
	}
	web, db := map[string]string{"role": "web"}, map[string]string{"role": "db"}
	a, c := f.listens("web-1", web), f.listens("db-1", db)
	f.given(map[string]string{"": "input: {default: drop} # but unused\n", "role=web": "input: {rules: [allow ssh from web]}\n", "role=db": "input: {rules: [allow ssh from all]}\n"})
	a.awaits("map[web:203.0.113.5] []")
	c.awaits("map[db: web:203.0.113.5] []")
	b := f.listens("web-2", web)
	a.awaits("map[web:203.0.113.5 203.0.113.6] []")
	// The next stream of a host is another one's end: it must not be greeted first.
	f.until("web-2 is connected", func() bool { return f.states()["web-2"].Online })
	moved, err := wire.Dial(t.Context(), b.client.HTTP, b.client.Base)
	ok(t, err)
	defer moved.Cut()
	ok(t, moved.Send(t.Context(), &wire.Message{Hello: &wire.Hello{Version: "1", Instance: b.instance, Addresses: []netip.Addr{netip.MustParseAddr("203.0.113.7")}}}))
	a.awaits("map[web:203.0.113.5 203.0.113.7] []")
	ok(t, f.client.Revoke(t.Context(), "web-2", ""))
	a.awaits("map[web:203.0.113.5] []")
	content := a.report.Members
	a.conn.Cut()
	ok(t, f.stop())
	f.run()
	d, err := a.client.Desired(t.Context())
	if err != nil || d.Members.Content != content {
		t.Errorf("a controller that begins makes other members: %v, %v", d, err)
	}
}

// TestGuests: the hosts concerned hear of a guest, each once, and no other host does; they
// are told of what they do not have, and no more.
func TestGuests(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	f.text += "sets:\n  api: {guests: app=api, within: [10.30.0.0/16]}\n  pg: {guests: app=postgres, within: [10.30.0.0/16]}\n"
	hosts := map[string]*listener{}
	for _, host := range []string{"hv-1", "hv-2", "hv-3"} {
		hosts[host] = f.listens(host, map[string]string{"role": "hypervisor"})
	}
	hosts["web-1"] = f.listens("web-1", map[string]string{"role": "web"})
	hosts["other-1"] = f.listens("other-1", map[string]string{"role": "other"})
	f.given(map[string]string{
		"": "input: {default: drop}\n", "role=hypervisor": "guests: {enforce: forward}\nforward: {default: drop, rules: [allow any from guests to any]}\n",
		"role=web": "input: {rules: [allow ssh from api]}\n",
	})
	for _, l := range hosts {
		f.until(l.host+" has the bundle", func() bool { return l.heard() > 0 })
	}
	f.until("all are proved", func() bool { return must(f.client.Hosts(t.Context(), "")).Proved == len(hosts) })
	count := map[string]int{}
	heard := func(what string, by ...string) {
		t.Helper()
		for host, l := range hosts {
			want := count[host]
			if slices.Contains(by, host) {
				want++
			}
			if got := l.heard(); got != want {
				t.Errorf("%s: %s heard %d messages, not %d", what, host, got, want)
			}
			count[host] = l.heard()
		}
	}
	for host, l := range hosts {
		count[host] = l.heard()
	}
	put := func(id, host, app, address string) *api.Guest {
		t.Helper()
		g, err := f.client.PutGuest(t.Context(), id, api.NewGuest{Host: host, Interface: "tap-" + id, Addresses: []netip.Addr{netip.MustParseAddr(address)}, Labels: map[string]string{"app": app}})
		ok(t, err)
		return g
	}
	proved := func(id string, concerned int) {
		t.Helper()
		f.until(id+" is proved", func() bool {
			g, err := f.client.Guest(t.Context(), id)
			ok(t, err)
			return g.Proved && g.Concerned == concerned
		})
	}
	if g := put("vm-1", "hv-1", "api", "10.30.0.5"); g.Proved || !slices.Equal(g.Waiting, []string{"hv-1", "web-1"}) {
		t.Errorf("%+v", g)
	}
	proved("vm-1", 2)
	heard("a new guest", "hv-1", "web-1")
	if got := hosts["hv-1"].has(); got != "map[] [vm-1@tap-vm-1[10.30.0.5]]" {
		t.Error(got)
	}
	if got := hosts["web-1"].has(); got != "map[api:10.30.0.5] []" {
		t.Error(got)
	}
	put("vm-2", "hv-2", "postgres", "10.30.0.6")
	proved("vm-2", 1)
	heard("a guest of a set that nobody else uses", "hv-2")
	put("vm-1", "hv-1", "postgres", "10.30.0.5")
	proved("vm-1", 1)
	hosts["web-1"].awaits("map[api:] []")
	heard("other labels", "hv-1", "web-1")
	put("vm-1", "hv-1", "postgres", "10.30.0.5")
	heard("the same again")
	if fetched := hosts["web-1"].fetched; fetched > 1 {
		t.Errorf("web-1 fetched %d texts of sets that it could be given", fetched)
	}

	// It moves: the new host has it and proves, and then the old one loses it, whatever dies.
	hosts["hv-3"].mutex.Lock()
	hosts["hv-3"].silent = true
	hosts["hv-3"].mutex.Unlock()
	if g := put("vm-1", "hv-3", "api", "10.30.0.5"); !slices.Equal(g.Leaving, []string{"hv-1"}) {
		t.Errorf("%+v", g)
	}
	hosts["hv-3"].awaits("map[] [vm-1@tap-vm-1[10.30.0.5]]")
	hosts["web-1"].awaits("map[api:10.30.0.5] []")
	if got := hosts["hv-1"].has(); got != "map[] [vm-1@tap-vm-1[10.30.0.5]]" {
		t.Errorf("the old host lost it before the new one proved it: %s", got)
	}
	for _, l := range hosts {
		l.conn.Cut()
	}
	ok(t, f.stop())
	f.run()
	hosts["hv-3"].silent = false
	for _, l := range hosts {
		l.connect()
	}
	hosts["hv-1"].awaits("map[] []")
	f.until("it has moved", func() bool {
		g, err := f.client.Guest(t.Context(), "vm-1")
		return err == nil && g.Proved && len(g.Leaving) == 0
	})
	all, err := f.client.Guests(t.Context(), "app=api", "hv-3")
	if err != nil || len(all) != 1 || all[0].Guest != "vm-1" {
		t.Errorf("%+v, %v", all, err)
	}

	// Who has a role for some hosts alone hears of guests on these, and puts none on others.
	token, _, err := f.access(f.client, "netops", api.Operator, "host=hv-2")
	ok(t, err)
	netops := f.elsewhere(token)
	if all, err := netops.Guests(t.Context(), "", ""); err != nil || len(all) != 1 || all[0].Guest != "vm-2" {
		t.Errorf("%+v, %v", all, err)
	}
	_, one := netops.Guest(t.Context(), "vm-1")
	_, taken := netops.PutGuest(t.Context(), "vm-1", api.NewGuest{Host: "hv-2", Interface: "tap9", Addresses: []netip.Addr{netip.MustParseAddr("10.30.0.9")}})
	_, placed := netops.PutGuest(t.Context(), "vm-9", api.NewGuest{Host: "hv-1", Interface: "tap9", Addresses: []netip.Addr{netip.MustParseAddr("10.30.0.9")}})
	for _, err := range []error{one, taken, placed, netops.RemoveGuest(t.Context(), "vm-1")} {
		if kind(err) != wire.KindNotFound {
			t.Errorf("of another host: %v", err)
		}
	}

	// What its host is revoked for, sets do not hold.
	ok(t, f.client.Revoke(t.Context(), "hv-3", "stolen"))
	hosts["web-1"].awaits("map[api:] []")
	put("vm-1", "hv-1", "api", "10.30.0.5")
	hosts["web-1"].awaits("map[api:10.30.0.5] []")
	ok(t, f.client.RemoveGuest(t.Context(), "vm-1"))
	hosts["web-1"].awaits("map[api:] []")
	hosts["hv-1"].awaits("map[] []")
	if _, err := f.client.Guest(t.Context(), "vm-1"); kind(err) != wire.KindNotFound {
		t.Errorf("a guest that is removed: %v", err)
	}
}

// TestGuestsRefused: what a host would refuse, or another guest has, is refused beforehand.
func TestGuestsRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	f.text += "sets: {api: {guests: app=api, within: [10.30.0.0/16, \"2001:db8:30::/48\"]}, db: {guests: app=db, within: [10.31.0.0/16]}}\nguests: {public: [203.0.113.0/24], interfaces: [\"tap*\"]}\n"
	f.listens("hv-1", nil)
	f.given(map[string]string{"": "input: {default: drop}\nforward: {default: drop, rules: [allow any from api to any]}\n"})
	ok(t, f.controller.Store.SetAddresses(t.Context(), "host:hv-1", "hv-1", []netip.Addr{netip.MustParseAddr("10.30.0.1")}))
	ok(t, f.controller.refresh(t.Context()))
	good := func() api.NewGuest {
		return api.NewGuest{Host: "hv-1", Interface: "tap0", Addresses: []netip.Addr{netip.MustParseAddr("10.30.0.5")}, Labels: map[string]string{"app": "api"}}
	}
	_, err := f.client.PutGuest(t.Context(), "vm-1", good())
	ok(t, err)
	for name, c := range map[string]struct {
		id     string
		change func(*api.NewGuest)
		want   string
	}{
		"outside of within":   {"vm-2", func(g *api.NewGuest) { g.Addresses[0] = netip.MustParseAddr("10.31.0.5") }, "10.31.0.5 is not within what set api may hold, which its labels put it into: 10.30.0.0/16, 2001:db8:30::/48"},
		"within no set":       {"vm-2", func(g *api.NewGuest) { g.Addresses[0] = netip.MustParseAddr("10.32.0.5") }, "10.32.0.5 is not within any set by guests of bundle 1"},
		"a host's own":        {"vm-2", func(g *api.NewGuest) { g.Addresses[0] = netip.MustParseAddr("10.30.0.1") }, "is an address of host hv-1"},
		"the host's":          {"vm-2", func(g *api.NewGuest) { g.Public = []netip.Addr{netip.MustParseAddr("198.51.100.9")} }, "198.51.100.9 is not a public address for guests"},
		"another's address":   {"vm-2", func(g *api.NewGuest) { g.Interface = "tap1" }, "address 10.30.0.5: taken by another: guest vm-1"},
		"another's interface": {"vm-2", func(g *api.NewGuest) { g.Addresses[0] = netip.MustParseAddr("10.30.0.6") }, "interface tap0 of host hv-1: taken by another: guest vm-1"},
		"no host":             {"vm-1", func(g *api.NewGuest) { g.Host = "hv-9" }, `host "hv-9": not found`},
		"a wrong id":          {"vm 1", func(*api.NewGuest) {}, "not the name of a guest"},
		"a long id":           {strings.Repeat("a", 254), func(*api.NewGuest) {}, "not the name of a guest"},
		"a wrong interface":   {"vm-1", func(g *api.NewGuest) { g.Interface = "tap 0" }, `interface name "tap 0"`},
		"a pattern":           {"vm-1", func(g *api.NewGuest) { g.Interface = "tap*" }, "more than one interface"},
		"the host's uplink":   {"vm-2", func(g *api.NewGuest) { g.Interface = "eth1" }, "eth1 is not an interface for guests in bundle 1"},
		"no interface":        {"vm-1", func(g *api.NewGuest) { g.Interface = "" }, "no interface"},
		"no address":          {"vm-1", func(g *api.NewGuest) { g.Addresses = nil }, "no address"},
		"one twice":           {"vm-1", func(g *api.NewGuest) { g.Addresses = append(g.Addresses, g.Addresses[0]) }, "already in use"},
		"a zone":              {"vm-1", func(g *api.NewGuest) { g.Addresses[0] = netip.MustParseAddr("2001:db8::1%eth0") }, "is not an address of a guest"},
		"anywhere":            {"vm-1", func(g *api.NewGuest) { g.Public = []netip.Addr{netip.IPv4Unspecified()} }, "0.0.0.0 is not an address of a guest"},
		"another family":      {"vm-1", func(g *api.NewGuest) { g.Public = []netip.Addr{netip.MustParseAddr("2001:db8::9")} }, "has no IPv6 address for public 2001:db8::9"},
		"rules of another":    {"vm-1", func(g *api.NewGuest) { g.Rules = "version: 1\nforward: {rules: [allow ssh to 10.30.0.6]}\n" }, "the rules of guest vm-1: 2:32: 10.30.0.6 is outside the scope of this file: to 10.30.0.5"},
		"rules of all":        {"vm-1", func(g *api.NewGuest) { g.Rules = "version: 1\ninput: {default: allow}\n" }, "2:1: input cannot be used in the rules of a guest"},
		"no YAML":             {"vm-1", func(g *api.NewGuest) { g.Rules = "version: 1\nforward: [" }, "the rules of guest vm-1: "},
		"long rules":          {"vm-1", func(g *api.NewGuest) { g.Rules = strings.Repeat("#", trust.MaxRules+1) }, "have 65537 bytes, 65536 at most"},
		"a wrong label":       {"vm-1", func(g *api.NewGuest) { g.Labels["a b"] = "c" }, "a b"},
	} {
		g := good()
		c.change(&g)
		if _, err := f.client.PutGuest(t.Context(), c.id, g); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	g := good()
	g.Rules = "version: 1\nforward: {rules: [allow https from api to me, allow any from me to any]}\n"
	if now, err := f.client.PutGuest(t.Context(), "vm-1", g); err != nil || now.Rules != g.Rules {
		t.Errorf("%+v, %v", now, err)
	}
	early := *f.controller.view.Load() // before a roll-out has reached the host
	early.desired = nil
	if err := f.controller.checkRules(t.Context(), &early, &store.Guest{ID: "vm-1", Placement: store.Placement{Host: "hv-1", Interface: "tap0"}, Addresses: g.Addresses, Labels: g.Labels, Rules: g.Rules}); err != nil {
		t.Error(err)
	}
	all, err := f.client.Guests(t.Context(), "", "")
	if err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestContentsOfRevisionsUnseen: a host that keeps the guests from before does not count as having
// one that came at a revision which was looked at together with the next.
func TestContentsOfRevisionsUnseen(t *testing.T) {
	t.Parallel()
	var d documents
	var now atomic.Pointer[view]
	d.init()
	at := func(revision int64, guests ...store.Guest) {
		v := &view{position: store.Position{Incarnation: 1, Revision: revision}, hosts: map[string]store.Host{"web-1": {}, "web-2": {}}, guests: map[string]*store.Guest{}}
		var ids []string
		for _, g := range guests {
			v.guests[g.ID], ids = &g, append(ids, g.ID)
		}
		d.changed(false, nil, ids, func() { now.Store(v) })
		_, err := d.follow(&now)
		ok(t, err)
	}
	on := func(id, host string) store.Guest { return store.Guest{ID: id, Placement: store.Placement{Host: host}} }
	at(5, on("vm-1", "web-1"), on("vm-2", "web-2"))
	kept := d.guestsOf["web-2"].content
	moved := on("vm-1", "web-2")
	moved.Leaving = []store.Placement{{Host: "web-1"}}
	at(7, moved, on("vm-2", "web-2"), on("vm-3", "web-1")) // moved at 6
	if until := d.guestsOf["web-2"].until(kept, 7); until != 5 {
		t.Errorf("it has all up to %d", until)
	}
}
