package stress

import (
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"sluice/internal/lab/testnet"
)

func TestMain(m *testing.M) {
	if status, asked := HandIfAsked(); asked {
		os.Exit(status)
	}
	status := m.Run()
	if built != "" {
		_ = os.RemoveAll(built)
	}
	os.Exit(status)
}

// newRun makes a run on the built-in country data.
func newRun(t *testing.T) *Run {
	t.Helper()
	testnet.Require(t, testnet.Nftables, testnet.NftNAT)
	r := &Run{Dir: t.TempDir(), Seed: 1, Out: t.Output()}
	if err := r.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// long leaves a test out of short runs, those with the race detector: what works
// side by side here is in the test that is left.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("not in short runs")
	}
	t.Parallel()
}

func judge(t *testing.T, out result, wrong ...string) {
	t.Helper()
	out.print(t.Output())
	for _, w := range append(out.wrong(), wrong...) {
		t.Error(w)
	}
}

// TestAlternatingApplies applies two policies in turn under all the traffic.
func TestAlternatingApplies(t *testing.T) {
	t.Parallel()
	s := setting{geography: fewCountries, untracked: sameBypass, applies: 8, warm: 4}
	if testing.Short() {
		s.applies, s.warm = 4, 2
	}
	out, err := newRun(t).alternate(t.Context(), testnet.New(t), s)
	if err != nil {
		t.Fatal(err)
	}
	judge(t, out, out.Counts.idle()...)
}

// TestAlternatingTracking changes what is tracked, too.
func TestAlternatingTracking(t *testing.T) {
	long(t)
	out, err := newRun(t).alternate(t.Context(), testnet.New(t), setting{geography: fewCountries, untracked: otherBypass, applies: 4, warm: 2})
	if err != nil {
		t.Fatal(err)
	}
	judge(t, out, out.Counts.idle()...)
}

// program is the real thing, built once.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sluice-stress-")
	if err != nil {
		return "", err
	}
	built = dir
	return testnet.Sluice(dir)
})

// built is the folder to remove, "" for none.
var built string

// TestRefreshes refreshes a list that rules ask both ways, and one that is
// banned.
func TestRefreshes(t *testing.T) {
	long(t)
	for name, s := range map[string]refreshing{
		"rules": {size: [2]int{8000, 2000}, refreshes: 5, warm: 2},
		"bans":  {size: [2]int{8000, 2000}, refreshes: 5, warm: 2, bans: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRun(t)
			var err error
			if r.Binary, err = program(); err != nil {
				t.Fatal(err)
			}
			out, err := r.refresh(t.Context(), testnet.New(t), s)
			if err != nil {
				t.Fatal(err)
			}
			judge(t, out)
		})
	}
}

// TestDay has an agent live through some hours, one behind the end of the other.
func TestDay(t *testing.T) {
	long(t)
	r := newRun(t)
	var err error
	if r.Binary, err = program(); err != nil {
		t.Fatal(err)
	}
	out, err := r.live(t.Context(), testnet.New(t), dayHours, 5*time.Minute/dayHours)
	if err != nil {
		t.Fatal(err)
	}
	judge(t, out)
}

// TestControls has the counts show what is wrong on purpose.
func TestControls(t *testing.T) {
	long(t)
	out, err := newRun(t).control(t.Context(), testnet.New(t), someCountries, 20)
	if err != nil {
		t.Fatal(err)
	}
	judge(t, out)
}

// idle is what should have been seen and was not: without it a run shows nothing.
func (c *counts) idle() (out []string) {
	for _, f := range slices.Concat(c.Flows, c.Services) {
		if f.Sent == 0 {
			out = append(out, f.Name+": nothing was sent")
		}
	}
	return out
}
