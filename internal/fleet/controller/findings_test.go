package controller

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/wire"
)

// TestFindings: what hosts found last is told, the worst first, of hosts that are there.
func TestFindings(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	web := []*talks{f.talks("web-1"), f.talks("web-2")}
	for _, severity := range []string{"error", "remark"} {
		ok(t, web[0].Send(t.Context(), &wire.Message{Findings: &wire.Findings{Findings: []wire.Finding{{Check: "a", Severity: severity, Text: "one"}}}}))
	}
	ok(t, web[1].Send(t.Context(), &wire.Message{Findings: &wire.Findings{Findings: []wire.Finding{{Check: "b", Severity: "warning", Text: "two"}, {Check: "c", Severity: "newer", Text: "three"}}}}))
	ask := func(query string) (out api.FleetFindings, said string) {
		t.Helper()
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/findings"+query, http.NoBody)
		f.asAdmin(w, r)
		ok(t, json.Unmarshal(w.Body.Bytes(), &out))
		for _, is := range out.Findings {
			said += is.Host + " " + is.Check + ", "
		}
		return out, said
	}
	f.until("all is said", func() bool {
		out, said := ask("")
		return out.Examined == 2 && said == "web-2 b, web-1 a, web-2 c, "
	})
	if out, said := ask("?hosts=host%3Dweb-1"); said != "web-1 a, " || out.Examined != 1 || out.Hosts != "host=web-1" {
		t.Errorf("%+v", out)
	}
	ok(t, f.client.Revoke(t.Context(), "web-1", "sold"))
	if _, said := ask(""); strings.Contains(said, "web-1") {
		t.Error(said)
	}
}

// asAdmin asks what an admin may.
func (f *fleet) asAdmin(w http.ResponseWriter, r *http.Request) {
	f.controller.operations().ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller{Who: "user:erika", Role: api.Admin})))
}
