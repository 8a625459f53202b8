package apply

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
)

// A change that fails over rules which bear no mark and were changed by hand
// takes nothing away: once, it took the whole firewall.
func TestFailureOverUnmarkedRulesKeepsThem(t *testing.T) {
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a"})
	l.ns.Nft("delete table inet sluice_generation")
	l.ns.Nft("add counter inet sluice by_hand")
	names := points(t, []command{{Op: "apply", Policy: "a"}}, command{Op: "apply", Policy: "b"})
	at := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, "before switch") })
	if out, err := l.run(command{Op: "apply", Policy: "b", KillAt: fmt.Sprint(at + 1)}); err == nil {
		t.Fatalf("it was not killed: %s", out)
	}
	l.must(command{Op: "settle"})
	if out := l.ns.MustRun("nft", "list", "table", "inet", "sluice"); !strings.Contains(out, "7001") {
		t.Errorf("the rules went:\n%s", out)
	}
}

// A policy that nobody confirmed is gone with the reboot, and what is tried
// afterwards does not go back to it.
func TestUnconfirmedIsGoneWithTheReboot(t *testing.T) {
	l := newLab(t)
	l.must(command{Op: "apply", Policy: "a", Confirm: time.Hour})
	after := newLab(t)
	after.dir = l.dir
	file := filepath.Join(l.dir, currentFile)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	other := regexp.MustCompile(`"boot-id": *"[^"]*"`).ReplaceAll(text, []byte(`"boot-id": "of another boot"`))
	if string(other) == string(text) {
		t.Fatalf("no boot id in %s", text)
	}
	if err := os.WriteFile(file, other, 0o600); err != nil {
		t.Fatal(err)
	}
	after.must(command{Op: "apply", Policy: "b", Confirm: time.Second})
	after.await("")
	after.settled()
	if s := after.status(); s.Boot != 0 {
		t.Errorf("generation %d would boot, and nobody confirmed it", s.Boot)
	}
}

// What a policy on trial was replaced by does not go back to the trial.
func TestRollbackPassesOverATrial(t *testing.T) {
	l := newLab(t)
	l.onTrial()
	l.must(command{Op: "apply", Policy: "c"})
	l.must(command{Op: "rollback", N: -1})
	l.wantHolds("a")
}

// counting notes how a backend was read, and what of a change would be another one had
// the kernel been read before it.
type counting struct {
	backend.Backend
	whole, terse, since, known int
	differs                    []string
}

func (c *counting) Known(ctx context.Context, holds, want backend.Artifact) (backend.State, error) {
	known, err := c.Backend.(backend.Knower).Known(ctx, holds, want)
	if known == nil || err != nil {
		return known, err
	}
	c.known++
	read, err := c.Backend.Read(ctx, false)
	if err != nil {
		return nil, err
	}
	var texts [2][]string
	for i, have := range []backend.State{known, read} {
		steps, err := c.Backend.Steps(want, have)
		if err != nil {
			return nil, err
		}
		for _, step := range steps {
			if script, is := step.Transaction.(nftables.Script); is {
				texts[i] = append(texts[i], strings.Split(string(script), "\n")...)
			}
			texts[i] = append(texts[i], fmt.Sprint(step.Purpose, step.Name))
		}
		slices.Sort(texts[i]) // what nobody uses any more goes in the order in which it is listed
	}
	if !slices.Equal(texts[0], texts[1]) {
		c.differs = append(c.differs, fmt.Sprintf("known:\n%s\nread:\n%s", strings.Join(texts[0], "\n"), strings.Join(texts[1], "\n")))
	}
	return known, nil
}

func (c *counting) Read(ctx context.Context, contents bool) (backend.State, error) {
	if contents {
		c.whole++
	} else {
		c.terse++
	}
	return c.Backend.Read(ctx, contents)
}

func (c *counting) ReadSince(ctx context.Context, before backend.State) (backend.State, error) {
	c.since++
	return c.Backend.ReadSince(ctx, before)
}

// TestReadsWhatWasTouched: a change reads rules after it alone, and sets that it leaves
// alone neither before nor after; but where somebody else was at the ruleset, it finds what
// he did to them, before or meanwhile.
func TestReadsWhatWasTouched(t *testing.T) {
	l := newLab(t)
	l.apply(inputOf("a", "one"), Options{})
	set := strings.Fields(l.ns.MustRun("nft", "list", "sets", "inet"))
	name := set[slices.Index(set, "set")+1]
	change := func(in Input, meanwhile func(point string)) (*counting, error) {
		var c *counting
		var failed error
		l.inside(func(ctx context.Context, h *Host) error {
			c = &counting{Backend: h.Backend}
			h.Backend = c
			if meanwhile != nil {
				h.at = meanwhile
			}
			_, failed = h.Apply(ctx, in, Options{Verify: true})
			return nil
		})
		return c, failed
	}
	c, err := change(alike("two"), nil)
	if err != nil || c.whole != 0 || c.terse != 0 || c.known != 1 || c.since != 1 || len(c.differs) > 0 {
		t.Errorf("nobody else: read %+v, %v", *c, err)
	}
	// Before the change: fixed by it.
	l.ns.MustRun("nft", "add element inet sluice "+name+" { 198.51.100.7 }")
	if c, err = change(inputOf("a", "three"), nil); err != nil || c.whole == 0 {
		t.Errorf("somebody before: read %+v, %v", *c, err)
	}
	l.wantHolds("a")
	// Meanwhile: found, and the change is undone.
	for _, point := range []string{"before switch", "after switch"} {
		done := false
		c, err = change(alike("four"), func(at string) {
			if strings.HasPrefix(at, point) && !done {
				done = true
				l.ns.MustRun("nft", "add element inet sluice "+name+" { 198.51.100.8 }")
			}
		})
		var drift *DriftError
		if !done || !errors.As(err, &drift) || c.whole == 0 {
			t.Errorf("somebody %s: read %+v, %v", point, *c, err)
		}
		l.wantHolds("a")
		// What was undone was not compared: the next one is.
		if out, _ := l.quick(Unchanged{Inputs: "three"}, Options{}); out != nil {
			t.Errorf("undone: told unchanged: %+v", out)
		}
		l.apply(inputOf("a", "three"), Options{})
	}
}

// TestKnownIsWhatIsRead: a change is the same one whether what the kernel holds is read
// before it or known.
func TestKnownIsWhatIsRead(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.apply(inputOf("a bans", ""), Options{})
	for _, policy := range []string{"b bans", "b with 10.0.0.9", "a with 10.0.0.8", "c router", "d bypass", "a", "a bans"} {
		l.inside(func(ctx context.Context, h *Host) error {
			c := &counting{Backend: h.Backend}
			h.Backend = c
			_, err := h.Apply(ctx, inputOf(policy, ""), Options{Verify: true, Force: true})
			if c.known != 1 || len(c.differs) > 0 {
				t.Errorf("%s: %+v", policy, *c)
			}
			return err
		})
	}
}
