package apply

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"sluice/internal/backend"
	"sluice/internal/language/bans"
)

// refusing has rules that cannot be turned to other sets.
type refusing struct {
	backend.Backend
	backend.Banner
}

var errRefused = errors.New("refused")

func (r refusing) DecodeBanStore(data []byte) (backend.BanStore, error) {
	store, err := r.Banner.DecodeBanStore(data)
	return unturned{store}, err
}

func (r refusing) BanStoreIn(a backend.Artifact, have backend.State) backend.BanStore {
	return unturned{r.Banner.BanStoreIn(a, have)}
}

type unturned struct{ backend.BanStore }

func (u unturned) Edit(ctx context.Context, e backend.BanEdit, now time.Time) (backend.BanPlan, error) {
	plan, err := u.BanStore.Edit(ctx, e, now)
	if plan.Turn != nil {
		plan.Turn = refusal{}
	}
	return plan, err
}

type refusal struct{}

func (refusal) Take(context.Context) error { return errRefused }
func (refusal) Text() string               { return "" }

// A ban that the kernel takes in part is taken back as a whole: there is none
// that no list reports.
func TestBanThatFailsHalfway(t *testing.T) {
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a bans"})
	l.must(command{Op: "ban", What: "192.0.2.1"})
	l.inside(func(ctx context.Context, h *Host) error {
		h.Backend = refusing{h.Backend, h.Backend.(backend.Banner)}
		// The set of IPv4 is asked already, that of IPv6 needs another rule.
		if _, err := h.Ban(ctx, command{What: "192.0.2.2 2001:db8::2"}.banning()); !errors.Is(err, errRefused) || !strings.Contains(err.Error(), "nothing changed") {
			t.Errorf("it was not refused: %v", err)
		}
		if settled, err := bans.Open(h.Dir).Settled(); err != nil || !settled {
			t.Errorf("settled: %v %v", settled, err)
		}
		return nil
	})
	l.wantBans("192.0.2.1")
	l.must(command{Op: "ban", What: "2001:db8::3"})
	l.wantBans("192.0.2.1 2001:db8::3")
	if out := l.ns.MustRun("nft", "list", "ruleset"); strings.Contains(out, "192.0.2.2") || strings.Contains(out, "2001:db8::2 ") {
		t.Errorf("banned, and not told of:\n%s", out)
	}
}
