package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/testseed"
	"sluice/internal/language/bans"
	"sluice/internal/program"
)

// commandBans lets a program drop what is banned by command, and never spares.
func commandBans(p *program.Program, never string) {
	p.Sets = append(p.Sets, program.Set{
		ID: "ban.command", Key: []program.Field{program.Source}, Life: program.Dynamic, Counters: true, Commands: true,
		Never: addrset.Of(ranges(never)...),
	})
	p.Counters = append(p.Counters, program.Counter{Name: "ban_by_command"})
	rule := program.Rule{
		Match:   []program.Condition{{Field: program.Source, Set: "ban.command"}},
		Actions: []program.Action{program.Count{Counter: "ban_by_command"}, program.Drop},
	}
	p.Chains[0].Rules = slices.Insert(p.Chains[0].Rules, 1, rule)
}

func ranges(text string) []addrset.Range {
	var out []addrset.Range
	for _, word := range strings.Fields(text) {
		out = append(out, addrset.MustParseRange(word))
	}
	return out
}

func (c command) banning() Banning {
	in := Banning{For: c.For, Force: !c.Described, Country: func(code string) (*bans.Country, error) {
		has := map[string]string{
			"KP": "192.0.2.1 198.51.100.0/24 2001:db8:7::/48", "KP 1": "198.51.100.0/25 2001:db8:8::/48", "SM": "192.0.2.9", "LI": "192.0.2.99",
		}
		name := code
		if c.N > 0 {
			name = fmt.Sprint(code, " ", c.N)
		}
		if has[name] == "" {
			return nil, fmt.Errorf("nothing is known of %s", name)
		}
		return &bans.Country{Code: code, Data: time.Date(2026, 6, 1+c.N, 0, 0, 0, 0, time.UTC), Set: addrset.Of(ranges(has[name])...)}, nil
	}}
	for word := range strings.FieldsSeq(c.What) {
		n, err := bans.ParseNamed(word)
		if err != nil {
			panic(err)
		}
		n.Reason = "tried"
		in.List = append(in.List, n)
	}
	return in
}

// bans are those that hold, by what they ban.
func (l *lab) bans() map[string]BanEntry {
	l.t.Helper()
	out := l.must(command{Op: "bans"})
	var list []BanEntry
	if err := json.Unmarshal([]byte(out[strings.Index(out, "["):]), &list); err != nil {
		l.t.Fatalf("bans: %v: %s", err, out)
	}
	by := map[string]BanEntry{}
	for _, b := range list {
		by[b.What] = b
	}
	return by
}

// wantBans holds journal, kernel and status to a list.
func (l *lab) wantBans(want string) {
	l.t.Helper()
	have := l.bans()
	var names []string
	for name, b := range have {
		names = append(names, name)
		if !b.InForce {
			l.t.Errorf("%s is not in force", name)
		}
	}
	slices.Sort(names)
	wanted := strings.Fields(want)
	slices.Sort(wanted)
	if !slices.Equal(names, wanted) {
		l.t.Errorf("banned are %v, want %v", names, wanted)
	}
	if s := l.status(); len(s.Drift) > 0 {
		l.t.Errorf("drift: %v", s.Drift)
	}
}

const someBans = "192.0.2.1 192.0.2.128/25 192.0.2.100-192.0.2.200 2001:db8::1 2001:db8:1::/48"

func TestBansOutliveWhatIsApplied(t *testing.T) {
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a bans"})
	l.must(command{Op: "ban", What: someBans})
	l.wantBans(someBans)
	l.must(command{Op: "apply", Policy: "b bans"})
	l.wantBans(someBans)
	l.must(command{Op: "rollback", N: -1})
	l.wantBans(someBans)
	if out := l.must(command{Op: "apply", Policy: "a bans"}); !strings.Contains(out, "unchanged true") {
		t.Errorf("what runs was applied again: %s", out)
	}
	l.must(command{Op: "flush"})
	l.must(command{Op: "restore"})
	l.wantBans(someBans)
	// A policy without a place for them, and back.
	l.must(command{Op: "apply", Policy: "c"})
	if out, err := l.run(command{Op: "ban", What: "192.0.2.9"}); err == nil || !strings.Contains(out, "no place for bans by command") {
		t.Errorf("banned without a place: %v %s", err, out)
	}
	for name, b := range l.bans() {
		if b.InForce {
			t.Errorf("%s is in force", name)
		}
	}
	l.must(command{Op: "unban", What: "192.0.2.1"})
	l.must(command{Op: "apply", Policy: "b bans"})
	l.wantBans(strings.Replace(someBans, "192.0.2.1 ", "", 1))
	l.must(command{Op: "remove"})
	l.must(command{Op: "apply", Policy: "a bans"})
	l.wantBans(strings.Replace(someBans, "192.0.2.1 ", "", 1))
	l.must(command{Op: "unban", What: "0.0.0.0/0 ::/0"})
	l.wantBans("")
}

// Killed at any point, a ban holds as a whole or not at all, and the next
// command makes kernel and journal agree.
func TestBanKilledAtEveryPoint(t *testing.T) {
	before := "192.0.2.7 198.51.100.0/24 2001:db8:9::/48"
	prepare := []command{{Op: "apply", Policy: "a bans"}, {Op: "ban", What: before}}
	for _, run := range []command{
		{Op: "ban", What: "192.0.2.8"},
		{Op: "ban", What: "192.0.2.8 203.0.113.0/24 2001:db8::5"},
		{Op: "unban", What: "192.0.2.7"},
		{Op: "unban", What: "192.0.2.7 198.51.100.0/24"},
	} {
		after := before + " " + run.What
		if run.Op == "unban" {
			var left []string
			for _, w := range strings.Fields(before) {
				if !slices.Contains(strings.Fields(run.What), w) {
					left = append(left, w)
				}
			}
			after = strings.Join(left, " ")
		}
		for i, name := range points(t, prepare, run) {
			t.Run(fmt.Sprintf("%s %s %d %s", run.Op, run.What, i+1, name), func(t *testing.T) {
				t.Parallel()
				l := newLab(t)
				for _, p := range prepare {
					l.must(p)
				}
				killed := run
				killed.KillAt = fmt.Sprint(i + 1)
				if out, err := l.run(killed); err == nil || !strings.Contains(err.Error(), "killed") {
					t.Fatalf("it was not killed: %v %s", err, out)
				}
				l.must(command{Op: "settle"})
				// The first point lies behind the journal.
				l.wantBans(after)
				l.must(command{Op: "ban", What: "203.0.113.77"})
				l.wantBans(after + " 203.0.113.77")
			})
		}
	}
}

// A ban that comes while a policy is applied waits for it, and holds then.
func TestBanDuringAnApply(t *testing.T) {
	names := points(t, []command{{Op: "apply", Policy: "a bans"}, {Op: "ban", What: "192.0.2.7"}}, command{Op: "apply", Policy: "b bans"})
	for i, name := range names {
		if strings.HasPrefix(name, "before") || name == "journal" || name == "verified" || name == "end" {
			t.Run(fmt.Sprintf("%d %s", i+1, name), func(t *testing.T) {
				t.Parallel()
				l := newLab(t)
				l.must(command{Op: "apply", Policy: "a bans"})
				l.must(command{Op: "ban", What: "192.0.2.7"})
				hold := filepath.Join(t.TempDir(), "hold")
				ended := make(chan error, 2)
				go func() {
					_, err := l.ns.Run("/usr/bin/env", l.childArgs(command{Op: "apply", Policy: "b bans", Hold: hold, HoldAt: name})...)
					ended <- err
				}()
				waitFor(t, hold)
				go func() {
					_, err := l.ns.Run("/usr/bin/env", l.childArgs(command{Op: "ban", What: "192.0.2.8 203.0.113.0/24", Wait: time.Minute})...)
					ended <- err
				}()
				time.Sleep(100 * time.Millisecond)
				if err := os.Remove(hold); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if err := <-ended; err != nil {
						t.Fatal(err)
					}
				}
				l.wantBans("192.0.2.7 192.0.2.8 203.0.113.0/24")
			})
		}
	}
}

func waitFor(t *testing.T, file string) {
	t.Helper()
	await(t, file+" is there", func() bool { return exists(file) })
}

// After a reboot what is left of a ban's time counts by the wall clock.
func TestBansOutliveTheReboot(t *testing.T) {
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a bans"})
	l.must(command{Op: "ban", What: "192.0.2.1 198.51.100.0/24 2001:db8::1", For: time.Hour})
	l.must(command{Op: "ban", What: "192.0.2.2 203.0.113.0/24", For: time.Second})
	was := l.bans()
	after := newLab(t)
	after.dir = l.dir
	time.Sleep(time.Until(was["192.0.2.1"].Since.Add(2 * time.Second)))
	after.must(command{Op: "restore"})
	after.wantBans("192.0.2.1 198.51.100.0/24 2001:db8::1")
	for name, b := range after.bans() {
		if !b.Until.Equal(was[name].Until) || !b.Since.Equal(was[name].Since) || b.Reason != "tried" {
			t.Errorf("%s is %+v, was %+v", name, b, was[name])
		}
	}
	left := regexp.MustCompile(`timeout (\S+)`).FindAllStringSubmatch(after.ns.MustRun("nft", "list", "ruleset"), -1)
	if len(left) != 3 {
		t.Fatalf("the kernel has %d time-outs", len(left))
	}
	for _, m := range left {
		if d, err := time.ParseDuration(m[1]); err != nil || d > time.Hour-time.Second || d < 30*time.Minute {
			t.Errorf("a time-out of %v, %v", m[1], err)
		}
	}
}

// What the new policy never bans is not banned any more, and is again when that
// policy goes.
func TestNeverBanWinsOverCommands(t *testing.T) {
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a bans"})
	if out := l.must(command{Op: "ban", What: "10.66.7.0/24 10.66.0.1 10.64.0.0/13"}); !strings.Contains(out, "banned 1 refused [{10.66.7.0/24") {
		t.Errorf("got %s", out)
	}
	listing := l.ns.MustRun("nft", "list", "ruleset")
	if !strings.Contains(listing, "10.64.0.0/15") || !strings.Contains(listing, "10.67.0.0-10.71.255.255") || strings.Contains(listing, "10.66") {
		t.Errorf("the kernel bans other ranges:\n%s", listing)
	}
	if s := l.status(); len(s.Drift) > 0 {
		t.Errorf("drift: %v", s.Drift)
	}
}

// What was counted goes on when a ban is prolonged and when ranges are cut again.
func TestHitsGoOn(t *testing.T) {
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a bans"})
	l.must(command{Op: "ban", What: "192.0.2.1 198.51.100.0/24"})
	sets := regexp.MustCompile(`ban\.command_(v4|net4_[ab])_[0-9a-f]{8}`)
	count := func(set, element string) {
		l.ns.Nft(fmt.Sprintf("delete element inet sluice %s { %s }\nadd element inet sluice %s { %s counter packets 7 bytes 70 }", set, element, set, element))
	}
	for _, name := range sets.FindAllString(l.ns.MustRun("nft", "list", "chain", "inet", "sluice", "input"), -1) {
		if strings.Contains(name, "net") {
			count(name, "198.51.100.0/24")
		} else {
			count(name, "192.0.2.1")
		}
	}
	l.must(command{Op: "ban", What: "192.0.2.1 203.0.113.0/24", For: time.Hour})
	have := l.bans()
	if have["192.0.2.1"].Packets != 7 || have["198.51.100.0/24"].Packets != 7 || have["203.0.113.0/24"].Packets != 0 {
		t.Errorf("hits: %+v", have)
	}
}

// In pieces, in one call.
func TestManyBans(t *testing.T) {
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a bans"})
	rounds := testseed.Rounds(2, 3)
	err := l.ns.Do(func() error {
		h := command{Dir: l.dir}.host()
		for round := range rounds {
			out, err := h.Ban(context.Background(), manyBans(50_000+10_000*round))
			if err != nil || out.Banned != 50_000+10_000*round {
				return fmt.Errorf("banned %v: %w", out, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if s := l.status(); len(s.Drift) > 0 {
		t.Errorf("drift: %v", s.Drift)
	}
	if out := l.must(command{Op: "unban", What: "100.64.0.0/10"}); !strings.Contains(out, fmt.Sprintf("lifted %d ", 50_000+10_000*(rounds-1))) {
		t.Errorf("got %s", out)
	}
	l.wantBans("")
}

// A journal is short when what was banned is lifted.
func TestUnbanShortensTheJournal(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a bans"})
	l.must(command{Op: "ban", What: "192.0.2.7"})
	l.inside(func(ctx context.Context, h *Host) error { _, err := h.Ban(ctx, manyBans(10_000)); return err })
	l.must(command{Op: "unban", What: "100.64.0.0/10"})
	if size, err := (command{Dir: l.dir}).host().bansJournal().Size(); err != nil || size > 64<<10 {
		t.Errorf("the journal has %d bytes: %v", size, err)
	}
	l.wantBans("192.0.2.7")
	l.must(command{Op: "ban", What: "192.0.2.8"})
	l.wantBans("192.0.2.7 192.0.2.8")
}

// Bans are renewed when their time is about to be up: those that go between the
// look at them and their replacement hold again too.
func TestBansAreRenewedAtTheirEnd(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a bans"})
	const short = 6 * time.Second
	n := testseed.Rounds(15_000, 60_000)
	l.inside(func(ctx context.Context, h *Host) error {
		in := manyBans(n)
		in.For = short
		begin := time.Now()
		if _, err := h.Ban(ctx, in); err != nil {
			return err
		}
		in.For = time.Hour
		time.Sleep(time.Until(begin.Add(short - 50*time.Millisecond)))
		_, err := h.Ban(ctx, in)
		return err
	})
	time.Sleep(short / 2)
	there := 0
	for _, b := range l.bans() {
		if b.InForce {
			there++
		}
	}
	if there != n {
		t.Errorf("%d of %d hold", there, n)
	}
}

func manyBans(n int) Banning {
	in := Banning{For: 24 * time.Hour}
	for i := range n {
		a := netip.AddrFrom4([4]byte{100, byte(64 + i>>16), byte(i >> 8), byte(i)})
		in.List = append(in.List, bans.Named{What: addrset.Range{From: a, To: a}})
	}
	return in
}

func BenchmarkBan(b *testing.B) {
	l := newLab(b)
	l.must(command{Op: "apply", Policy: "a bans"})
	for _, n := range []int{1, 1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				err := l.ns.Do(func() error {
					_, err := command{Dir: l.dir}.host().Ban(context.Background(), manyBans(n))
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				l.must(command{Op: "unban", What: "0.0.0.0/0"})
				b.StartTimer()
			}
		})
	}
}
