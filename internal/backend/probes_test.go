package backend_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/base/cache"
	"sluice/internal/lab/testnet"
)

func prober() backend.Prober { return nftables.New() }

// TestRememberedCapabilities: they are asked once, and again when nft is another.
func TestRememberedCapabilities(t *testing.T) {
	testnet.Require(t, testnet.Namespaces, testnet.Nftables)
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	// An nft that notes that it was called.
	install := func(remark string) {
		t.Helper()
		text := "#!/bin/sh\n# " + remark + "\necho call >>" + log + "\nPATH=${PATH#*:} exec nft \"$@\"\n"
		if err := os.WriteFile(filepath.Join(dir, "nft"), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	calls := func() int {
		text, _ := os.ReadFile(log)
		return strings.Count(string(text), "call")
	}
	h := testnet.New(t).Unnamed("host")
	c := cache.Below(t.TempDir())
	ask := func() (can backend.Capabilities, called bool) {
		t.Helper()
		before := calls()
		if err := h.Do(func() error { can = backend.Remembered(context.Background(), c, prober()); return nil }); err != nil {
			t.Fatal(err)
		}
		return can, calls() > before
	}
	install("one")
	first, called := ask()
	if !called || !backend.Answered(prober(), first) {
		t.Fatalf("asked %v: %v", called, first)
	}
	again, called := ask()
	if called || !maps.Equal(first, again) {
		t.Errorf("the second time: asked %v, %v, was %v", called, again, first)
	}
	install("another of the same kernel")
	if third, called := ask(); !called || !maps.Equal(first, third) {
		t.Errorf("with another nft: asked %v, %v", called, third)
	}
	// A cache that answers not all questions is none.
	c.Put(backend.CapabilitiesKind, backend.Key(prober()), []byte(`{"fib": "yes"}`))
	if fourth, called := ask(); !called || !maps.Equal(first, fourth) {
		t.Errorf("with half an answer: asked %v, %v", called, fourth)
	}
}

// What cannot be told is asked again.
func TestNothingToRemember(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	dir := t.TempDir()
	backend.Remembered(ctx, cache.Below(dir), prober())
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("kept %v, %v", entries, err)
	}
}
