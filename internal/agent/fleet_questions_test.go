package agent

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sluice/internal/agent/api"
	"sluice/internal/agent/config"
)

// TestFleetAsks has the controller of a fleet ask for each operation. Whoever has stolen it reads
// what the agent's file lets it, and changes nothing.
func TestFleetAsks(t *testing.T) {
	s := newTested(t)
	h := s.byFleet(s.http().Handler)
	ask := func(method, path, body string) (int, string) {
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		if strings.HasSuffix(path, "/top") {
			r.Header.Set("Accept", api.Lines)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for _, may := range []config.Questions{config.None, config.Status, config.All} {
		s.fleetMay = may
		for pattern, o := range operations {
			method, path, _ := strings.Cut(strings.NewReplacer("{namespace}", "shop", "{generation}", "7").Replace(pattern), " ")
			answers := o.right <= read && !strings.Contains(bodies[pattern], `"policy"`) && (may == config.All || may == config.Status && !private[pattern])
			if status, text := ask(method, path, bodies[pattern]); (status == http.StatusForbidden) == answers || status == http.StatusNotFound {
				t.Errorf("questions: %s, %s: %d %s", may, pattern, status, text)
			}
		}
	}
	if s.banned.Load()+s.lifted.Load()+s.synced.Load() != 0 {
		t.Error("it changes the firewall")
	}
	for pattern := range private {
		if o, has := operations[pattern]; !has || o.right != read {
			t.Errorf("%s is no operation that reads", pattern)
		}
	}
	if status, text := ask(http.MethodGet, "/v1", ""); status != http.StatusOK || !strings.Contains(text, `"you":{"may":"read","user":"fleet"}`) {
		t.Errorf("%d %s", status, text)
	}
	if status, text := ask(http.MethodGet, "/v1/namespaces/-/generations", ""); status != http.StatusOK {
		t.Errorf("the agent's own namespace: %d %s", status, text)
	}
	for _, policy := range []string{`{"file":"","draft":"/etc/sluice/other.yaml"}`, `{"file":"","draft-of":"a.yaml"}`, `{"file":"","directory":"/etc/sluice"}`, `{"file":"a.yaml"}`, `{"file":"","texts":{"":"version: 1\n"}}`} {
		for _, of := range []string{"check", "diff", "plan", "map", "reach"} {
			if status, text := ask(http.MethodPost, "/v1/namespaces/shop/"+of, `{"policy":`+policy+`}`); status != http.StatusForbidden && status != http.StatusBadRequest {
				t.Errorf("%s of %s: %d %s", of, policy, status, text)
			}
		}
	}
	if status, text := ask(http.MethodPost, "/v1/namespaces/shop/drops", `{"seconds":1,"trace":true}`); status != http.StatusForbidden {
		t.Errorf("it traces: %d %s", status, text)
	}
}
