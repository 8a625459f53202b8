package controller

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// answered fails where a request is answered by anything but what was asked for, or by
// why not.
func answered(t *testing.T, what string, w *httptest.ResponseRecorder) {
	t.Helper()
	if w.Code < 400 {
		return
	}
	f := &wire.Failure{}
	if err := json.Unmarshal(w.Body.Bytes(), f); err != nil || f.Text == "" {
		t.Errorf("%s: %d %q, %v", what, w.Code, w.Body, err)
	}
	if w.Code == http.StatusInternalServerError || w.Code == http.StatusServiceUnavailable {
		t.Errorf("%s: %d %s", what, w.Code, f.Text)
	}
}

// request makes one that no URL need allow.
func request(method, path, query string, body []byte) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", bytes.NewReader(body))
	r.Method, r.URL.Path, r.URL.RawQuery = method, path, query
	return r
}

// fuzzed is a fleet with a host that has a stream no more.
func fuzzed(f *testing.F) (c *Controller, host *x509.Certificate) {
	var fl *fleet
	var a *agent
	f.Helper()
	fl = newFleet(f, "example.net")
	a, err := fl.join("web-1", fl.token(map[string]string{"role": "web"}, 1))
	ok(f, err)
	fl.text += approvalText + "approve: [disallow, token]\nsets: {vms: {guests: app, within: [10.30.0.0/16]}}\n"
	_, err = fl.publish("input: {default: drop}\n")
	ok(f, err)
	cert, err := x509.ParseCertificate(a.certificate.Certificate[0])
	ok(f, err)
	return fl.controller, cert
}

// FuzzCommands: nothing that a command, or who logs in, could ask makes the controller fail.
func FuzzCommands(f *testing.F) {
	c, _ := fuzzed(f)
	for _, s := range [][3]string{
		{"GET", "/api/v1/status", ""},
		{"GET", "/api/v1/hosts", ""},
		{"POST", "/api/v1/hosts/web-1/revoke", `{"why": "sold"}`},
		{"PUT", "/api/v1/hosts/web-1/labels", `{"order": "e30="}`},
		{"POST", "/api/v1/tokens", `{"id": "a", "secret": "` + strings.Repeat("0", 64) + `", "uses": 1, "expires": "2100-01-01T00:00:00Z", "labels": {"a": "b"}}`},
		{"POST", "/api/v1/blobs/missing", `{"hashes": ["` + strings.Repeat("0", 64) + `"]}`},
		{"PUT", "/api/v1/blobs/" + strings.Repeat("0", 64), "x"},
		{"POST", "/api/v1/publish", `{"roots": ["e30="], "targets": "e30=", "bundle": 1}`},
		{"GET", "/api/v1/tokens", ""},
		{"DELETE", "/api/v1/tokens/a", ""},
		{"GET", "/api/v1/access", ""},
		{"POST", "/api/v1/access", `{"name": "ci", "secret": "` + strings.Repeat("0", 64) + `", "role": "viewer", "hosts": "env=prod", "expires": "2027-01-01T00:00:00Z"}`},
		{"DELETE", "/api/v1/access/a", ""},
		{"GET", "/api/v1/audit", ""},
		{"GET", "/api/v1/rollouts", ""},
		{"POST", "/api/v1/rollouts/1/pause", `{"why": "lunch"}`},
		{"PUT", "/api/v1/guests/vm-1", `{"host": "web-1", "interface": "tap0", "addresses": ["10.30.0.1"], "public": ["203.0.113.1"], "labels": {"app": "shop"}, "rules": "allow ssh"}`},
		{"POST", "/api/v1/links", `{"user": "erika@example.net", "secret": "` + strings.Repeat("0", 64) + `", "role": "viewer", "hosts": "env=prod", "expires": "2027-01-01T00:00:00Z"}`},
		{"POST", "/api/v1/requests/0123456789abcdef/approve", `{"why": "as agreed", "alone": true}`},
		{"POST", "/api/v1/requests/0123456789abcdef/refuse", `{"why": "no"}`},
		{"POST", "/api/v1/lists/scanners/refresh", `{"force": true, "allow-cut": true}`},
		{"POST", "/api/v1/bans", `{"hosts": "role=web", "for-seconds": 60, "keep-longer": true, "reason": "ssh", "entries": [{"what": "203.0.113.0/28", "for-seconds": 9, "reason": "x"}]}`},
		{"POST", "/api/v1/bans/lift", `{"hosts": "role=web", "what": ["203.0.113.1-203.0.113.9"], "reason": "a mistake"}`},
		{"POST", "/api/v1/allows", `{"for-seconds": 60, "entries": [{"what": "198.51.100.1", "service": "tcp/22"}]}`},
		{"POST", "/api/v1/allows/lift", `{"what": ["2001:db8::/48"], "service": "ssh"}`},
		{"GET", "/login", ""},
		{"POST", "/login", "link=" + api.NewSecret()},
		{"POST", "/login", `{"link": "` + api.NewSecret() + `", "secret": "` + strings.Repeat("0", 64) + `"}`},
	} {
		f.Add(s[0], s[1], "selector=role%3Dweb", []byte(s[2]))
	}
	for _, pattern := range slices.Sorted(maps.Keys(api.Operations())) { // the newest too
		method, path, _ := strings.Cut(pattern, " ")
		f.Add(method, parameter.ReplaceAllString(path, "web-1"), "selector=role%3Dweb&limit=1&after=0&all=true&link=x", []byte("{}"))
	}
	handler := c.commands().Handler
	f.Fuzz(func(t *testing.T, method, path, query string, body []byte) {
		r := request(method, path, query, body)
		w := httptest.NewRecorder()
		switch {
		case path == "/login": // which is a page, and held to a pace
			if bytes.HasPrefix(body, []byte("{")) {
				r.Header.Set("Content-Type", "application/json")
			} else {
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			}
			serve := c.login
			if method != http.MethodPost {
				serve = c.loginPage
			}
			if err := serve(w, r); w.Code >= 500 || (err != nil) != (w.Code >= 400) {
				t.Errorf("%s: %d %s %v", method, w.Code, w.Body, err)
			}
			return
		case !strings.HasPrefix(path, "/api/v1/") && path != "/metrics", method == "", path == "/api/v1/events", path == "/api/v1/log": // which does not end
			return
		}
		handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller{Who: "operator:root", Role: api.Admin})))
		answered(t, method+" "+path, w)
	})
}

// FuzzAgents: nor does what a host, or somebody who is none, could ask on port 7443.
func FuzzAgents(f *testing.F) {
	c, host := fuzzed(f)
	_, csr, err := trust.NewRequest("web-2")
	ok(f, err)
	enrol, err := json.Marshal(wire.Enrol{Secret: "x", Host: "web-2", Request: string(csr)})
	ok(f, err)
	for _, known := range []bool{true, false} {
		for _, s := range [][3]string{
			{"GET", wire.PathRoot, ""},
			{"POST", wire.PathEnrol, string(enrol)},
			{"POST", wire.PathRenew, `{"request": "x"}`},
			{"GET", wire.PathTrust, ""},
			{"GET", wire.PathDesired, ""},
			{"GET", wire.PathBlobs + strings.Repeat("0", 64), ""},
			{"GET", wire.PathAgent, ""},
		} {
			f.Add(s[0], s[1], "from="+strings.Repeat("0", 64), []byte(s[2]), known)
		}
	}
	handler := c.agents().Handler
	f.Fuzz(func(t *testing.T, method, path, query string, body []byte, known bool) {
		if !strings.HasPrefix(path, "/v1/") || method == "" || path == wire.PathAgent {
			return
		}
		r := request(method, path, query, body)
		r.TLS = &tls.ConnectionState{HandshakeComplete: true}
		if known {
			r.TLS.PeerCertificates, r.TLS.VerifiedChains = []*x509.Certificate{host}, [][]*x509.Certificate{{host}}
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		answered(t, method+" "+path, w)
	})
}
