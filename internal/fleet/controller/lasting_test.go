package controller

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestLasting: a stream goes on, in both versions of HTTP, when nothing was written for longer
// than a write may take, and than the server gives to an answer.
func TestLasting(t *testing.T) {
	t.Parallel()
	const within = 3 * time.Second
	for _, second := range []bool{false, true} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w = lasting{w, within}
			for _, text := range []string{"one ", "two"} {
				_, err := io.WriteString(w, text)
				ok(t, err)
				ok(t, http.NewResponseController(w).Flush())
				time.Sleep(within + within/4)
			}
		}))
		s.EnableHTTP2 = second
		s.Config.WriteTimeout = within
		s.StartTLS()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody)
		ok(t, err)
		said, err := s.Client().Do(r)
		ok(t, err)
		text, err := io.ReadAll(said.Body)
		if err != nil || string(text) != "one two" || second != (said.ProtoMajor == 2) {
			t.Errorf("%s: %q, %v", said.Proto, text, err)
		}
		ok(t, said.Body.Close())
		s.Close()
	}
}
