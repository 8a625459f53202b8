package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/language/bans"
)

// unbounded lets the fleet ban what it likes.
func unbounded(int) (*FleetBounds, error) {
	return &FleetBounds{1000, func(addrset.Range, time.Duration) error { return nil }}, nil
}

// fleetBans are "ID ADDRESS TIME" with commas between.
func fleetBans(t *testing.T, text string) (out []bans.Ban) {
	t.Helper()
	for part := range strings.SplitSeq(text, ",") {
		words := strings.Fields(part)
		if len(words) == 0 {
			continue
		}
		length, err := time.ParseDuration(words[2])
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, bans.Ban{ID: words[0], What: ranges(words[1])[0], Until: time.Now().Add(length), By: Author{User: "alice", Via: FleetVia}, Reason: "scans"})
	}
	return out
}

func (l *lab) fleet(k *Keeper, in FleetBanning) *FleetBanned {
	l.t.Helper()
	if in.Bounds == nil {
		in.Bounds = unbounded
	}
	if in.Incarnation == 0 {
		in.Incarnation = 1
	}
	var out *FleetBanned
	if err := l.ns.Do(func() (err error) { out, err = k.BanFleet(context.Background(), in); return err }); err != nil {
		l.t.Fatal(err)
	}
	if !out.Proved {
		l.t.Error("it is not proved")
	}
	return out
}

// stand holds the list, the journal and the kernel to "ADDRESS BY ID" with commas between.
func (l *lab) stand(want string) {
	l.t.Helper()
	out := l.must(command{Op: "bans"})
	var list []BanEntry
	if err := json.Unmarshal([]byte(out[strings.Index(out, "["):]), &list); err != nil {
		l.t.Fatal(err)
	}
	var have []string
	for _, b := range list {
		if !b.InForce {
			l.t.Errorf("%s is not in force", b.What)
		}
		have = append(have, strings.TrimSpace(b.What+" "+b.By+" "+b.ID))
	}
	slices.Sort(have)
	wanted := strings.FieldsFunc(want, func(r rune) bool { return r == ',' })
	for i := range wanted {
		wanted[i] = strings.TrimSpace(wanted[i])
	}
	slices.Sort(wanted)
	if !slices.Equal(have, wanted) {
		l.t.Errorf("banned are %q, want %q", have, wanted)
	}
	if s := l.status(); len(s.Drift) > 0 {
		l.t.Errorf("drift: %v", s.Drift)
	}
}

// leftOf is how long the kernel bans an address yet.
func (l *lab) leftOf(address string) time.Duration {
	l.t.Helper()
	h := command{Dir: l.dir}.host()
	var out time.Duration
	if err := l.ns.Do(func() error {
		s, ctx, err := h.open(context.Background())
		if err != nil {
			return err
		}
		defer s.close()
		c, err := s.running(ctx)
		if err != nil {
			return err
		}
		held, err := c.Held(ctx)
		if err != nil {
			return err
		}
		b, there := held.Single[ranges(address)[0].From]
		if !there {
			return fmt.Errorf("%s is not banned", address)
		}
		out = b.Left
		return nil
	}); err != nil {
		l.t.Fatal(err)
	}
	return out
}

// Bans by the fleet and by commands are next to each other: who lifts one lifts no other, and
// the kernel has the longest.
func TestFleetBansBesideOwn(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a bans"})
	k, _ := l.keeper()
	l.must(command{Op: "ban", What: "192.0.2.1", For: time.Hour})
	l.fleet(k, FleetBanning{Ban: fleetBans(t, "a 192.0.2.1 3h, b 192.0.2.2 2h, c 2001:db8::1 1h")})
	l.stand("192.0.2.1 command, 192.0.2.1 fleet a, 192.0.2.2 fleet b, 2001:db8::1 fleet c")
	near := func(address string, want time.Duration) {
		t.Helper()
		if left := l.leftOf(address); (left - want).Abs() > time.Minute {
			t.Errorf("%s is banned for %v more, want %v", address, left, want)
		}
	}
	near("192.0.2.1", 3*time.Hour)
	// A shorter one of a command leaves it, by the keeper and without it; a longer one counts.
	l.keeps(k, "192.0.2.9")
	l.must(command{Op: "ban", What: "192.0.2.2", For: time.Minute})
	near("192.0.2.2", 2*time.Hour)
	l.must(command{Op: "ban", What: "192.0.2.2", For: 5 * time.Hour})
	near("192.0.2.2", 5*time.Hour)
	l.fleet(k, FleetBanning{Lift: []string{"b"}})
	near("192.0.2.2", 5*time.Hour)
	l.fleet(k, FleetBanning{Lift: []string{"a", "none"}})
	near("192.0.2.1", time.Hour)
	l.stand("192.0.2.1 command, 192.0.2.2 command, 192.0.2.9 command, 2001:db8::1 fleet c")
	// Prefixes go the long way.
	l.fleet(k, FleetBanning{Ban: fleetBans(t, "d 198.51.100.0/24 1h, a 192.0.2.1 2h")})
	l.fleet(k, FleetBanning{Lift: []string{"c"}, Ban: fleetBans(t, "e 198.51.100.0/24 2h")})
	l.stand("192.0.2.1 command, 192.0.2.1 fleet a, 192.0.2.2 command, 192.0.2.9 command, 198.51.100.0/24 fleet d, 198.51.100.0/24 fleet e")
	l.fleet(k, FleetBanning{Lift: []string{"d"}})
	// They outlive another policy, a flush and a restore, and a keeper.
	l.must(command{Op: "apply", Policy: "b bans"})
	l.ns.Nft("flush ruleset")
	l.must(command{Op: "restore"})
	l.stand("192.0.2.1 command, 192.0.2.1 fleet a, 192.0.2.2 command, 192.0.2.9 command, 198.51.100.0/24 fleet e")
	near("192.0.2.1", 2*time.Hour)
	other, _ := l.keeper()
	l.fleet(other, FleetBanning{Whole: true, Ban: fleetBans(t, "a 192.0.2.1 2h, f 192.0.2.50 1h")})
	l.stand("192.0.2.1 command, 192.0.2.1 fleet a, 192.0.2.2 command, 192.0.2.9 command, 192.0.2.50 fleet f")
	// A part of the whole lifts what lies there alone, and what is of an older incarnation stays.
	l.fleet(other, FleetBanning{Whole: true, From: "b", To: "e"})
	l.fleet(other, FleetBanning{Whole: true, Incarnation: 2, Ban: fleetBans(t, "f 192.0.2.50 1h")})
	l.stand("192.0.2.1 command, 192.0.2.1 fleet a, 192.0.2.2 command, 192.0.2.9 command, 192.0.2.50 fleet f")
	l.fleet(other, FleetBanning{Whole: true, Incarnation: 2})
	l.stand("192.0.2.1 command, 192.0.2.1 fleet a, 192.0.2.2 command, 192.0.2.9 command")
	// A host that is of no fleet any more lifts them itself.
	l.must(command{Op: "unban", What: "192.0.2.0/24"})
	l.stand("")
}

// A command of a host of a fleet says of what that bans that it is the fleet's.
func TestFleetBansStay(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a bans"})
	k, h := l.keeper()
	if err := os.MkdirAll(filepath.Join(l.dir, FleetDir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := h.KeepMembership(&Membership{Fleet: "example.net", Host: "web-1"}); err != nil {
		t.Fatal(err)
	}
	l.must(command{Op: "ban", What: "192.0.2.1 192.0.2.2"})
	l.fleet(k, FleetBanning{Ban: fleetBans(t, "a 192.0.2.1 3h, b 192.0.2.3 2h")})
	var out *Banned
	if err := l.ns.Do(func() (err error) {
		out, err = h.Unban(context.Background(), []bans.Named{{What: ranges("192.0.2.0/24")[0]}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if out.Lifted != 2 || !slices.Equal(out.OfFleet, []string{"192.0.2.1", "192.0.2.3"}) || len(out.NotThere) > 0 {
		t.Errorf("%+v", out)
	}
	l.stand("192.0.2.1 fleet a, 192.0.2.3 fleet b")
}

// What a host does not take is refused by its ID, and the rest holds.
func TestFleetBansRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a bans"})
	k, _ := l.keeper()
	bounds := func(most int) func(int) (*FleetBounds, error) {
		return func(int) (*FleetBounds, error) {
			return &FleetBounds{most, func(what addrset.Range, length time.Duration) error {
				if length > time.Hour {
					return errors.New("too long")
				}
				return nil
			}}, nil
		}
	}
	refused := func(out *FleetBanned) string {
		var all []string
		for _, r := range out.Refused {
			all = append(all, r.ID+": "+r.Why)
		}
		return strings.Join(all, "; ")
	}
	out := l.fleet(k, FleetBanning{Bounds: bounds(2), Ban: fleetBans(t, "a 192.0.2.1 30m, b 192.0.2.2 2h, c 127.0.0.1 1m, d 192.0.2.4 1m, e 192.0.2.5 1m, f 192.0.2.6 -1m")})
	if want := "b: too long; c: it is this host's own address; e: this host has 2 bans of the fleet, which is the most allowed"; refused(out) != want {
		t.Errorf("%q, want %q", refused(out), want)
	}
	l.stand("192.0.2.1 fleet a, 192.0.2.4 fleet d")
	// One that takes the place of another is none more. What bounds forbid by now is lifted.
	out = l.fleet(k, FleetBanning{Bounds: bounds(2), Lift: []string{"d"}, Ban: fleetBans(t, "a 192.0.2.1 20m, e 192.0.2.5 1m")})
	if refused(out) != "" {
		t.Error(refused(out))
	}
	out = l.fleet(k, FleetBanning{Bounds: bounds(2), Whole: true, Ban: fleetBans(t, "a 192.0.2.1 3h, e 192.0.2.5 1m")})
	if refused(out) != "a: too long" {
		t.Error(refused(out))
	}
	l.stand("192.0.2.5 fleet e")
	// Those that are over make room.
	l.fleet(k, FleetBanning{Bounds: bounds(2), Ban: fleetBans(t, "g 192.0.2.7 1500ms")})
	for time.Sleep(1600 * time.Millisecond); ; time.Sleep(100 * time.Millisecond) {
		if out = l.fleet(k, FleetBanning{Bounds: bounds(2), Ban: fleetBans(t, "h 192.0.2.8 1m")}); refused(out) == "" {
			break
		}
	}
	l.stand("192.0.2.5 fleet e, 192.0.2.8 fleet h")
}

// The keeper brings many at once, and knows them as the journal does.
func TestFleetBansMany(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a bans"})
	k, _ := l.keeper()
	at := func(i int) string { return fmt.Sprintf("198.18.%d.%d", i/250, 1+i%250) }
	var all []string
	for i := range 3000 {
		all = append(all, fmt.Sprintf("%04d %s 1h", i, at(i)))
	}
	many := func(int) (*FleetBounds, error) {
		return &FleetBounds{10_000, func(addrset.Range, time.Duration) error { return nil }}, nil
	}
	l.fleet(k, FleetBanning{Bounds: many, Ban: fleetBans(t, strings.Join(all, ","))})
	var lift []string
	for i := range 1000 {
		lift = append(lift, fmt.Sprintf("%04d", i))
	}
	l.fleet(k, FleetBanning{Bounds: many, Lift: lift, Ban: fleetBans(t, "x 192.0.2.1 1h")})
	if k.kept == nil || len(k.kept.held.fleet) != 2001 {
		t.Fatal("what it knows is not what there is")
	}
	list := l.bans()
	if len(list) != 2001 || !list[at(1000)].InForce || !list["192.0.2.1"].InForce || list[at(2999)].Author.User != "alice" {
		t.Errorf("%d bans", len(list))
	}
	if s := l.status(); len(s.Drift) > 0 {
		t.Error(s.Drift)
	}
}
