package apply

import (
	"strings"
	"testing"
	"time"
)

// TestForgedMarks has a foreign program with CAP_NET_ADMIN write into the kernel what
// Sluice writes there: it can keep a policy on trial, which root applied, and not unseen.
func TestForgedMarks(t *testing.T) {
	t.Run("that it is kept", func(t *testing.T) {
		l := newLab(t)
		l.must(command{Op: "apply", Policy: "a"})
		l.must(command{Op: "apply", Policy: "b", Confirm: time.Hour})
		l.ns.Nft("add chain inet sluice_generation confirmed")
		if out := l.must(command{Op: "settle"}); !strings.Contains(out, "the confirmation of generation 2 is written now") {
			t.Errorf("nothing says that it is confirmed: %s", out)
		}
		if s := l.status(); s.Pending != nil || s.Boot != 2 || !s.Fine() {
			t.Errorf("status: %+v", s)
		}
	})
	t.Run("that the policy before runs", func(t *testing.T) {
		l := newLab(t)
		l.must(command{Op: "apply", Policy: "a"})
		before := l.status().Mark
		l.must(command{Op: "apply", Policy: "b", Confirm: time.Hour})
		l.killWatchers()
		l.ns.Nft("delete table inet sluice_generation; add table inet sluice_generation; add chain inet sluice_generation " + before)
		if s := l.status(); s.Fine() || len(s.Drift) == 0 {
			t.Errorf("the rules of another policy are no drift: %+v", s)
		}
		if s := l.status(); s.Boot != 1 {
			t.Errorf("the policy on trial boots: %+v", s)
		}
		l.must(command{Op: "restore"})
		l.wantHolds("a")
	})
}
