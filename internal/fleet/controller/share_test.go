package controller

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// tell has a host say what its limits have banned.
func (b *bearer) tell(what ...string) {
	b.Helper()
	m := &wire.LimitBans{}
	for _, text := range what {
		m.What = append(m.What, netip.MustParsePrefix(text))
	}
	ok(b, b.conn.Send(b.Context(), &wire.Message{LimitBans: m}))
}

// shared are the bans that limits have made, by what they ban.
func (f *fleet) shared() map[string]api.Holding {
	f.Helper()
	all, err := f.client.Bans(f.Context(), "", "")
	ok(f, err)
	out := map[string]api.Holding{}
	for _, e := range all.Entries {
		if e.Who == sharer {
			out[e.What] = e
		}
	}
	return out
}

// TestShareBans: what limits of several hosts have banned is banned on all. One host has nothing
// banned on others, whatever it says and how often, nor has one that was revoked; and none can
// have banned what the fleet is made of.
func TestShareBans(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	f.text += "bans: {max: 20, for: 7d, widest: [24, 48]}\nshare-bans: {after: 3 hosts, for: 2h}\n"
	f.addresses = map[string][]netip.Addr{"web-1": {netip.MustParseAddr("198.51.100.11")}, "web-5": {netip.MustParseAddr("198.51.100.55")}}
	token := f.token(map[string]string{"role": "web"}, 6)
	hosts := make([]*bearer, 6)
	join := func(i int) {
		a, err := f.join(fmt.Sprintf("web-%d", i), token)
		ok(t, err)
		hosts[i] = a.bear(nil)
	}
	join(1)
	hosts[1].tell("203.0.113.1/32") // before anything is signed
	_, err := f.publish("never-ban: [office, 198.51.100.99]\nsets: {office: [192.0.2.0/24]}\ninput: {default: drop}\n")
	ok(t, err)
	for i := 2; i < len(hosts); i++ {
		join(i)
	}
	// after is what limits have had banned once that is which these three tell last.
	marks := 0
	after := func(of ...int) map[string]api.Holding {
		marks++
		mark := fmt.Sprintf("203.0.113.%d", marks)
		for _, i := range of {
			hosts[i].tell(mark + "/32")
		}
		f.until(mark, func() bool { _, has := f.shared()[mark]; return has })
		return f.shared()
	}

	// One host, again and again and on another stream, and a second one; and one that is revoked.
	for range 3 {
		hosts[1].tell("203.0.113.77/32")
	}
	hosts[5].tell("203.0.113.77/32")
	after(1, 5, 4)
	ok(t, f.client.Revoke(t.Context(), "web-5", "stolen"))
	hosts[1].conn.Cut()
	f.until("web-1 is gone", func() bool { return !f.states()["web-1"].Online })
	hosts[1].agent.bear(hosts[1])
	hosts[1].tell("203.0.113.77/32")
	hosts[2].tell("203.0.113.77/32")
	if has := after(1, 2, 3); len(has) != 2 {
		t.Errorf("banned: %v", has)
	}

	// What is the fleet's own, what a part never bans, and what is wider than bans allows.
	for _, i := range []int{1, 2, 3} {
		hosts[i].tell("198.51.100.11/32", "198.51.100.0/24", "192.0.2.7/32", "198.51.100.99/32", "127.0.0.1/32", "203.0.0.0/16", "2001:db8::/32")
	}
	if has := after(1, 2, 3); len(has) != 3 {
		t.Errorf("banned: %v", has)
	}

	// The third host.
	hosts[3].tell("203.0.113.77/32", "2001:db8:1::/64", "198.51.100.55/32") // that one was revoked
	hosts[4].tell("2001:db8:1::/64", "198.51.100.55/32")
	hosts[2].tell("2001:db8:1::/64", "198.51.100.55/32")
	f.until("it is banned", func() bool { return len(f.shared()) == 6 })
	is := f.shared()["203.0.113.77"]
	if length := is.Expires.Sub(is.Made); is.Reason != "limits of 3 hosts: web-1, web-2 and web-3" || length != 2*time.Hour || is.Hosts != "" {
		t.Errorf("%+v", is)
	}
	for _, i := range []int{1, 2, 3, 4} {
		f.until(hosts[i].host, func() bool {
			return strings.Contains(hosts[i].has(), "2001:db8:1::/64") && strings.Contains(hosts[i].has(), "203.0.113.77")
		})
	}

	// Agents that start again tell all of it again, which undoes nothing that was lifted.
	lifted, err := f.client.Unban(t.Context(), api.Lift{What: []string{"203.0.113.77"}})
	ok(t, err)
	if len(lifted.Lifted) != 1 {
		t.Errorf("%+v", lifted)
	}
	for _, i := range []int{1, 2, 4} {
		hosts[i].tell("203.0.113.77/32")
	}
	if _, has := after(1, 2, 3)["203.0.113.77"]; has {
		t.Error("what was lifted is banned again")
	}

	// Limits leave half of what the fleet may ban to people.
	var many []string
	for i := range 20 {
		many = append(many, fmt.Sprintf("198.18.0.%d/32", i))
	}
	for _, i := range []int{1, 2, 3} {
		hosts[i].tell(many...)
	}
	f.until("the bound", func() bool { text, _ := f.notes.Load().(string); return strings.Contains(text, "half of the bans") })
	if n := len(f.shared()); n != 10 {
		t.Errorf("there are %d, and room for 10", n)
	}
	for what := range f.shared() { // and where somebody makes room, the next one has it
		_, err := f.client.Unban(t.Context(), api.Lift{What: []string{what}})
		ok(t, err)
		break
	}
	f.until("there are 10 again", func() bool { return len(f.shared()) == 10 })
	banned(t, f, api.NewHoldings{}, "198.18.1.1")

	// Who may not know of all hosts is told of none by a reason.
	token1, _, err := f.access(f.client, "ann", api.Operator, "host=web-1")
	ok(t, err)
	all, err := f.elsewhere(token1).Bans(t.Context(), "", "")
	ok(t, err)
	one, err := f.elsewhere(token1).OneBan(t.Context(), all.Entries[0].Id)
	ok(t, err)
	for _, e := range append(all.Entries, one.Entry) {
		if e.Who == sharer && e.Reason != "limits of 3 hosts" {
			t.Errorf("%+v", e)
		}
	}

	// A fleet that does not share any more.
	f.text = strings.Replace(f.text, "share-bans", "# share-bans", 1)
	_, err = f.publish("input: {default: drop}\n")
	ok(t, err)
	before := len(f.shared())
	for _, i := range []int{1, 2, 3} {
		hosts[i].tell("203.0.113.200/32")
	}
	f.until("what was told is taken", func() bool {
		f.controller.offers.mutex.Lock()
		defer f.controller.offers.mutex.Unlock()
		return len(f.controller.offers.of) == 0
	})
	if n := len(f.shared()); n != before {
		t.Errorf("%d are banned, %d before", n, before)
	}
}

// TestShareBansWithTwoControllers: hosts are counted together, whichever controller they tell.
func TestShareBansWithTwoControllers(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	f.text += "bans: {}\nshare-bans: {after: 2 hosts, for: 1h}\n"
	_, err := f.publish("input: {default: drop}\n")
	ok(t, err)
	token := f.token(map[string]string{"role": "web"}, 2)
	one, err := f.join("web-1", token)
	ok(t, err)
	two, err := f.join("web-2", token)
	ok(t, err)
	second := f.second()
	here, there := one.bear(nil), two.of(second).bear(nil)
	here.tell("203.0.113.7/32")
	there.tell("203.0.113.7/32")
	is := "203.0.113.7"
	f.until("both have it", func() bool { return here.has() == is && there.has() == is })
	if e := f.shared()[is]; e.Reason != "limits of 2 hosts: web-1 and web-2" || e.Id != trust.LivingID(trust.LivingBan, is, "", "") {
		t.Errorf("%+v", e)
	}
}
