package applybench

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"sluice/internal/lab/testnet"
)

// failing is a rival whose nth change fails, and that counts what it is asked.
type failing struct{ fails, made int }

func (f *failing) empty(context.Context) error                           { return nil }
func (f *failing) prepare(context.Context, change, *state, *state) error { return nil }
func (f *failing) make(context.Context, *work) error {
	if f.made++; f.made == f.fails {
		return errors.New("it is late\nand says more")
	}
	return nil
}

// A rival that fails is left out from there on, with its reason, and the others go on;
// what is measured itself ends the run.
func TestRivalThatFails(t *testing.T) {
	net := testnet.New(t)
	run := func(name string, r *failing) (*bench, *failing, error) {
		l, err := newLab(net, "failing", "eth0")
		if err != nil {
			t.Fatal(err)
		}
		other := &failing{}
		b := &bench{
			Options: Options{Rounds: 3}, noGeo: "none", results: results{cells: map[key]*cell{}},
			rivals: []*entrant{{name: name, rival: r, lab: l}, {name: Careful, rival: other, lab: l}},
		}
		return b, other, b.measure(t.Context())
	}
	bad := &failing{fails: 5}
	b, other, err := run(NFT, bad)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{NFT + " is left out from round 2 on: reload, nothing changed: it is late"}; !slices.Equal(b.warnings, want) {
		t.Errorf("warnings %q, want %q", b.warnings, want)
	}
	if want := 3 * (3 + 1 + 1); bad.made != 5 || other.made != want {
		t.Errorf("the rival that failed made %d changes and the other %d, want 5 and %d", bad.made, other.made, want)
	}
	if _, _, err := run(Sluice, &failing{fails: 2}); err == nil || !strings.HasPrefix(err.Error(), "sluice: reload, nothing changed: it is late") {
		t.Errorf("what is measured itself has failed, and the run says %v", err)
	}
}
