package nftables

import (
	"context"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/backend"
	"sluice/internal/lab/testnet"
	"sluice/internal/program"
)

// everything is a kernel that lacks nothing but flowtables.
var everything = backend.Capabilities{
	backend.Flowtable: backend.No, backend.InetIngress: backend.Yes, backend.InetNAT: backend.Yes, backend.ConnectionCount: backend.Yes,
	backend.NATPrefix: backend.Yes, backend.SetElementCounters: backend.Yes, backend.TCPReset: backend.Yes, backend.FIB: backend.Yes, backend.MSSClamp: backend.Yes,
}

func mustLower(t testing.TB, p *program.Program) *artifact {
	t.Helper()
	a, err := New().Lower(p, everything)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := New().Decode(encoded)
	if err != nil {
		t.Fatal(err)
	}
	own := again.(*artifact)
	if diff := cmp.Diff(a.Text(), own.Text()); diff != "" {
		t.Errorf("the artifact changes on its way to disk and back (-made +decoded):\n%s", diff)
	}
	return own
}

// kernel is a network namespace to load things into.
type kernel struct{ *testnet.Namespace }

func kernelHost(t testing.TB) kernel {
	t.Helper()
	requireNftables(t)
	return kernel{testnet.New(t).Unnamed("host")}
}

func (k kernel) read(t testing.TB, contents bool) *State {
	t.Helper()
	var s backend.State
	err := k.Do(func() (err error) {
		s, err = New().Read(context.Background(), contents)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s.(*State)
}

// load takes the steps to an artifact, nil for nothing.
func (k kernel) load(t testing.TB, b backend.Backend, a *artifact) {
	t.Helper()
	var want backend.Artifact
	if a != nil {
		want = a
	}
	steps, err := b.Steps(want, k.read(t, true))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		k.step(t, s)
	}
}

func (k kernel) step(t testing.TB, s backend.Step) {
	t.Helper()
	if err := k.Do(func() error { return s.Take(context.Background()) }); err != nil {
		t.Fatalf("step %s %q: %v\n%s", s.Purpose, s.Name, err, head(s.Text(), 4000))
	}
}

func head(text string, n int) string {
	if len(text) > n {
		return text[:n] + "…"
	}
	return text
}

func (k kernel) compare(t testing.TB, a *artifact, contents bool) []backend.Difference {
	t.Helper()
	d, err := New().Compare(a, k.read(t, contents))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// holds compares all that the kernel has with an artifact.
func (k kernel) holds(t testing.TB, what string, a *artifact) {
	t.Helper()
	if d := k.compare(t, a, true); len(d) > 0 {
		t.Errorf("%s:%s", what, differences(d))
	}
}

func differences(list []backend.Difference) string {
	var b strings.Builder
	for _, d := range list {
		b.WriteString("\n  " + d.Kind + " " + d.Name + "\n    want " + d.Want + "\n    have " + d.Have)
	}
	return b.String()
}

// matchesPattern compares texts; a star in the pattern stands for the hash in
// a name.
func matchesPattern(pattern, text string) bool {
	if pattern == text {
		return true
	}
	want, got := strings.Fields(pattern), strings.Fields(text)
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if want[i] == got[i] {
			continue
		}
		if ok, err := path.Match(want[i], got[i]); err != nil || !ok || !strings.Contains(want[i], "_*") {
			return false
		}
	}
	return true
}

// lowerDefault runs the passes, with default costs.
func lowerDefault(p *program.Program) (*lowering, error) {
	return made(Table, nil).lower(p, everything)
}
