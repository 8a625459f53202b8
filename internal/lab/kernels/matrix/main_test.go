package matrix

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sluice/internal/lab/kernelbench"
	"sluice/internal/lab/kernels"
	"sluice/internal/lab/packetbench"
)

func TestComplete(t *testing.T) {
	for _, c := range []struct {
		given Options
		want  string // kernels
	}{
		{Options{}, EveryKernel},
		{Options{Core: true}, OneKernel},
		{Options{Core: true, Kernels: []string{"6.12"}}, "6.12"},
		{Options{Packages: "./internal/system/host"}, EveryKernel},
		{Options{Command: "true"}, OneKernel},
		{Options{Kernels: []string{"6.1", "", "6.12"}}, "6.1,6.12"},
		{Options{NoTests: true, Sections: []string{"lists"}}, EveryKernel},
		{Options{Hold: "figures.json", Kernels: []string{"6.12"}}, "6.12"},
	} {
		o := c.given
		err := o.complete()
		if got := strings.Join(o.Kernels, ","); err != nil || got != c.want {
			t.Errorf("%+v: %s, %v; want %s", c.given, got, err, c.want)
		}
	}
	o := Options{Kernels: []string{"6.1"}, NoTests: true, Twice: true, Sections: []string{"lists"}}
	if line := o.asked(); line != "make kernels KERNEL=6.1 TABLE=1 SECTIONS=lists TWICE=1" {
		t.Error(line)
	}
	for want, o := range map[string]Options{
		`no section is called "none"`:                          {Sections: []string{"lists", "none"}},
		"with the core tests alone nothing is measured":        {Core: true, Twice: true},
		"with the tests of packages alone nothing is measured": {Packages: "x", Report: true},
		"with a command nothing is measured":                   {Command: "true", Record: "x", Kernels: []string{"6.1"}},
		"a record is of one kernel":                            {Record: "x"},
	} {
		if err := o.complete(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// A run that is costlier than the record says which packet, and what measures it again.
func TestHold(t *testing.T) {
	of := func(kernel string, adds float64) *kernelbench.Record {
		cost := func(of float64) kernelbench.Cost { return kernelbench.Cost{Low: of, Median: of, High: of} }
		return &kernelbench.Record{Kernel: kernel, Date: "2026-11-23", Packets: []kernelbench.Packet{{
			Section: "examples", Name: "gateway: IPv4, established", Bare: cost(2500), Same: cost(1),
			Added: map[string]kernelbench.Cost{packetbench.Sluice: cost(adds)},
		}}}
	}
	var out bytes.Buffer
	if err := hold(&out, of("6.12.1", 2000), of("6.12.1", 2089)); err != nil || !strings.Contains(out.String(), "1 kinds of packets are no costlier than on 2026-11-23") {
		t.Errorf("%v\n%s", err, &out)
	}
	out.Reset()
	err := hold(&out, of("6.12.1", 2000), of("6.12.2", 2091))
	if !errors.Is(err, ErrCostlier) || !strings.Contains(err.Error(), `"make figures"`) || !strings.Contains(err.Error(), "the record is of 6.12.1, this kernel is 6.12.2") ||
		!strings.Contains(out.String(), "costlier: gateway: IPv4, established: Sluice adds 2091 instructions, the record has 2000 and tolerates 90 more") {
		t.Errorf("%v\n%s", err, &out)
	}
}

// The examples are shared among the guests of one kernel, and stay in their order.
func TestParts(t *testing.T) {
	t.Chdir(filepath.Join("..", "..", "..", ".."))
	examples, err := kernelbench.ExampleNames(kernelbench.Examples)
	if err != nil {
		t.Fatal(err)
	}
	for found, guests := range map[int]int{1: 2, 2: 1} {
		l := &lab{Options: Options{Sections: []string{"lists", kernelbench.Examples}}, found: make([]kernels.Kernel, found)}
		parts, err := l.parts()
		if err != nil {
			t.Fatal(err)
		}
		all := slices.Concat(parts...)
		if len(parts) != guests || len(all) != 1+len(examples) || all[0] != "lists" || all[len(all)-1] != "examples/story 2" {
			t.Errorf("%d kernels: %q", found, parts)
		}
		if err := kernelbench.CheckSections(all); err != nil {
			t.Error(err)
		}
	}
}

func TestTestsIn(t *testing.T) {
	source := []byte(`package x
func TestMain(m *testing.M) {}
func TestFactOne(t *testing.T) {}
	func TestIndented(t *testing.T) {}
func TestExample_two(tt *testing.T) { func TestInside(t *testing.T) }
func BenchmarkFact(b *testing.B) {}
func helper(t *testing.T) {}
// func TestFactComment(t *testing.T)
`)
	for expression, want := range map[string][]string{
		".": {"TestFactOne", "TestExample_two"}, "^TestFact": {"TestFactOne"}, coreTests: {"TestFactOne", "TestExample_two"}, "None": nil,
	} {
		if got := testsIn(source, regexp.MustCompile(expression)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", expression, got, want)
		}
	}
}

// The core tests are those of this repository that were meant.
func TestCoreTestsAreThere(t *testing.T) {
	t.Chdir(filepath.Join("..", "..", "..", ".."))
	all, err := kernelPackages(t.Context(), []string{"./internal/backend/nftables", "./internal/lab/kerneltest", "./internal/lab/kernels/..."}, coreTests)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, p := range all {
		got[p.dir] = p.tests
	}
	for dir, test := range map[string]string{"internal/backend/nftables": "TestCapabilities", "internal/lab/kerneltest": "TestFactOffloadedFlowsMissForward"} {
		if !slices.Contains(got[dir], test) {
			t.Errorf("%s has %q, want %s too", dir, got[dir], test)
		}
	}
	for expression, want := range map[string]string{"^TestNone$": "no test of ./internal/system/host matches", "[": "names of tests"} {
		if _, err := kernelPackages(t.Context(), []string{"./internal/system/host"}, expression); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", expression, err)
		}
	}
	if _, err := kernelPackages(t.Context(), []string{"./internal/lab/stats"}, "."); err == nil || !strings.Contains(err.Error(), "nothing to ask another kernel") {
		t.Errorf("%v", err)
	}
}

func TestShare(t *testing.T) {
	var all []testPackage
	var names []string
	for p := range 3 {
		one := testPackage{dir: fmt.Sprint("p", p)}
		for i := range 3 {
			one.tests = append(one.tests, fmt.Sprintf("T%d%d", p, i))
		}
		names = append(names, one.tests...)
		all = append(all, one)
	}
	for _, guests := range []int{1, 2, 4} {
		shares := share(all, guests)
		var got []string
		for _, s := range shares {
			n := 0
			for _, p := range s {
				n += len(p.tests)
				got = append(got, p.tests...)
				for _, test := range p.tests {
					if "p"+test[1:2] != p.dir {
						t.Errorf("%s is in %s", test, p.dir)
					}
				}
			}
			if most := (len(names) + guests - 1) / guests; n > most+1 {
				t.Errorf("of %d guests one has %d tests", guests, n)
			}
		}
		slices.Sort(got)
		if len(shares) != guests || !slices.Equal(got, names) {
			t.Errorf("%d guests: %d shares, %q", guests, len(shares), got)
		}
	}
	if got := share(all[:1], 8); len(got) != 3 {
		t.Errorf("three tests for eight guests: %d shares", len(got))
	}
}

// testCommand is run by a shell on programs that stand for tests, as a guest does.
func TestTestCommand(t *testing.T) {
	root := t.TempDir()
	for dir, script := range map[string]string{
		"good": "echo '=== RUN   TestA'; echo '--- PASS: TestA (0.00s)'; echo noise; echo \"$*\" >&2",
		"bad":  "echo '=== RUN   TestB'; echo '    why it failed'; echo '--- FAIL: TestB (0.00s)'; exit 1",
	} {
		file := filepath.Join(root, dir, "kernel.test")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
	}
	run := func(all ...testPackage) (string, error) {
		cmd := exec.Command("sh", "-c", testCommand(root, all, "/sub"))
		cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	good, bad, none := testPackage{dir: "good", tests: []string{"TestA", "TestC"}}, testPackage{dir: "bad", tests: []string{"TestB"}}, testPackage{dir: "none"}
	out, err := run(good)
	if err != nil || !strings.Contains(out, "--- PASS: TestA") || !strings.Contains(out, "ok  \tsluice/good\t") || strings.Contains(out, "noise") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = run(bad, good)
	if err == nil || !strings.Contains(out, "why it failed") || !strings.Contains(out, "FAIL\tsluice/bad\t") || !strings.Contains(out, "ok  \tsluice/good\t") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err = run(none, good); err == nil {
		t.Errorf("a package that is not there passes:\n%s", out)
	}
}

func TestLines(t *testing.T) {
	var out bytes.Buffer
	l := &lab{Options: Options{Out: &out}}
	a, b := &lines{lab: l, start: "6.1   "}, &lines{lab: l, start: "6.12  "}
	for _, w := range []struct {
		to   *lines
		text string
	}{{a, "one "}, {b, "two\nth"}, {a, "line\n"}, {b, "ree\nfour"}} {
		if n, err := w.to.Write([]byte(w.text)); n != len(w.text) || err != nil {
			t.Fatal(n, err)
		}
	}
	a.end()
	b.end()
	if want := "6.12  two\n6.1   one line\n6.12  three\n6.12  four\n"; out.String() != want {
		t.Errorf("%q", out.String())
	}
}
