package apply

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// sets are the names of those in the kernel's table.
func (l *lab) sets() []string {
	l.t.Helper()
	var out []string
	for line := range strings.Lines(l.ns.MustRun("nft", "-t", "list", "ruleset")) {
		if words := strings.Fields(line); len(words) == 3 && (words[0] == "set" || words[0] == "map") {
			out = append(out, words[1])
		}
	}
	slices.Sort(out)
	return out
}

// trace runs a command and gives its points.
func (l *lab) trace(c command) []string {
	l.t.Helper()
	c.Trace = filepath.Join(l.t.TempDir(), "trace")
	l.must(c)
	file, err := os.Open(c.Trace)
	if err != nil {
		l.t.Fatal(err)
	}
	defer file.Close()
	var out []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		out = append(out, lines.Text())
	}
	return out
}

func fills(points []string) []string {
	return slices.DeleteFunc(points, func(p string) bool { return !strings.HasPrefix(p, "before fill ") })
}

// TestSetsStayUntilTheConfirmation: what a trial replaces stays in the kernel, is no
// drift, and going back fills nothing; the confirmation sweeps it.
func TestSetsStayUntilTheConfirmation(t *testing.T) {
	tests := []struct {
		name, before, trial string
		dear                bool // sets are laid out in maps
	}{
		{"small", "a", "b", false},
		{"large", "a wide", "b wide", false},
		{"laid out", "a wide", "b wide", true},
		{"edited in place", "a with 192.0.2.1 2001:db8::1", "b", false},
		{"with bans", "a bans", "b", false},
	}
	for _, test := range tests {
		if testing.Short() && test.name == "large" {
			continue // it is between "small" and "laid out"
		}
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			before := command{Op: "apply", Policy: test.before, Dear: test.dear}
			trial := command{Op: "apply", Policy: test.trial, Confirm: time.Hour, Dear: test.dear}
			l.must(before)
			old := l.sets()
			both := func() {
				t.Helper()
				now := l.sets()
				for _, name := range old {
					if !slices.Contains(now, name) {
						t.Errorf("set %s is gone, of %v there are %v", name, old, now)
					}
				}
				if s := l.status(); !s.Fine() {
					t.Errorf("on trial: %+v", s)
				}
				if out := l.must(command{Op: "verify"}); !strings.Contains(out, `"proved":true`) || !strings.Contains(out, `"form":0`) {
					t.Errorf("on trial: %s", out)
				}
			}
			l.must(trial)
			both()
			if out := l.must(trial); !strings.Contains(out, "unchanged true") {
				t.Errorf("the same again: %s", out)
			}
			both()
			if filled := fills(l.trace(command{Op: "rollback", N: Before})); len(filled) > 0 {
				t.Errorf("going back filled %v", filled)
			}
			if now := l.sets(); !slices.Equal(now, old) {
				t.Errorf("back again there are %v, and were %v", now, old)
			}
			if s := l.status(); !s.Fine() {
				t.Errorf("back again: %+v", s)
			}
			// One trial behind the other: only what returns stays.
			l.must(trial)
			l.must(command{Op: "apply", Policy: "c", Confirm: time.Hour, Dear: test.dear})
			both()
			l.must(command{Op: "confirm"})
			for _, name := range l.sets() {
				if slices.Contains(old, name) {
					t.Errorf("set %s stays behind the confirmation", name)
				}
			}
			if s := l.status(); !s.Fine() {
				t.Errorf("confirmed: %+v", s)
			}
		})
	}
}

// TestSetsAreSweptWhateverElseDiffers: what the host is has moved on a trial, or
// somebody was at the elements or the rules, when it is confirmed.
func TestSetsAreSweptWhateverElseDiffers(t *testing.T) {
	const living = " with 192.0.2.1 2001:db8::1"
	tests := []struct {
		name, suffix string
		harm, fix    func(l *lab)
		stays        bool // until it is fixed
	}{
		{"default route of IPv4", " route", func(l *lab) {
			l.ns.MustRun("ip", "route", "replace", "default", "dev", "up2")
		}, func(l *lab) { l.must(command{Op: "sync"}) }, false},
		{"default route of IPv6", " route", func(l *lab) {
			l.ns.MustRun("ip", "-6", "route", "add", "default", "dev", "up2")
		}, func(l *lab) { l.must(command{Op: "sync"}) }, false},
		{"an element of IPv4", living, func(l *lab) {
			l.ns.Nft("delete element inet sluice dropped_v4 { 192.0.2.1 }")
		}, func(l *lab) {
			l.ns.Nft("add element inet sluice dropped_v4 { 192.0.2.1 }")
		}, false},
		{"an element of IPv6", living, func(l *lab) {
			l.ns.Nft("delete element inet sluice dropped_v6 { 2001:db8::1 }")
		}, func(l *lab) {
			l.ns.Nft("add element inet sluice dropped_v6 { 2001:db8::1 }")
		}, false},
		{"the rules", "", func(l *lab) {
			l.ns.Nft("add chain inet sluice foreign; add rule inet sluice foreign counter")
		}, func(l *lab) { l.ns.Nft("flush chain inet sluice foreign; delete chain inet sluice foreign") }, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l := newLab(t)
			for _, device := range []string{"up1", "up2"} {
				l.ns.MustRun("ip", "link", "add", device, "type", "veth", "peer", "name", device+"far")
				l.ns.MustRun("ip", "link", "set", device, "up")
			}
			l.ns.MustRun("ip", "route", "add", "default", "dev", "up1")
			l.must(command{Op: "apply", Policy: "a" + test.suffix})
			at := slices.IndexFunc(l.sets(), func(name string) bool { return strings.HasPrefix(name, "served4_") })
			old := l.sets()[at]
			l.must(command{Op: "apply", Policy: "b" + test.suffix, Confirm: time.Hour})
			test.harm(l)
			l.must(command{Op: "confirm"})
			if stays := slices.Contains(l.sets(), old); stays != test.stays {
				t.Errorf("confirmed: the set of before stays: %v", stays)
			}
			if s := l.status(); s.Fine() {
				t.Error("what differs is not told of")
			}
			test.fix(l)
			for range 2 {
				if s := l.status(); !s.Fine() {
					t.Errorf("fixed: %+v", s)
				}
			}
			if slices.Contains(l.sets(), old) {
				t.Error("fixed: the set of before is there")
			}
		})
	}
}
