package local

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"sluice/internal/agent/api"
	"sluice/web"
)

// pass asks the agent what the page asks, and answers what it answers. Who ends the request
// ends it at the agent.
func (s *Server) pass(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.EscapedPath(), "/agent")
	if within := "/v1/namespaces/" + url.PathEscape(s.options.Namespace) + "/"; path != "/v1" && !strings.HasPrefix(path, within) {
		fail(w, http.StatusNotFound, "this page asks nothing there: it is of the network namespace "+s.options.Namespace)
		return
	}
	to := "http://sluice" + path
	if r.URL.RawQuery != "" {
		to += "?" + r.URL.RawQuery
	}
	asked, err := http.NewRequestWithContext(r.Context(), r.Method, to, r.Body)
	if err != nil {
		fail(w, http.StatusBadRequest, "there is no such address")
		return
	}
	asked.ContentLength = r.ContentLength
	for _, name := range []string{"Accept", "Content-Type", api.ProtocolHeader, api.WaitHeader} {
		if value := r.Header.Get(name); value != "" {
			asked.Header.Set(name, value)
		}
	}
	events := web.WantsEvents(r)
	if events {
		asked.Header.Set("Accept", api.Lines)
	}
	answer, err := s.agent.Do(asked)
	if err != nil {
		fail(w, http.StatusBadGateway, s.unreachable(err))
		return
	}
	defer answer.Body.Close()
	if events && answer.StatusCode == http.StatusOK {
		_ = web.Events(w, answer.Body) // who reads no more hears nothing of it
		return
	}
	for _, name := range []string{"Content-Type", api.VersionHeader, api.ProtocolHeader} {
		w.Header().Set(name, answer.Header.Get(name))
	}
	w.WriteHeader(answer.StatusCode)
	out := http.NewResponseController(w)
	buffer := make([]byte, 32<<10)
	for {
		n, err := answer.Body.Read(buffer)
		if _, gone := w.Write(buffer[:n]); gone != nil || out.Flush() != nil || errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler) // so that who reads does not take the half for the whole
		}
	}
}
