package local_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sluice/internal/fleet/local"
)

// TestStart: others who try tokens keep nobody out who has the right one, which is good once.
func TestStart(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := local.New(l, local.Options{Namespace: "-"})
	start := func(address string) int {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody))
		return w.Code
	}
	address := s.Address()
	wrong, _, _ := strings.Cut(address, "?")
	for range 50 {
		if status := start(wrong + "?token=wrong"); status != http.StatusUnauthorized {
			t.Fatalf("a wrong token: status %d", status)
		}
	}
	if status := start(address); status != http.StatusSeeOther {
		t.Errorf("the right one: status %d", status)
	}
	if status := start(address); status != http.StatusUnauthorized {
		t.Errorf("the right one once more: status %d", status)
	}
}
