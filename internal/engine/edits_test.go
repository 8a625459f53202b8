package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/base/testseed"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/netns"
)

// groups is a policy of a fleet with what its sets by guests hold.
type groups struct {
	dir     string
	members map[string][]int
}

func (g *groups) write(t *testing.T) engine.Request {
	t.Helper()
	view := "version: 1\nfleet: fleet.yaml\nhost: h1\nmembers:\n"
	sets := ""
	for _, name := range []string{"a", "b", "c", "d"} {
		view += "  " + name + ":\n"
		for _, n := range g.members[name] {
			view += fmt.Sprintf("  - 10.30.%d.%d\n  - \"2001:db8:30::%x\"\n", n>>8, n&255, n)
		}
		sets += fmt.Sprintf("  %s: {guests: app=%s, within: [10.30.0.0/16, \"2001:db8:30::/48\"]}\n", name, name)
	}
	for name, text := range map[string]string{
		"host.yaml":  view,
		"fleet.yaml": "version: 1\nfleet: example.net\nparts: [parts/*.yaml]\nroll-out: {stages: [100%], settle: none}\nsets:\n" + sets,
		"parts/10.yaml": `version: 1
sets: { both: { union: [c, d] } }
input: { default: drop, rules: [allow ssh, allow tcp/7001 from a, allow tcp/7001 from b, allow udp/53 from not c] }
forward: { default: drop, rules: [allow postgresql from a to b, drop tcp/80 from c to d, allow http from both, allow tcp/7100-7200 from b to 192.0.2.1] }
`,
	} {
		file := filepath.Join(g.dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return engine.Request{File: filepath.Join(g.dir, "host.yaml")}
}

// TestEditsAreWhole: members that are edited one by one leave the kernel as a whole load does
// that knows nothing of what was there, and as the policy says.
func TestEditsAreWhole(t *testing.T) {
	testnet.Require(t, testnet.Nftables)
	random := testseed.Rand(t)
	net := testnet.New(t)
	host := func(label string) (*engine.Host, *testnet.Namespace) {
		space := net.Unnamed(label)
		h, err := engine.NewHost(t.TempDir(), "", "test")
		if err != nil {
			t.Fatal(err)
		}
		h.Watcher = []string{"/bin/sh", "-c", "echo armed >&3"}
		if h.Netns, err = netns.Open(space.Path()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = h.Netns.Close() })
		return h, space
	}
	quick, inQuick := host("quick")
	whole, inWhole := host("whole")
	g := &groups{t.TempDir(), map[string][]int{"a": {1, 2}, "b": {3}, "c": {5, 700}, "d": {4}}}
	if _, err := quick.Apply(t.Context(), g.write(t), apply.Options{Verify: true}); err != nil {
		t.Fatal(err)
	}
	edited := 0
	rounds := 40
	if testing.Short() {
		rounds = 12
	}
	for round := range rounds {
		before := fmt.Sprint(g.members)
		for range 1 + random.IntN(4) {
			name := string(rune('a' + random.IntN(4)))
			if is := g.members[name]; len(is) > 0 && random.IntN(3) == 0 {
				at := random.IntN(len(is))
				g.members[name] = slices.Delete(slices.Clone(is), at, at+1)
			} else if n := 1 + random.IntN(900); !slices.Contains(is, n) {
				g.members[name] = append(slices.Clone(is), n)
			}
		}
		if random.IntN(8) == 0 { // a range, which no element is
			for n := range 40 {
				if !slices.Contains(g.members["a"], 60+n) {
					g.members["a"] = append(slices.Clone(g.members["a"]), 60+n)
				}
			}
		}
		r := g.write(t)
		out, err := quick.Apply(t.Context(), r, apply.Options{Confirm: time.Hour, KeepEdits: true, Verify: true})
		if err != nil {
			t.Fatal(err)
		}
		if out.Pending != nil {
			if _, err := quick.Confirm(t.Context()); err != nil {
				t.Fatal(err)
			}
		} else if out.Edited {
			edited++
		}
		if round > 0 {
			if _, err := whole.Remove(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := whole.Apply(t.Context(), r, apply.Options{Verify: true}); err != nil {
			t.Fatal(err)
		}
		if a, b := tokens(inQuick), tokens(inWhole); a != b {
			t.Fatalf("%s and then %v, edited %v:\n%s\n\nand whole:\n%s", before, g.members, out.Edited, a, b)
		}
		if v, err := quick.Verify(t.Context(), nil, true); err != nil || !v.Proved || v.Form > 0 {
			t.Fatalf("%s and then %v: %+v, %v", before, g.members, v, err)
		}
		if s, err := quick.Status(t.Context(), true); err != nil || !s.Fine() || s.Boot != out.Generation {
			t.Fatalf("%s and then %v: %+v, %v", before, g.members, s, err)
		}
	}
	if edited == 0 || edited == rounds {
		t.Errorf("%d of %d changes were edits", edited, rounds)
	}
}

// tokens are what a table has, without the order of elements.
func tokens(in *testnet.Namespace) string {
	out := strings.FieldsFunc(in.MustRun("nft", "list", "table", "inet", "sluice"), func(r rune) bool { return strings.ContainsRune(" \t\n,", r) })
	slices.Sort(out)
	return strings.Join(out, " ")
}
