package apply

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
)

// editing is counting for a backend that tells what differs.
type editing struct{ counting }

func (e *editing) Edits(want backend.Artifact, from, to [][]byte) ([]backend.Step, bool) {
	return nftables.New().(backend.Editor).Edits(want, from, to)
}

func (e *editing) reads() int { return e.whole + e.terse + e.since }

// TestFewElements: a few elements more or less are brought in and read back without
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
