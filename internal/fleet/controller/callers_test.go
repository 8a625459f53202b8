package controller

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/wire"
)

// ask asks for an operation without a body, as somebody.
func (f *fleet) ask(as caller, method, path string) (status int, kind wire.Kind) {
	f.Helper()
	r := httptest.NewRequest(method, path, http.NoBody)
	w := httptest.NewRecorder()
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), callerKey{}, as))
	defer cancel()
	if strings.HasSuffix(path, "/events") || strings.HasSuffix(path, "/log") {
		cancel() // it would not end
	}
	f.controller.operations().ServeHTTP(w, r.WithContext(ctx))
	failure := wire.Failure{}
	if w.Code >= 400 {
		if err := json.Unmarshal(w.Body.Bytes(), &failure); err != nil || failure.Text == "" {
			f.Errorf("%s %s: %d %q", method, path, w.Code, w.Body)
		}
	}
	return w.Code, failure.Kind
}

var parameter = regexp.MustCompile(`\{[a-z0-9]+(\.\.\.)?\}`)

// TestEachOperationWantsItsRole walks all operations with all roles, and with none.
func TestEachOperationWantsItsRole(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	for pattern, o := range api.Operations() {
		method, path, _ := strings.Cut(pattern, " ")
		path = parameter.ReplaceAllString(path, "1")
		if status, kind := f.ask(caller{}, method, path); status != http.StatusUnauthorized || kind != wire.KindUnknownCaller {
			t.Errorf("%s by nobody: %d %s", pattern, status, kind)
		}
		for i, role := range api.Roles {
			status, kind := f.ask(caller{Who: "user:erika", Role: role}, method, path)
			if refused := kind == wire.KindRole; refused != (i < slices.Index(api.Roles, o.Role)) || refused != (status == http.StatusForbidden) {
				t.Errorf("%s wants the role %s, and answers who has the role %s by %d %s", pattern, o.Role, role, status, kind)
			}
		}
	}
	if status, _ := f.ask(caller{Who: "user:erika", Role: api.Admin}, "GET", "/api/v1/none"); status != http.StatusNotFound {
		t.Errorf("what there is not: %d", status)
	}
}

// TestWhatTheDocumentDoesNotAllow is refused, by what a program can tell it by.
func TestWhatTheDocumentDoesNotAllow(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	handler := f.controller.operations()
	for _, test := range []struct {
		method, path, body string
		status             int
		allow              string
	}{
		{"TRACE", "/api/v1/status", "", http.StatusMethodNotAllowed, "GET, HEAD"},
		{"PATCH", "/api/v1/guests/a", "", http.StatusMethodNotAllowed, "GET, HEAD, PUT, DELETE"},
		{"PUT", "/metrics", "", http.StatusMethodNotAllowed, "GET, HEAD"},
		{"GET", "/api/v1/none", "", http.StatusNotFound, ""},
		{"GET", "/api/v1/living?seq=-1", "", http.StatusBadRequest, ""},
		{"GET", "/api/v1/audit?limit=0", "", http.StatusOK, ""},
		{"GET", "/api/v1/audit?limit=-1", "", http.StatusBadRequest, ""},
		{"POST", "/api/v1/blobs/missing", `{"hashes": ["` + strings.Repeat("0", 65) + `"]}`, http.StatusBadRequest, ""},
		{"POST", "/api/v1/blobs/missing", `{"hashes": null}`, http.StatusBadRequest, ""},
		{"POST", "/api/v1/blobs/missing", `{"hashes": []} x`, http.StatusBadRequest, ""},
		{"POST", "/api/v1/blobs/missing", `{"hashes": []}`, http.StatusOK, ""},
		{"GET", "/api/v1/bans?after=" + strings.Repeat("0", 65), "", http.StatusBadRequest, ""},
	} {
		r := httptest.NewRequest(test.method, test.path, strings.NewReader(test.body))
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller{Who: "user:erika", Role: api.Admin})))
		if w.Code != test.status || w.Header().Get("Allow") != test.allow {
			t.Errorf("%s %s: %d, allow %q: %s", test.method, test.path, w.Code, w.Header().Get("Allow"), w.Body)
		}
	}
}

// TestPrincipal: who has several tokens or sessions is one, and others are others.
func TestPrincipal(t *testing.T) {
	t.Parallel()
	erika := caller{Who: "user:erika@example.net", session: "1"}
	for is, same := range map[*caller]bool{
		{Who: "user:Erika@Example.net", session: "2"}:  true,
		{Who: "user:otto@example.net", session: "1"}:   false,
		{Who: "token:erika@example.net", session: "3"}: false,
		{Who: "user:erika@example.net"}:                false,
	} {
		if (is.principal() == erika.principal()) != same {
			t.Errorf("%+v: %q", is, is.principal())
		}
	}
}
