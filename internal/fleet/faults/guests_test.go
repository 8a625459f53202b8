package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
	"sluice/internal/language/policy"
)

// groups are the sets by guests of the fleet's file, and the hosts whose parts name them.
var groups = []struct {
	name, within string
	users        []string
}{
	{"api", "10.30.0.0/24", []string{"web-1", "web-2"}},
	{"db", "10.30.0.0/16", []string{"web-1", "web-2", "web-3"}},
}

// withGroups is the file of the fleet and parts with these, and with a live list for the hosts
// that have both.
func withGroups(list string) (fleet string, parts map[string]string) {
	fleet = fleetFile + "sets:\n"
	for _, g := range groups {
		fleet += fmt.Sprintf("  %s: {guests: app=%s, within: %s}\n", g.name, g.name, g.within)
	}
	return fleet + fmt.Sprintf("  %s: {url: %q, live: true, refresh: 1m}\n", listSet, list), map[string]string{
		"host=web-1 or host=web-2": "version: 1\nhosts: host=web-1 or host=web-2\ninput: {rules: [drop from " + listSet + "]}\nforward: {default: drop, rules: [allow tcp/80 from api to db]}\n",
		"host=web-3":               "version: 1\nhosts: host=web-3\nforward: {default: drop, rules: [allow tcp/80 from db]}\n",
	}
}

// asHeld is what a host holds of a guest: the label v is another with each change.
func asHeld(addresses []netip.Addr, labels map[string]string) string {
	return fmt.Sprint(addresses, " ", labels["app"], " ", labels["v"])
}

// guest is what a program does that has machines: it makes, moves, changes and removes them.
func (f *fleet) guest() {
	r := f.running()
	if r == nil {
		return
	}
	ctx, n := context.Background(), f.below(4)
	g := store.Guest{ID: fmt.Sprint("vm-", n)}
	found := must(r.store.Guests(ctx, g.ID))
	what := guestWord + g.ID
	if len(found) > 0 && f.chance(5) && f.bug != lostMoves {
		f.history.Add(Event{Kind: Placed, What: what})
		check(r.store.RemoveGuest(ctx, "operator:ann", g.ID))
		return
	}
	f.changes++
	app := groups[f.below(len(groups))].name
	g.Placement = store.Placement{Host: f.hosts[f.below(len(f.hosts))].id, Interface: fmt.Sprint("tap", n)}
	g.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{10, 30, 0, byte(10*(n+1) + f.below(2))})}
	g.Labels = map[string]string{"app": app, "v": fmt.Sprint(f.changes)}
	if len(found) > 0 && f.chance(2) && f.bug != lostMoves {
		g.Host = found[0].Host
	}
	f.history.Add(Event{Kind: Placed, Host: g.Host, What: what, Content: asHeld(g.Addresses, g.Labels)})
	must(r.store.PutGuest(ctx, "operator:ann", g))
}

// held is what a policy has of guests, and of the members of sets.
func held(p *policy.Policy) map[string]string {
	out := map[string]string{}
	for _, g := range p.Fleet.Guests {
		var addresses []netip.Addr
		for _, r := range g.Addresses {
			addresses = append(addresses, r.Range.From)
		}
		out[guestWord+g.Name] = asHeld(addresses, g.Labels)
	}
	for _, s := range p.Groups() {
		var members []string
		for _, r := range s.Elements {
			members = append(members, r.Range.String())
		}
		out[setWord+s.Name] = strings.Join(members, " ")
	}
	return out
}

// unbounded is what a host that trusts its view has of the members of sets.
func unbounded(view string) map[string]string {
	var is struct{ Members map[string][]string }
	check(yaml.Unmarshal(must(os.ReadFile(view)), &is))
	out := map[string]string{}
	for name, members := range is.Members {
		out[setWord+name] = strings.Join(members, " ")
	}
	return out
}

// carries records how what is held has become another.
func (k *kernel) carries(before, after map[string]string, back bool) {
	all := maps.Clone(before)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, after)
	for _, what := range slices.Sorted(maps.Keys(all)) {
		if before[what] != after[what] {
			k.host.f.history.Add(Event{Kind: Carries, Host: k.host.id, What: what, Content: after[what], Back: back})
		}
	}
}

// forge is what a thief of the live key says that sets hold: what they may not.
func (l *link) forge(revision int64) (*wire.Document, [][]byte) {
	text := trust.AddressText([]netip.Addr{netip.MustParseAddr("203.0.113.66")})
	content := trust.Content{SHA256: trust.HashOf(text), Size: int64(len(text))}
	members := trust.Members{Sets: map[string]trust.Content{groups[0].name: content, groups[1].name: content}}
	envelope := must(must(trust.OpenOnline(l.f.seats[0].dir)).SignLive(trust.KindMembers, revision, members))
	payload := must(json.Marshal(members))
	return &wire.Document{Sha256: wire.Hash(envelope), Size: int64(len(envelope)), Content: wire.Hash(payload)}, [][]byte{envelope, text}
}

// endGuests records which guests, members and lists hosts are to hold. A host that does not
// take its bundle holds those from before.
func (f *fleet) endGuests(s *store.Store) {
	ctx := context.Background()
	guests, lists := must(s.Guests(ctx)), must(s.Lists(ctx))
	excused := map[string]bool{}
	for _, h := range f.hosts {
		excused[h.id] = h.excused(wants(ctx, s, h.id))
	}
	for _, h := range f.hosts {
		if excused[h.id] || h.reports == nil {
			continue
		}
		due := func(what, content string) {
			f.history.Add(Event{Kind: Due, Host: h.id, What: what, Content: content})
		}
		for _, g := range guests {
			leaving := slices.ContainsFunc(g.Leaving, func(p store.Placement) bool { return p.Host == h.id })
			if g.Host == h.id || leaving && excused[g.Host] {
				due(guestWord+g.ID, asHeld(g.Addresses, g.Labels))
			}
		}
		for _, group := range groups {
			var members []netip.Addr
			for _, g := range guests {
				if g.Labels["app"] == group.name && slices.Contains(group.users, h.id) {
					members = append(members, g.Addresses...)
				}
			}
			slices.SortFunc(members, netip.Addr.Compare)
			due(setWord+group.name, strings.Join(strings.Fields(string(trust.AddressText(members))), " "))
		}
		for _, l := range lists {
			if l.SHA256 != "" && time.Since(l.Changed) > underWay && slices.Contains(groups[0].users, h.id) {
				due(listWord+l.Name, shortHash(l.SHA256))
			}
		}
		due("", "")
	}
}

// wants is the bundle that a host is to run.
func wants(ctx context.Context, s *store.Store, host string) (bundle int64) {
	for _, d := range must(s.Desired(ctx, host)) {
		bundle = d.Bundle
	}
	return bundle
}

// settleAtOnce is the planted bug of a controller: guests leave before they have come.
func (r *run) settleAtOnce(ctx context.Context) {
	for ; ctx.Err() == nil; wait(ctx, 200*time.Millisecond) {
		guests, err := r.store.Guests(ctx)
		if err != nil {
			continue
		}
		for _, g := range guests {
			_ = r.store.SettleGuest(ctx, "controller", g.ID, g.Revision) // the database may be away
		}
	}
}
