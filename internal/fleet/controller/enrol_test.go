package controller

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

func TestRevokedAtOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	token := f.token(nil, 2)
	a, err := f.join("web-1", token)
	ok(t, err)
	conn := a.stream(nil)
	f.until("web-1", func() bool { return f.states()["web-1"].Online })
	if _, err := a.client.Desired(t.Context()); err != nil {
		t.Error(err)
	}
	ok(t, f.client.Revoke(t.Context(), "web-1", "its disk was sold"))
	for {
		m, err := conn.Receive(t.Context())
		ok(t, err)
		if m.Refused != nil {
			if m.Refused.Kind != wire.KindRevoked || !strings.Contains(m.Refused.Text, "its disk was sold") {
				t.Errorf("refused as %+v", m.Refused)
			}
			break
		}
	}
	if _, err := conn.Receive(t.Context()); err == nil {
		t.Error("the stream goes on")
	}
	_, desired := a.client.Desired(t.Context()) // on the connection that was let in
	_, dial := wire.Dial(t.Context(), a.client.HTTP, a.client.Base)
	_, renew := a.client.Renew(t.Context(), &wire.Renew{Request: a.request()})
	for what, err := range map[string]error{"desired": desired, "stream": dial, "renew": renew} {
		if kind(err) != wire.KindRevoked || !strings.Contains(err.Error(), "its disk was sold") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if len(f.states()) != 0 {
		t.Errorf("%v", f.states())
	}
	again, err := f.join("web-1", token) // anew, with another key
	ok(t, err)
	if _, err := again.client.Desired(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := a.over(a.certificate).Desired(t.Context()); kind(err) != wire.KindTaken && kind(err) != wire.KindRevoked {
		t.Errorf("the old key: %v", err)
	}
}

// TestEnrolRefuses: with one sentence, and nobody is enrolled.
func TestEnrolRefuses(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	token := f.token(nil, 1)
	a, err := f.join("web-1", token)
	ok(t, err)
	_, fine, err := trust.NewRequest("web-2")
	ok(t, err)
	good := f.token(nil, 5)
	late := f.token(nil, 1)
	for _, test := range []struct {
		name string
		e    wire.Enrol
		kind wire.Kind
		want string
	}{
		{"an unknown secret", wire.Enrol{Secret: "x", Host: "web-2", Request: string(fine)}, wire.KindToken, "this fleet has no such token"},
		{"a used token", wire.Enrol{Secret: token.Secret, Host: "web-2", Request: string(fine)}, wire.KindToken, "used once already"},
		{"no request", wire.Enrol{Secret: good.Secret, Host: "web-2", Request: "pem"}, wire.KindBadRequest, "request"},
		{"a name that is taken", wire.Enrol{Secret: good.Secret, Host: "web-1", Request: string(fine)}, wire.KindTaken, "with another key"},
	} {
		if _, err := a.client.Enrol(t.Context(), &test.e); kind(err) != test.kind || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	for name, body := range map[string]string{
		"no JSON": "x", "a wrong name": `{"secret": "x", "host": "../web", "request": "x"}`, "nothing": "", "too large": `{"secret": "` + strings.Repeat("x", wire.MostRequest) + `"}`,
	} {
		answer, err := a.client.HTTP.Post(a.client.Base+wire.PathEnrol, "application/json", strings.NewReader(body))
		ok(t, err)
		if answer.Body.Close(); answer.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", name, answer.Status)
		}
	}
	var in sync.WaitGroup
	var enrolled atomic.Int64
	for i := range 8 { // at once, of a token that is good for one
		in.Go(func() {
			_, request, err := trust.NewRequest("x")
			if err != nil {
				t.Error(err)
			}
			_, err = a.client.Enrol(t.Context(), &wire.Enrol{Secret: late.Secret, Host: fmt.Sprint("many-", i), Request: string(request)})
			if err == nil {
				enrolled.Add(1)
			} else if kind(err) != wire.KindToken {
				t.Error(err)
			}
		})
	}
	in.Wait()
	if enrolled.Load() != 1 || len(f.states()) != 2 {
		t.Errorf("%d are enrolled by a token for one: %v", enrolled.Load(), f.states())
	}
}

// TestWithoutCertificate: nothing but root.json and enrolling.
func TestWithoutCertificate(t *testing.T) {
	t.Parallel()
	f, other := newFleet(t, "example.net"), newFleet(t, "other.example.net")
	a, err := f.join("web-1", f.token(nil, 1))
	ok(t, err)
	b, err := other.join("web-1", other.token(nil, 1))
	ok(t, err)
	open := a.over(nil)
	_, desired := open.Desired(t.Context())
	_, signed := open.Trust(t.Context())
	_, renew := open.Renew(t.Context(), &wire.Renew{Request: a.request()})
	_, blob := open.Blob(t.Context(), wire.Hash(nil), 1, nil)
	_, dial := wire.Dial(t.Context(), open.HTTP, open.Base)
	for what, err := range map[string]error{"desired": desired, "trust": signed, "renew": renew, "blob": blob, "stream": dial} {
		if kind(err) != wire.KindCertificate {
			t.Errorf("%s: %v", what, err)
		}
	}
	foreign := &wire.Client{Base: a.client.Base, HTTP: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{*b.certificate}}}}} //nolint:gosec // the controller has to refuse
	if _, err := foreign.Desired(t.Context()); err == nil || kind(err) != "" {
		t.Errorf("a certificate of another fleet: %v", err)
	}
	if _, err := b.over(nil).Roots(t.Context()); err != nil {
		t.Error(err)
	}
	b.address = f.address
	if _, err := b.over(b.certificate).Desired(t.Context()); err == nil || !strings.Contains(err.Error(), "other.example.net") {
		t.Errorf("a controller of another fleet: %v", err)
	}
}

func TestRenew(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	a, err := f.join("web-1", f.token(nil, 1))
	ok(t, err)
	old := a.certificate
	renewed, err := a.client.Renew(t.Context(), &wire.Renew{Request: a.request()})
	ok(t, err)
	a.certified(renewed.Certificate)
	if _, err := a.client.Desired(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := a.over(old).Desired(t.Context()); err != nil { // the answer may have been lost
		t.Error(err)
	}
}
