package stress

import (
	"os"
	"testing"

	"sluice/internal/testnet"
)

func TestMain(m *testing.M) {
	if status, asked := HandIfAsked(); asked {
		os.Exit(status)
	}
	os.Exit(m.Run())
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

func judge(t *testing.T, out result, wrong ...string) {
	t.Helper()
	out.print(t.Output())
	for _, w := range append(out.wrong(), wrong...) {
		t.Error(w)
	}
}

// TestAlternatingApplies applies two policies by turns under all the traffic.
func TestAlternatingApplies(t *testing.T) {
	t.Parallel()
	out, err := newRun(t).alternate(t.Context(), testnet.New(t), setting{geography: fewCountries, untracked: sameBypass, applies: 12, warm: 4})
	if err != nil {
		t.Fatal(err)
	}
	judge(t, out, out.Counts.idle()...)
}

// TestAlternatingTracking changes what is tracked, too.
func TestAlternatingTracking(t *testing.T) {
	t.Parallel()
	out, err := newRun(t).alternate(t.Context(), testnet.New(t), setting{geography: fewCountries, untracked: otherBypass, applies: 4, warm: 2})
	if err != nil {
		t.Fatal(err)
	}
	judge(t, out, out.Counts.idle()...)
}

// TestControls has the counts show what is wrong on purpose.
func TestControls(t *testing.T) {
	t.Parallel()
	out, err := newRun(t).control(t.Context(), testnet.New(t), someCountries, 20)
	if err != nil {
		t.Fatal(err)
	}
	judge(t, out)
}
