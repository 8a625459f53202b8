package apply

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice/internal/backend"
	"sluice/internal/backend/memory"
	"sluice/internal/backend/nftables"
	"sluice/internal/language/bans"
)

// several is a namespace whose host has several backends, in the process of the test.
type several struct {
	*lab
	backends []backend.Backend
	at       func(point string)
}

func newSeveral(t *testing.T, backends ...backend.Backend) *several {
	return &several{lab: newLab(t), backends: backends}
}

// do runs f with a host whose new policies are of one of the backends.
func (s *several) do(of backend.Backend, f func(ctx context.Context, h *Host) error) {
	s.t.Helper()
	if err := s.try(of, f); err != nil {
		s.t.Fatal(err)
	}
}

func (s *several) try(of backend.Backend, f func(ctx context.Context, h *Host) error) error {
	h := command{Dir: s.dir}.host()
	h.Note, h.at, h.Backend, h.Others = nil, s.at, of, nil
	for _, b := range s.backends {
		if b.Name() != of.Name() {
			h.Others = append(h.Others, b)
		}
	}
	// What it would restore is in the memory of this process, which does so itself.
	h.Watcher = []string{"/bin/sh", "-c", "echo armed >&3"}
	return s.ns.Do(func() error { return f(context.Background(), h) })
}

func (s *several) input(of backend.Backend, policy string) Input {
	s.t.Helper()
	p := policyOf(policy)
	a, err := of.Lower(p, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return Input{Policy: policy + ".yaml", Program: p, Artifact: a, Files: []Source{SourceOf(policy+".yaml", []byte("policy "+policy))}}
}

func (s *several) apply(of backend.Backend, policy string, confirm time.Duration) {
	s.t.Helper()
	s.do(of, func(ctx context.Context, h *Host) error {
		_, err := h.Apply(ctx, s.input(of, policy), Options{Verify: true, Keep: true, Confirm: confirm})
		return err
	})
}

// wantRuns wants the kernel to hold a policy of one backend, and nothing of others.
func (s *several) wantRuns(of backend.Backend, policy string) {
	s.t.Helper()
	if got, want := s.runs(), of.Name()+" "+policy; got != want {
		s.t.Fatalf("%q runs, want %q", got, want)
	}
}

// runs says which policy of which backend the kernel holds, with its mark.
func (s *several) runs() string {
	s.t.Helper()
	var out []string
	err := s.ns.Do(func() error {
		for _, b := range s.backends {
			have, err := b.Read(s.t.Context(), true)
			if err != nil {
				return err
			}
			mark, _, err := b.Mark(s.t.Context())
			if err != nil {
				return err
			}
			if have.Empty() && mark == "" {
				continue
			}
			found := "something with mark " + mark
			for _, policy := range []string{"a", "b", "c", "a bans", "b bans"} {
				if s.same(b, policy, have) && mark != "" {
					found = policy
				}
			}
			out = append(out, b.Name()+" "+found)
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Join(out, ", ")
}

// same says whether a state is a policy, with rules that ask for what is banned.
func (s *several) same(b backend.Backend, policy string, have backend.State) bool {
	s.t.Helper()
	a := s.input(b, policy).Artifact
	a = b.(backend.Banner).BanStoreIn(a, have).Asking(a)
	d, err := b.Compare(a, have)
	if err != nil {
		s.t.Fatal(err)
	}
	return len(d) == 0
}

func (s *several) wantStatus(of backend.Backend, generation int) {
	s.t.Helper()
	s.do(of, func(ctx context.Context, h *Host) error {
		st, err := h.Status(ctx, true)
		if err == nil && (!st.Fine() || st.Generation == nil || st.Generation.Number != generation) {
			err = fmt.Errorf("status %+v, want generation %d", st, generation)
		}
		return err
	})
}

func (s *several) wantBanned(of backend.Backend, what string) {
	s.t.Helper()
	s.do(of, func(ctx context.Context, h *Host) error {
		list, err := h.Bans(ctx)
		if err == nil && (len(list) != 1 || list[0].What != what || !list[0].InForce) {
			err = fmt.Errorf("banned are %+v, want %s", list, what)
		}
		return err
	})
}

func (s *several) ban(of backend.Backend, what string) {
	s.t.Helper()
	s.do(of, func(ctx context.Context, h *Host) error {
		_, err := h.Ban(ctx, Banning{List: []bans.Named{{What: ranges(what)[0]}}, Force: true})
		return err
	})
}

func rollback(ctx context.Context, h *Host) error {
	_, err := h.Rollback(ctx, Before, Options{Verify: true}, nil)
	return err
}

// TestAnotherBackend: a policy is applied, confirmed, refreshed, gone back from,
// restored and removed by a backend that is none of nftables, and bans hold.
func TestAnotherBackend(t *testing.T) {
	b := memory.New()
	s := newSeveral(t, b)
	s.apply(b, "a bans", time.Hour)
	s.wantRuns(b, "a bans")
	s.do(b, func(ctx context.Context, h *Host) error { _, err := h.Confirm(ctx); return err })
	s.ban(b, "192.0.2.1")
	s.wantBanned(b, "192.0.2.1")
	s.apply(b, "b bans", 0)
	s.wantRuns(b, "b bans")
	s.wantBanned(b, "192.0.2.1")
	s.wantStatus(b, 2)
	s.do(b, func(ctx context.Context, h *Host) error {
		again, err := h.Apply(ctx, s.input(b, "b bans"), Options{Verify: true, Keep: true})
		if err == nil && !again.Unchanged {
			err = fmt.Errorf("applied again: %+v", again)
		}
		return err
	})
	s.do(b, func(ctx context.Context, h *Host) error {
		out, err := h.Refresh(ctx, Refreshing{Input: s.input(b, "a bans"), Generation: 2})
		if err == nil && out.Generation != 3 {
			err = fmt.Errorf("refreshed: %+v", out)
		}
		return err
	})
	s.wantRuns(b, "a bans")
	s.do(b, func(ctx context.Context, h *Host) error {
		_, err := h.Rollback(ctx, 2, Options{Verify: true}, nil)
		return err
	})
	s.wantRuns(b, "b bans")
	flush(t, b)
	s.do(b, func(ctx context.Context, h *Host) error { _, err := h.Restore(ctx, Restoring{}); return err })
	s.wantRuns(b, "b bans")
	s.wantBanned(b, "192.0.2.1")
	s.do(b, func(ctx context.Context, h *Host) error { _, err := h.Remove(ctx); return err })
	if got := s.runs(); got != "" {
		t.Errorf("behind a removal %s runs", got)
	}
}

// TestChangeOfBackend: a policy of one backend takes the place of one of another, and
// the way back from it is open, on request and when nobody confirms it.
func TestChangeOfBackend(t *testing.T) {
	nft, model := nftables.New(), memory.New()
	s := newSeveral(t, nft, model)
	s.apply(nft, "a bans", 0)
	s.ban(nft, "192.0.2.1")
	s.do(model, func(ctx context.Context, h *Host) error {
		p, err := h.Plan(ctx, s.input(model, "b bans"))
		if err == nil && (len(p.Steps) == 0 || p.Steps[len(p.Steps)-1] != "switch: delete the table") {
			err = fmt.Errorf("planned: %q", p.Steps)
		}
		return err
	})
	s.apply(model, "b bans", 0)
	s.wantRuns(model, "b bans")
	s.wantStatus(model, 2)
	s.wantStatus(nft, 2)
	s.wantBanned(nft, "192.0.2.1")
	s.do(model, rollback)
	s.wantRuns(nft, "a bans")
	s.wantStatus(model, 1)
	s.wantBanned(model, "192.0.2.1")

	s.apply(model, "b", time.Hour)
	s.wantRuns(model, "b")
	s.do(nft, rollback)
	s.wantRuns(nft, "a bans")

	s.apply(model, "b", time.Second)
	s.wantRuns(model, "b")
	await(t, "the trial is taken back", func() bool {
		s.do(model, func(ctx context.Context, h *Host) error { _, err := h.Status(ctx, false); return err })
		return s.runs() == "nftables a bans"
	})
	s.wantBanned(nft, "192.0.2.1")
}

// TestChangeOfBackendStopped: wherever a change of the backend ends, or the way back, the
// next command leaves one policy alone, as a whole.
func TestChangeOfBackendStopped(t *testing.T) {
	for stop := 1; ; stop++ {
		nft, model := nftables.New(), memory.New()
		s := newSeveral(t, nft, model)
		s.apply(nft, "a", 0)
		reached := s.stopped(model, stop, func(ctx context.Context, h *Host) error {
			_, err := h.Apply(ctx, s.input(model, "b"), Options{Verify: true, Keep: true})
			return err
		})
		s.wantSettled(reached, "nftables a", "memory b")
		s.apply(model, "b", 0)
		point := s.stopped(nft, stop, rollback)
		s.wantSettled(point, "memory b", "nftables a")
		if reached == "" && point == "" {
			if stop < 10 {
				t.Errorf("only %d points", stop-1)
			}
			return
		}
	}
}

// stopped runs f up to its n-th point, and says which one that was; "" where it has
// no so many.
func (s *several) stopped(of backend.Backend, n int, f func(ctx context.Context, h *Host) error) (point string) {
	s.t.Helper()
	type end string
	s.at = func(name string) {
		if n--; n == 0 {
			panic(end(name))
		}
	}
	defer func() { s.at = nil }()
	s.do(of, func(ctx context.Context, h *Host) (err error) {
		defer func() {
			switch reason := recover().(type) {
			case nil:
			case end:
				point = string(reason)
			default:
				panic(reason)
			}
		}()
		return f(ctx, h)
	})
	return point
}

// wantSettled wants the next command to finish a change where the rules had switched, and
// to undo it where they had not.
func (s *several) wantSettled(point, from, to string) {
	s.t.Helper()
	want := from
	if strings.Contains(s.runs(), to) {
		want = to
	}
	s.do(s.backends[0], func(ctx context.Context, h *Host) error { _, err := h.Status(ctx, true); return err })
	if got := s.runs(); got != want {
		s.t.Fatalf("stopped %s: %q runs, want %q", point, got, want)
	}
}

// flush takes everything away behind Sluice's back.
func flush(t *testing.T, b backend.Backend) {
	t.Helper()
	have, err := b.Read(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := b.Steps(nil, have)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range b.Marked(steps, "") {
		if err := step.Take(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
