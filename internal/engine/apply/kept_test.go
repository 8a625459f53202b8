package apply

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/testseed"
	"sluice/internal/language/bans"
)

// keep bans groups with ";" between, their requests with ",", by one Keeper, and reports
// each that is answered.
func (c command) keep(ctx context.Context, h *Host) error {
	k := h.Keep()
	for group := range strings.SplitSeq(c.What, ";") {
		var asked []Asked
		for what := range strings.SplitSeq(group, ",") {
			asked = append(asked, Asked{Banning: command{What: what}.banning()})
		}
		for i, a := range k.Ban(ctx, asked) {
			if a.Err != nil {
				return a.Err
			}
			for _, n := range asked[i].List {
				fmt.Printf("answered %s\n", n.What)
			}
		}
		h.point("answered")
		k.Rest(ctx)
		h.point("rested")
	}
	k.Close(ctx)
	return nil
}

// keeper is one of a lab's host, with the host.
func (l *lab) keeper() (*Keeper, *Host) {
	l.t.Helper()
	h := command{Dir: l.dir}.host()
	h.Note = nil
	var k *Keeper
	if err := l.ns.Do(func() error { k = h.Keep(); return nil }); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = l.ns.Do(func() error { k.Close(context.Background()); return nil }) })
	return k, h
}

// keeps bans by a keeper, each word as a request of its own.
func (l *lab) keeps(k *Keeper, what string) (out []Answered) {
	l.t.Helper()
	var group []Asked
	for _, word := range strings.Fields(what) {
		group = append(group, Asked{Banning: command{What: word}.banning()})
	}
	if err := l.ns.Do(func() error { out = k.Ban(context.Background(), group); return nil }); err != nil {
		l.t.Fatal(err)
	}
	return out
}

// Killed at any point, what was answered is in the journal and in the kernel, and the next
// command makes them agree about the rest.
func TestKeeperKilledAtEveryPoint(t *testing.T) {
	before := "192.0.2.7 198.51.100.0/24 2001:db8::7"
	prepare := []command{{Op: "apply", Policy: "a bans"}, {Op: "ban", What: before}}
	run := command{Op: "keep", What: "192.0.2.8;192.0.2.9,192.0.2.7 2001:db8::9;203.0.113.1,203.0.113.2,192.0.2.8"}
	names := points(t, prepare, run)
	if want := 3; len(slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n != "ban journal" })) != want {
		t.Errorf("points are %q, want %d groups", names, want)
	}
	for i, name := range names {
		if name == names[max(0, i-1)] {
			continue
		}
		t.Run(fmt.Sprintf("%d %s", i+1, name), func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			for _, p := range prepare {
				l.must(p)
			}
			killed := run
			killed.KillAt = fmt.Sprint(i + 1)
			out, err := l.run(killed)
			if err == nil || !strings.Contains(err.Error(), "killed") {
				t.Fatalf("it was not killed: %v %s", err, out)
			}
			kernel := l.ns.MustRun("nft", "list", "ruleset")
			want := strings.Fields(before)
			for line := range strings.Lines(out) {
				if what, is := strings.CutPrefix(strings.TrimSpace(line), "answered "); is {
					if !strings.Contains(kernel, what) {
						t.Errorf("%s was answered, and the kernel has it not", what)
					}
				}
			}
			// Each group is in the journal as a whole at its first point.
			begun := len(slices.DeleteFunc(slices.Clone(names[:i+1]), func(n string) bool { return n != "ban journal" }))
			for _, group := range strings.Split(run.What, ";")[:begun] {
				want = append(want, strings.FieldsFunc(group, func(r rune) bool { return r == ',' || r == ' ' })...)
			}
			slices.Sort(want)
			l.must(command{Op: "settle"})
			l.wantBans(strings.Join(slices.Compact(want), " "))
			l.must(command{Op: "ban", What: "203.0.113.77"})
			l.wantBans(strings.Join(append(slices.Compact(want), "203.0.113.77"), " "))
		})
	}
}

// A keeper sees whatever others did since its last group.
func TestKeeperSeesOthers(t *testing.T) {
	for name, other := range map[string]func(l *lab){
		"a ban":                 func(l *lab) { l.must(command{Op: "ban", What: "192.0.2.100"}) },
		"another policy":        func(l *lab) { l.must(command{Op: "apply", Policy: "b bans"}) },
		"the same policy again": func(l *lab) { l.ns.Nft("flush ruleset"); l.must(command{Op: "restore"}) },
		"a foreign table":       func(l *lab) { l.ns.Nft("add table inet other") },
		"a lifted ban":          func(l *lab) { l.must(command{Op: "unban", What: "192.0.2.1"}) },
		"a damaged journal": func(l *lab) {
			file, err := os.OpenFile(filepath.Join(l.dir, bans.File), os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = file.WriteString("rubbish\n")
				err = errors.Join(err, file.Close())
			}
			if err != nil {
				l.t.Fatal(err)
			}
		},
		"a trial": func(l *lab) { l.must(command{Op: "apply", Policy: "b bans", Confirm: time.Hour}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.must(command{Op: "apply", Policy: "a bans"})
			k, _ := l.keeper()
			l.keeps(k, "192.0.2.1")
			l.keeps(k, "192.0.2.2")
			if k.kept == nil {
				t.Fatal("nothing is kept")
			}
			was := k.kept
			other(l)
			for _, a := range l.keeps(k, "192.0.2.3 192.0.2.4") {
				if a.Err != nil || !a.InForce {
					t.Errorf("%+v", a)
				}
			}
			if k.kept == was {
				t.Error("it is not seen")
			}
			have := l.bans()
			for _, a := range []string{"192.0.2.2", "192.0.2.3", "192.0.2.4"} {
				if !have[a].InForce {
					t.Errorf("%s is not in force", a)
				}
			}
			if s := l.status(); len(s.Drift) > 0 {
				t.Errorf("drift: %v", s.Drift)
			}
		})
	}
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a bans"})
	k, _ := l.keeper()
	l.keeps(k, "192.0.2.1 192.0.2.2")
	l.ns.Nft("flush ruleset")
	for _, a := range l.keeps(k, "192.0.2.3") {
		if a.Err == nil || !strings.Contains(a.Err.Error(), "removed its rules") {
			t.Errorf("banned without rules: %+v", a)
		}
	}
}

// What the host became since the last group counts, though nothing else is read again.
func TestKeeperSeesTheHost(t *testing.T) {
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a bans"})
	l.ns.MustRun("ip", "link", "add", "uplink", "type", "veth", "peer", "name", "other")
	l.ns.MustRun("ip", "link", "set", "uplink", "up")
	l.ns.MustRun("ip", "link", "set", "other", "up")
	k, _ := l.keeper()
	l.keeps(k, "192.0.2.1")
	l.keeps(k, "192.0.2.2")
	was := k.kept
	l.ns.MustRun("ip", "address", "add", "192.0.2.9/24", "dev", "uplink")
	if out := l.keeps(k, "192.0.2.9")[0]; out.Err != nil || len(out.Refused) != 1 {
		t.Errorf("the own address: %+v %v", out.Banned, out.Err)
	}
	l.ns.MustRun("ip", "address", "del", "192.0.2.9/24", "dev", "uplink")
	l.ns.MustRun("ip", "address", "add", "198.51.100.9/24", "dev", "uplink")
	l.ns.MustRun("ip", "route", "add", "default", "via", "198.51.100.1")
	out := l.keeps(k, "192.0.2.9 198.51.100.1")
	if out[0].Err != nil || out[0].Banned.Banned != 1 {
		t.Errorf("what was the own address: %+v %v", out[0].Banned, out[0].Err)
	}
	if out[1].Err != nil || !strings.Contains(fmt.Sprint(out[1].Notes), "198.51.100.1, which is banned now, is the default gateway") {
		t.Errorf("the gateway: %+v %v", out[1].Banned, out[1].Err)
	}
	if k.kept != was {
		t.Error("all was read again")
	}
	if k.kept.session.around.tunnels {
		t.Error("a tunnel is seen")
	}
	l.ns.MustRun("ip", "tuntap", "add", "dev", "tunnel", "mode", "tun")
	l.keeps(k, "192.0.2.10")
	if !k.kept.session.around.tunnels {
		t.Error("the tunnel is not seen")
	}
}

// picky has a kernel that takes no element of one address.
type picky struct {
	backend.Backend
	backend.Banner
	not netip.Addr
}

type pickyStore struct {
	backend.BanStore
	not netip.Addr
}

func (p picky) DecodeBanStore(data []byte) (backend.BanStore, error) {
	store, err := p.Banner.DecodeBanStore(data)
	return pickyStore{store, p.not}, err
}

func (p picky) BanStoreIn(a backend.Artifact, have backend.State) backend.BanStore {
	return pickyStore{p.Banner.BanStoreIn(a, have), p.not}
}

func (p pickyStore) Edit(ctx context.Context, e backend.BanEdit, now time.Time) (backend.BanPlan, error) {
	plan, err := p.BanStore.Edit(ctx, e, now)
	if slices.ContainsFunc(e.Add, func(b backend.BannedRange) bool { return b.From == p.not }) && plan.Fill != nil {
		plan.Fill = refusal{}
	}
	if err == nil {
		plan.After = pickyStore{plan.After, p.not}
	}
	return plan, err
}

// One bad request of a group fails alone, whoever refuses it.
func TestBadRequestFailsAlone(t *testing.T) {
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a bans"})
	k, h := l.keeper()
	h.Backend = picky{h.Backend, h.Backend.(backend.Banner), netip.MustParseAddr("192.0.2.66")}
	l.keeps(k, "192.0.2.1")
	l.keeps(k, "192.0.2.2")
	out := l.keeps(k, "192.0.2.3 10.66.0.1 192.0.2.66 192.0.2.4")
	if out[0].Err != nil || out[0].Banned.Banned != 1 || out[3].Err != nil || out[3].Banned.Banned != 1 {
		t.Errorf("the good ones: %+v, %+v", out[0], out[3])
	}
	if len(out[1].Refused) != 1 || out[1].Banned.Banned != 0 {
		t.Errorf("what is never banned: %+v", out[1])
	}
	if !errors.Is(out[2].Err, errRefused) {
		t.Errorf("what the kernel refuses: %+v", out[2])
	}
	l.wantBans("192.0.2.1 192.0.2.2 192.0.2.3 192.0.2.4")
}

// Of a group that the disk takes in part that alone is banned which was answered.
func TestKeeperOnFullDisk(t *testing.T) {
	l := newLab(t)
	d := l.newDisk(t)
	l.must(command{Op: "apply", Policy: "a bans"})
	k, _ := l.keeper()
	l.keeps(k, "192.0.2.1")
	l.keeps(k, "192.0.2.2")
	// The last page of the journal has room for the first of them.
	group := []Asked{{Banning: manyBans(150)}, {Banning: manyBans(1650)}}
	group[1].List = group[1].List[150:]
	want := "192.0.2.1 192.0.2.2 192.0.2.3"
	d.fill()
	l.inside(func(ctx context.Context, _ *Host) error {
		out := k.Ban(ctx, group)
		if out[1].Err == nil {
			t.Error("a full disk takes all of it")
		}
		for _, n := range group[0].List {
			if out[0].Err == nil {
				want += " " + n.What.String()
			}
		}
		return nil
	})
	d.empty()
	l.keeps(k, "192.0.2.3")
	l.wantBans(want)
}

// The reading holds on once a keeper rests, and no sooner.
func TestKeeperKeepsReading(t *testing.T) {
	l := newLab(t)
	l.apply(inputOf("a bans", "one"), Options{})
	k, _ := l.keeper()
	l.keeps(k, "192.0.2.1")
	l.keeps(k, "192.0.2.2")
	l.keeps(k, "192.0.2.3 192.0.2.4")
	same := func() bool {
		out, _ := l.quick(Unchanged{Inputs: "one"}, Options{})
		return out != nil
	}
	if same() {
		t.Error("a reading of before the bans is believed")
	}
	rest := func() { l.inside(func(ctx context.Context, _ *Host) error { k.Rest(ctx); return nil }) }
	if rest(); !same() {
		t.Error("the reading is gone")
	}
	l.keeps(k, "192.0.2.5")
	l.ns.MustRun("nft", "insert rule inet sluice input accept")
	if rest(); same() {
		t.Error("a foreign rule is not seen")
	}
}

// Random groups by a keeper leave what the same requests do one by one.
func TestKeeperIsBan(t *testing.T) {
	random := testseed.Rand(t)
	kept, single := newLab(t), newLab(t)
	clock := time.Now().Truncate(time.Second)
	now := func() time.Time { return clock }
	k, h := kept.keeper()
	h.Now = now
	both := func(f func(l *lab)) { f(kept); f(single) }
	both(func(l *lab) { l.must(command{Op: "apply", Policy: "a bans"}) })
	words := strings.Fields("192.0.2.1 192.0.2.2 192.0.2.3 192.0.2.4 192.0.2.5 2001:db8::1 2001:db8::2 10.66.0.1 127.0.0.1 198.51.100.0/30 0.0.0.0/1")
	held := 0
	for range testseed.Rounds(40, 200) {
		clock = clock.Add(time.Second)
		group := make([]Asked, 1+random.IntN(6))
		for i := range group {
			in := Banning{For: time.Duration(random.IntN(3)) * 5 * time.Hour, Force: random.IntN(4) > 0}
			for range 1 + random.IntN(3) {
				most := len(words)
				if random.IntN(8) > 0 {
					most -= 2
				}
				in.List = append(in.List, bans.Named{What: ranges(words[random.IntN(most)])[0], Reason: fmt.Sprint(random.IntN(2))})
			}
			group[i] = Asked{Banning: in, By: Author{User: fmt.Sprint("user", random.IntN(2))}}
		}
		var together, apart []Answered
		was := k.kept
		kept.inside(func(ctx context.Context, _ *Host) error { together = k.Ban(ctx, group); return nil })
		if was != nil && k.kept == was {
			held++
		}
		single.inside(func(ctx context.Context, h *Host) error {
			for _, a := range group {
				h.Now, h.By = now, a.By
				out, err := h.Ban(ctx, a.Banning)
				apart = append(apart, Answered{out, err})
			}
			return nil
		})
		for i := range group {
			if !reflect.DeepEqual(together[i], apart[i]) {
				t.Errorf("%+v: a keeper says %+v %v, one by one %+v %v", group[i], together[i].Banned, together[i].Err, apart[i].Banned, apart[i].Err)
			}
		}
		switch random.IntN(8) {
		case 0:
			both(func(l *lab) { l.ns.Nft("add table inet other; delete table inet other") })
		case 1:
			what := []bans.Named{{What: ranges(words[random.IntN(5)])[0]}}
			both(func(l *lab) {
				l.inside(func(ctx context.Context, h *Host) error { _, err := h.Unban(ctx, what); return err })
			})
		case 2:
			kept.inside(func(ctx context.Context, _ *Host) error { k.Rest(ctx); return nil })
		}
		a, b := kept.heldBans(), single.heldBans()
		if a != b {
			t.Fatalf("after %+v a keeper left\n%s\none by one left\n%s", group, a, b)
		}
	}
	if held < testseed.Rounds(40, 200)/3 {
		t.Errorf("what is kept held over %d groups alone", held)
	}
}

// heldBans is what the journal says and what the kernel holds, in words. The kernel's time is
// rounded.
func (l *lab) heldBans() string {
	l.t.Helper()
	var b strings.Builder
	l.inside(func(ctx context.Context, h *Host) error {
		list, err := bans.Open(l.dir).Read()
		if err != nil {
			return err
		}
		for _, ban := range list.Bans {
			fmt.Fprintln(&b, ban.What, ban.Since, ban.Until, ban.By, ban.Reason)
		}
		fmt.Fprintln(&b, "settled", list.Settled, list.Damaged)
		s, ctx, err := h.open(ctx)
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
		var lines []string
		for _, one := range held.Single {
			lines = append(lines, fmt.Sprint(one.Range, one.Left.Round(5*time.Hour)))
		}
		for _, one := range held.Ranges {
			lines = append(lines, fmt.Sprint(one.Range, one.Left.Round(5*time.Hour)))
		}
		slices.Sort(lines)
		fmt.Fprintln(&b, strings.Join(lines, "\n"))
		return nil
	})
	return b.String()
}
