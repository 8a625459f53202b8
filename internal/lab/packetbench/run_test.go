package packetbench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/figures"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/testnet"
	"sluice/internal/language/resolve"
)

// built builds the real program once.
var built = sync.OnceValues(func() (string, error) { return testnet.Sluice(scratch) })

func sluice(t *testing.T) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// scratch holds the program; it goes with the test process.
var scratch string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "sluice-packetbench-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		scratch = dir
		return m.Run()
	}())
}

// small is as little as shows everything.
func small(file string) Options {
	return Options{Policy: file, Rounds: 1, Packets: 256, Sources: 300, Flows: 50, Seed: 1, Families: []addrset.Family{addrset.IPv4}}
}

// wideOpen means nothing of what a policy says.
var wideOpen = Subject{Name: "wide open", Load: func(context.Context, *measure.Lab) error { return nil }}

func section(t *testing.T, r *figures.Report, name string) *figures.Section {
	t.Helper()
	for i := range r.Sections {
		if r.Sections[i].Name == name {
			return &r.Sections[i]
		}
	}
	t.Fatalf("no section %s in %+v", name, r)
	return nil
}

// Every kind is measured under the real program, each packet treated as the policy
// says, beside what treats some otherwise.
func TestRun(t *testing.T) {
	measure.Require(t)
	testnet.Require(t, testnet.NftNAT)
	o := small("testdata/all.yaml")
	o.Binary = sluice(t)
	told := false
	o.Resolved = func(r *resolve.Resolved) error { told = r.Facts.Known; return nil }
	broken := Subject{Name: "broken", Load: func(context.Context, *measure.Lab) error { return errors.New("no such program") }}
	o.Subjects = []Subject{wideOpen, broken}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if !told {
		t.Error("the policy was not told of")
	}
	want := []string{
		"IPv4, banned", "IPv4, blocked, new", "IPv4, allowed, new", "IPv4, established", "IPv4, bypassed",
		"IPv4, forwarded, new", "IPv4, forwarded, established", "IPv4, masquerade, new", "IPv4, masquerade, established",
		"IPv4, redirect, new", "IPv4, redirect, established", "IPv4, map, stateless", "IPv4, map, new", "IPv4, map, established",
	}
	for _, table := range section(t, r, "packet").Tables() {
		if table.Quantity != Added {
			continue
		}
		if !slices.Equal(table.Cases, want) {
			t.Errorf("measured %q, want %q", table.Cases, want)
		}
		if !slices.Equal(table.Subjects, []string{Sluice, wideOpen.Name}) {
			t.Errorf("subjects are %q", table.Subjects)
		}
		for _, c := range want {
			if n := len(table.Cells[[2]string{c, Sluice}].Samples); n != o.Rounds {
				t.Errorf("%s: %d rounds, want %d", c, n, o.Rounds)
			}
			blocks := strings.HasSuffix(c, "banned") || strings.HasSuffix(c, "blocked, new")
			if other := table.Cells[[2]string{c, wideOpen.Name}]; blocks && (other.Note == "" || len(other.Samples) > 0) {
				t.Errorf("%s: wide open rules are measured as if they meant the same: %+v", c, other)
			}
		}
	}
	if !slices.ContainsFunc(r.Warnings, func(s string) bool { return strings.Contains(s, "broken is left out: no such program") }) {
		t.Errorf("no warning of what could not be loaded: %q", r.Warnings)
	}
}

// The other family, of which the kernel's work is of another kind.
func TestRunIPv6(t *testing.T) {
	measure.Require(t)
	testnet.Require(t, testnet.NftNAT)
	o := small("testdata/all.yaml")
	o.Binary, o.Families = sluice(t), []addrset.Family{addrset.IPv6}
	o.Kinds = []Kind{Blocked, Bypassed, ForwardEstablished, NAT, NATEstablished}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"IPv6, blocked, new", "IPv6, bypassed", "IPv6, forwarded, established", "IPv6, masquerade, new", "IPv6, masquerade, established",
		"IPv6, redirect, new", "IPv6, redirect, established", "IPv6, map, stateless",
	}
	if got := section(t, r, "packet").Tables()[0].Cases; !slices.Equal(got, want) {
		t.Errorf("measured %q, want %q", got, want)
	}
}

// Of several labs that a subject has, the cheapest is its figure, and the one after it
// what it is measured against itself by.
func TestRunInSeveralLabs(t *testing.T) {
	measure.Require(t)
	o := small("testdata/all.yaml")
	o.Labs, o.Rounds, o.Kinds = 3, 2, []Kind{Allowed}
	loaded := map[string]bool{}
	load := func(_ context.Context, l *measure.Lab) error {
		loaded[l.Namespace.Label()] = true
		return nil
	}
	o.Subjects = []Subject{{Name: "one", Load: load}, {Name: "other", Load: load}}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(loaded) != 6 {
		t.Errorf("loaded into %v, want three labs each", loaded)
	}
	for _, table := range section(t, r, "packet").Tables() {
		switch table.Quantity {
		case Added:
			if !slices.Equal(table.Subjects, []string{"one", "other"}) {
				t.Errorf("subjects are %q", table.Subjects)
			}
		case Same:
			if e := table.Cells[[2]string{"IPv4, allowed, new", "one"}].Samples.Estimate(); e.High < 1 {
				t.Errorf("the lab next to the cheapest is cheaper: %v", e)
			}
		}
	}
}

// What is measured first has to mean what the policy says, and a run that is
// interrupted has no figures or says what there is.
func TestRunRefuses(t *testing.T) {
	measure.Require(t)
	o := small("testdata/all.yaml")
	o.Kinds = []Kind{Banned}
	o.Subjects = []Subject{wideOpen}
	var otherwise *measure.VerdictError
	if _, err := Run(t.Context(), o); !errors.As(err, &otherwise) {
		t.Errorf("rules that ban nobody gave %v", err)
	}
	o.Kinds = []Kind{Allowed}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	o.Rounds = 1000
	o.Progress = func(_ string, done, _ int) {
		if done == 3 {
			stop()
		}
	}
	r, err := Run(ctx, o)
	if !errors.Is(err, context.Canceled) || r == nil || len(section(t, r, "packet").Figures[0].Samples) != 3 {
		t.Errorf("interrupted after three rounds: %+v, %v", r, err)
	}
}
