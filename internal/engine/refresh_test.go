package engine_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"sluice/internal/backend"
	"sluice/internal/backend/memory"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/netns"
)

// TestRefreshByItsBackend: a policy is refreshed by the backend that it was loaded by,
// whichever one loads new policies.
func TestRefreshByItsBackend(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	var list atomic.Value
	list.Store("192.0.2.7\n")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, list.Load()) }))
	defer server.Close()
	h, err := engine.NewHost(t.TempDir(), "", "test")
	if err != nil {
		t.Fatal(err)
	}
	if h.Netns, err = netns.Open(testnet.New(t).Unnamed("host").Path()); err != nil {
		t.Fatal(err)
	}
	defer h.Netns.Close()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	text := fmt.Sprintf("version: 1\nsets:\n  scanners: { url: %q }\ninput:\n  default: drop\n  rules:\n    - allow tcp/22 from scanners\n", server.URL+"/list.txt")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	nft, model := h.Backend, memory.New()
	h.Backend, h.Others = model, []backend.Backend{nft}
	if _, err := h.Apply(t.Context(), engine.Request{File: file}, apply.Options{Keep: true, Verify: true}); err != nil {
		t.Fatal(err)
	}
	h.Backend, h.Others = nft, []backend.Backend{model}
	list.Store("192.0.2.7\n192.0.2.9\n")
	out, err := h.Refresh(t.Context(), engine.Refreshing{Sets: []string{"scanners"}})
	if err != nil || out.Generation != 2 || out.Unchanged {
		t.Fatalf("refreshed: %+v, %v", out, err)
	}
	g, _, err := h.RunningPolicy()
	if err != nil || g.Backend != memory.Name {
		t.Errorf("what runs is of backend %s, %v", g.Backend, err)
	}
	err = h.Netns.Do(func() error {
		for _, b := range []backend.Backend{nft, model} {
			have, err := b.Read(t.Context(), false)
			if err != nil {
				return err
			}
			if loaded := !have.Empty(); loaded != (b.Name() == memory.Name) {
				t.Errorf("backend %s holds rules: %v", b.Name(), loaded)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if s, err := h.Status(t.Context(), true); err != nil || !s.Fine() {
		t.Errorf("status: %+v, %v", s, err)
	}
}
