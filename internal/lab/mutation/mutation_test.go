package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"sluice/internal/lab/testnet"
)

const source = `package p

func between(a, b, c int) bool {
	if a > c {
		swap(&a, &c)
	}
	return a < b && b < c
}
`

// What is drawn does not depend on lines above nor on other functions.
func TestDraw(t *testing.T) {
	keys := func(text string) map[string]string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		sites, err := draw(dir, "example/p", 1, 100)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, s := range sites {
			found[s.Key] = s.What
		}
		return found
	}
	before := keys(source)
	want := []string{
		"call: swap(&a, &c) → nothing", "condition: a > c → !(a > c)", "operator: a < b && b < c → a < b || b < c",
		"operator: a < b → a <= b", "operator: a > c → a >= c", "operator: b < c → b <= c",
	}
	if got := slices.Sorted(maps.Values(before)); !slices.Equal(got, want) {
		t.Errorf("faults are %q, want %q", got, want)
	}
	moved := keys("package p\n\nfunc first(a int) bool { return a == 0 }\n\n" + source[len("package p\n\n"):])
	for key := range before {
		if moved[key] != before[key] {
			t.Errorf("%s is gone when another function is put above", key)
		}
	}
}

// A fault that a test sees is told apart from one that none can.
func TestJudge(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	t.Chdir("../../..")
	dir, err := filepath.Abs("internal/base/cache")
	if err != nil {
		t.Fatal(err)
	}
	sites, err := draw(dir, "sluice/internal/base/cache", 1, 1)
	if err != nil || len(sites) == 0 {
		t.Fatalf("%d sites: %v", len(sites), err)
	}
	whole, err := os.ReadFile(sites[0].File)
	if err != nil {
		t.Fatal(err)
	}
	asked := []string{"sluice/internal/base/cache"}
	for text, want := range map[string]string{
		string(whole):             "",
		string(whole) + "\nvar a": "the compiler of Go",
	} {
		s := sites[0]
		s.text = []byte(text)
		v, err := judge(t.Context(), s, asked, time.Minute)
		if err != nil || v.By != want {
			t.Errorf("seen by %q, want %q: %v", v.By, want, err)
		}
	}
	s := sites[0]
	s.text = append(slices.Clone(whole), "\nfunc init() { panic(1) }\n"...)
	if v, err := judge(t.Context(), s, asked, time.Minute); err != nil || v.By == "" {
		t.Errorf("a panic was seen by nobody: %v", err)
	}
}
