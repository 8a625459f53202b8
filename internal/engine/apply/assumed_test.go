package apply

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
)

// editing is counting for a backend that tells what differs.
type editing struct{ counting }

func (e *editing) Edits(want backend.Artifact, from, to [][]byte) ([]backend.Step, bool) {
	return nftables.New().(backend.Editor).Edits(want, from, to)
}

func (e *editing) reads() int { return e.whole + e.terse + e.since }

// TestFewElements: a few elements more or less are applied and read back without
// reading anything else; not where somebody was at the ruleset, before or meanwhile,
// nor where more differs than that.
func TestFewElements(t *testing.T) {
	l := newLab(t)
	apply := func(policy string, meanwhile func(point string)) (e *editing, failed error) {
		t.Helper()
		l.inside(func(ctx context.Context, h *Host) error {
			e = &editing{counting{Backend: h.Backend}}
			h.Backend, h.at = e, meanwhile
			_, failed = h.Apply(ctx, inputOf(policy, policy), Options{Verify: true})
			return nil
		})
		return e, failed
	}
	fine := func(what, policy string, reads bool) {
		t.Helper()
		e, err := apply(policy, nil)
		if err != nil || (e.reads() > 0) != reads {
			t.Errorf("%s: read %d times, %v", what, e.reads(), err)
		}
		if got := l.holds(policy); got != policy {
			t.Fatalf("%s: the kernel holds %s", what, got)
		}
		if out, _ := l.quick(Unchanged{Inputs: policy}, Options{}); out == nil || !out.Unchanged {
			t.Errorf("%s: the same again is not told unchanged", what)
		}
	}
	one, two := "a with 192.0.2.1", "a with 192.0.2.1 192.0.2.9 2001:db8::1"
	fine("the first", one, true)
	fine("two more", two, false)
	fine("one in place of three", "a with 198.51.100.1", false)
	fine("none", "a with ", false)
	fine("other rules", "b with 192.0.2.1", true)
	fine("and back", one, true)
	many := "a with"
	for i := range maxTouched + 1 {
		many += fmt.Sprintf(" 198.51.100.%d", 2*i)
	}
	fine("many", many, true)
	l.ns.MustRun("nft", "add element inet sluice dropped_v4 { 198.51.100.7 }")
	fine("somebody before", two, true)
	for _, point := range []string{"before switch", "before edit", "after edit"} {
		done := false
		e, err := apply(one, func(at string) {
			if strings.HasPrefix(at, point) && !done {
				done = true
				l.ns.MustRun("nft", "add element inet sluice dropped_v4 { 198.51.100.8 }")
			}
		})
		var drift *DriftError
		if !done || !errors.As(err, &drift) || e.reads() == 0 {
			t.Errorf("somebody %s: %v, read %d times, %v", point, done, e.reads(), err)
		}
		if got := l.holds(two); got != two {
			t.Fatalf("somebody %s: the kernel holds %s", point, got)
		}
		fine("after somebody "+point, two, true)
	}
	// What was written goes before it is looked up.
	gone := false
	e, err := apply("a with 192.0.2.1 192.0.2.9 192.0.2.77 2001:db8::1", func(at string) {
		if strings.HasPrefix(at, "after edit") && !gone {
			gone = true
			l.ns.MustRun("nft", "delete element inet sluice dropped_v4 { 192.0.2.77 }")
		}
	})
	if err == nil || !gone || e.reads() == 0 {
		t.Errorf("an element that went at once was not missed: %v, %v", gone, err)
	}
}

// TestEditsAreKept: who asks for it has a few elements confirmed at once, and all else on
// trial: other rules, many elements, what nobody confirmed yet, and where somebody was at the
// ruleset.
func TestEditsAreKept(t *testing.T) {
	l := newLab(t)
	apply := func(policy string) (out *Outcome) {
		t.Helper()
		l.inside(func(ctx context.Context, h *Host) (err error) {
			h.Watcher = []string{"/bin/sh", "-c", "echo armed >&3"}
			out, err = h.Apply(ctx, inputOf(policy, policy), Options{Confirm: time.Hour, KeepEdits: true, Verify: true})
			return err
		})
		return out
	}
	trial := func(what, policy string, tried bool) {
		t.Helper()
		out := apply(policy)
		if (out.Pending != nil) != tried || out.Edited == tried {
			t.Errorf("%s: pending %+v, edited %v", what, out.Pending, out.Edited)
		}
		if got := l.holds(policy); got != policy {
			t.Fatalf("%s: the kernel holds %s", what, got)
		}
		l.inside(func(ctx context.Context, h *Host) error {
			if all, err := h.History(); err != nil || tried == (all.Boot == out.Generation) {
				t.Errorf("%s: generation %d boots, %v", what, all.Boot, err)
			}
			return nil
		})
	}
	confirm := func() {
		t.Helper()
		l.inside(func(ctx context.Context, h *Host) error {
			h.Watcher = []string{"/bin/sh", "-c", "echo armed >&3"}
			_, err := h.Confirm(ctx)
			return err
		})
	}
	one, two := "a with 192.0.2.1", "a with 192.0.2.9 2001:db8::1"
	l.apply(inputOf(one, one), Options{})
	trial("two in place of one", two, false)
	trial("none", "a with ", false)
	trial("other rules", "b with ", true)
	if out := apply("b with 192.0.2.7"); out.Pending == nil {
		t.Error("one more on trial is kept")
	}
	confirm()
	trial("one more", "b with 192.0.2.7 192.0.2.8", false)
	many := "b with"
	for i := range maxTouched + 1 {
		many += fmt.Sprintf(" 198.51.100.%d", 2*i)
	}
	trial("many", many, true)
	confirm()
	l.ns.MustRun("nft", "add element inet sluice dropped_v4 { 198.51.100.7 }")
	trial("somebody before", "b with 192.0.2.7", true)
	confirm()
	trial("again", "b with 192.0.2.8", false)
	l.inside(func(ctx context.Context, h *Host) error {
		if back, err := h.Rollback(ctx, Before, Options{Verify: true}, nil); err != nil || back.Pending != nil {
			t.Errorf("%+v, %v", back, err)
		}
		return nil
	})
	if want := "b with 192.0.2.7"; l.holds(want) != want {
		t.Errorf("gone back, the kernel holds %s", l.holds(want))
	}
}
