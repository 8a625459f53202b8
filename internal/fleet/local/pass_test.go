package local_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"sluice/internal/agent/api"
	"sluice/internal/fleet/local"
)

// TestPassCut: an answer that the agent does not end is no whole one for the page, in lines
// neither.
func TestPassCut(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "agent.sock")
	at, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	agent := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.URL.Query().Get("type"))
		_, _ = io.WriteString(w, "{}\n")
		if r.URL.Query().Has("cut") {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}))
	agent.Listener = at
	agent.Start()
	defer agent.Close()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := local.New(l, local.Options{Socket: socket, Namespace: "-"})
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- s.Serve(ctx, l) }()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Jar: jar}
	get := func(address string) (string, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := c.Do(r)
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		return string(text), err
	}
	if _, err := get(s.Address()); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{api.Lines, "application/json"} {
		of := "http://" + l.Addr().String() + "/agent/v1/namespaces/-/status?type=" + kind
		if text, err := get(of); err != nil || text != "{}\n" {
			t.Errorf("%s: %q, %v", kind, text, err)
		}
		if text, err := get(of + "&cut"); err == nil {
			t.Errorf("%s: %q is taken for the whole", kind, text)
		}
	}
	c.CloseIdleConnections()
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
