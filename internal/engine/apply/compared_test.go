package apply

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/language/bans"
)

// trusts says whether an apply of the policy that runs would read its bans.
func (l *lab) trusts(ahead time.Duration) (trusted bool) {
	l.t.Helper()
	l.inside(func(ctx context.Context, h *Host) error {
		h.Now = func() time.Time { return time.Now().Add(ahead) }
		s, _, err := h.open(ctx)
		if err != nil {
			return err
		}
		defer s.close()
		g, err := s.generation(s.cur.Running)
		if err != nil {
			return err
		}
		c, err := s.commands(g)
		if err == nil {
			trusted = s.trustBans(s.reading(), c.BanStore)
		}
		return err
	})
	return trusted
}

// Bans that were compared need not be read while nobody was at the ruleset, the journal
// or the clock. What somebody else did is found by the next apply, of whatever policy.
func TestBansThatWereCompared(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	known := func(what string) {
		t.Helper()
		if !l.trusts(0) {
			t.Errorf("%s: bans are read again", what)
		}
	}
	unknown := func(what string) {
		t.Helper()
		if l.trusts(0) {
			t.Errorf("%s: bans are not read", what)
		}
	}
	l.must(command{Op: "apply", Policy: "a bans"})
	known("the first policy")
	l.must(command{Op: "ban", What: "192.0.2.1 2001:db8::1"})
	l.must(command{Op: "ban", What: "192.0.2.2", For: time.Hour})
	l.must(command{Op: "ban", What: "192.0.2.3 192.0.2.4"})
	l.must(command{Op: "apply", Policy: "b bans"})
	known("another policy")
	l.must(command{Op: "ban", What: "192.0.2.5"})
	known("a ban")
	l.must(command{Op: "unban", What: "192.0.2.3"})
	known("a ban lifted")
	const left = "192.0.2.1 192.0.2.2 192.0.2.4 192.0.2.5 2001:db8::1"
	l.wantBans(left)
	if l.trusts(time.Hour) {
		t.Error("the clock was set: bans are not read")
	}

	// What reads them back is for a few addresses.
	l.must(command{Op: "ban", What: "198.51.100.0/24"})
	unknown("a range")
	l.must(command{Op: "apply", Policy: "a bans"})
	known("a range, and another policy")
	l.must(command{Op: "unban", What: "198.51.100.0/24"})
	l.must(command{Op: "apply", Policy: "b bans"})

	set := ""
	for _, name := range strings.Fields(l.ns.MustRun("nft", "list", "sets", "inet")) {
		if matched, _ := filepath.Match("ban.command_v4_*", name); matched {
			set = name
		}
	}
	for what, edit := range map[string]func(){
		"an address gone": func() { l.ns.MustRun("nft", "delete element inet sluice "+set+" { 192.0.2.1 }") },
		"an address more": func() { l.ns.MustRun("nft", "add element inet sluice "+set+" { 203.0.113.1 }") },
		"another time": func() {
			l.ns.MustRun("nft", "delete element inet sluice "+set+" { 192.0.2.4 }; add element inet sluice "+set+" { 192.0.2.4 timeout 1d }")
		},
	} {
		edit()
		unknown(what)
		l.must(command{Op: "apply", Policy: "a bans"})
		l.wantBans(left)
		known(what + ", and fixed")
		l.must(command{Op: "apply", Policy: "b bans"})
		known(what + ", and another policy")
	}

	by := bans.Author{User: "somebody"}
	journal := bans.Open(l.dir)
	if _, err := journal.Append(bans.EntryOf([]bans.Ban{{What: ranges("192.0.2.9")[0]}}, time.Now(), by)); err != nil {
		t.Fatal(err)
	}
	if err := journal.Settle(); err != nil {
		t.Fatal(err)
	}
	unknown("a journal with a ban more")
	l.must(command{Op: "apply", Policy: "a bans"})
	l.wantBans(left + " 192.0.2.9")
	known("a journal with a ban more, and another policy")
	if err := os.Remove(filepath.Join(l.dir, bans.File)); err != nil {
		t.Fatal(err)
	}
	unknown("no journal")
	l.must(command{Op: "apply", Policy: "b bans"})
	l.wantBans("")

	l.must(command{Op: "ban", What: "192.0.2.1 203.0.113.1"})
	known("before never-ban")
	l.must(command{Op: "apply", Policy: "a sparing bans"})
	if have := l.bans(); have["192.0.2.1"].InForce || !have["203.0.113.1"].InForce {
		t.Errorf("never-ban has changed: %+v", have)
	}
	unknown("a ban that never-ban spares")
	l.must(command{Op: "apply", Policy: "b bans"})
	l.wantBans("192.0.2.1 203.0.113.1")

	// A verify reads them whatever is known, and knows afterwards.
	l.ns.MustRun("nft", "add table ip foreign")
	unknown("another tool's table")
	l.must(command{Op: "apply", Policy: "a bans"})
	l.must(command{Op: "ban", What: "198.51.100.0/24"})
	unknown("a range")
	l.inside(func(ctx context.Context, h *Host) error {
		_, err := h.Verify(ctx, "", nil)
		return err
	})
	known("a verify")
}
