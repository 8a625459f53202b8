package controller

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/fleet/api"
)

// forger is a provider that says of people what a test wants. A real one says what is right:
// TestDex.
type forger struct {
	*httptest.Server

	mutex     sync.Mutex
	key       *rsa.PrivateKey // that it signs with
	claims    map[string]any
	challenge string // of the last that came
	nonce     string
}

func newForger(t *testing.T) *forger {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	ok(t, err)
	p := &forger{key: key}
	public := key.PublicKey
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		ok(t, json.NewEncoder(w).Encode(v))
	}
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{
			"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"RS256"},
		})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"keys": []any{map[string]string{
			"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1",
			"n": base64.RawURLEncoding.EncodeToString(public.N.Bytes()), "e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(public.E)).Bytes()),
		}}})
	})
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		q := r.URL.Query()
		p.challenge, p.nonce = q.Get("code_challenge"), q.Get("nonce")
		if q.Get("code_challenge_method") != "S256" || q.Get("client_id") != "sluice" || q.Get("response_type") != "code" {
			t.Errorf("it is asked %v", q)
		}
		http.Redirect(w, r, q.Get("redirect_uri")+"?code=c&state="+url.QueryEscape(q.Get("state")), http.StatusSeeOther)
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		if base64.RawURLEncoding.EncodeToString(sum[:]) != p.challenge || r.PostFormValue("code") != "c" {
			http.Error(w, `{"error": "invalid_grant"}`, http.StatusBadRequest)
			return
		}
		claims := map[string]any{"iss": p.URL, "aud": "sluice", "sub": "7", "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(), "nonce": p.nonce, "email": "Erika@example.net", "email_verified": true, "groups": []string{"netops"}}
		for name, v := range p.claims {
			claims[name] = v
		}
		answer(w, map[string]any{"access_token": "x", "token_type": "Bearer", "id_token": sign(t, p.key, claims)})
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

func sign(t *testing.T, key *rsa.PrivateKey, claims map[string]any) string {
	text, err := json.Marshal(claims)
	ok(t, err)
	signed := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","kid":"1"}`)) + "." + base64.RawURLEncoding.EncodeToString(text)
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	ok(t, err)
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// follow goes where a browser is sent, as far as it is not a page.
func (b *browser) follow(at string) (answer, string) {
	b.Helper()
	for range 10 {
		path, own := strings.CutPrefix(at, "https://"+b.web)
		if !own {
			r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, at, http.NoBody)
			ok(b, err)
			said, err := b.client.Do(r)
			ok(b, err)
			ok(b, said.Body.Close())
			at = said.Header.Get("Location")
			continue
		}
		if path == "/" {
			path = "/session"
		}
		is, text := b.do("GET", path, "")
		if at = is.Header.Get("Location"); at == "" {
			return is, text
		}
		if strings.HasPrefix(at, "/") {
			at = "https://" + b.web + at
		}
		if strings.HasPrefix(at, "http://127.0.0.1:9/") {
			return is, at
		}
	}
	b.Fatal("it is sent in circles")
	return answer{}, ""
}

func (f *fleet) provide(p *Provider) {
	f.Helper()
	ok(f, f.stop())
	f.provider = p
	f.run()
}

// TestProvider: who comes back from the provider is logged in by what it signs for this
// controller and this browser, and by nothing else.
func TestProvider(t *testing.T) {
	t.Parallel()
	f, p := newFleet(t, "example.net"), newForger(t)
	f.provide(&Provider{Issuer: p.URL, Client: "sluice", Secret: "s", GroupsClaim: "groups"})
	f.text += "access: [{who: \"oidc:netops\", role: viewer}]\n"
	_, err := f.publish("input: {default: drop}\n")
	ok(t, err)
	if is, text := f.browser().follow("https://" + f.web + "/login"); is.StatusCode != http.StatusOK || !strings.Contains(text, "logged in as erika@example.net, viewer for all hosts") {
		t.Fatal(is.StatusCode, text)
	}
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	ok(t, err)
	right := p.key
	for what, c := range map[string]struct {
		claims map[string]any
		key    *rsa.PrivateKey
		want   string
	}{
		"another nonce":         {map[string]any{"nonce": "x"}, nil, "is of another login"},
		"no nonce":              {map[string]any{"nonce": nil}, nil, "is of another login"},
		"another audience":      {map[string]any{"aud": "other"}, nil, "is not signed for this controller"},
		"another issuer":        {map[string]any{"iss": "https://other.example.net"}, nil, "is not signed for this controller"},
		"one that is over":      {map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}, nil, "or has expired"},
		"another key":           {nil, other, "is not signed for this controller"},
		"no address":            {map[string]any{"email": nil}, nil, "no role"},
		"an unverified address": {map[string]any{"email_verified": false, "groups": nil}, nil, "logged in as sub/7, nobody"},
		"a name like a mail":    {map[string]any{"email_verified": false, "sub": "erika@example.net"}, nil, "has not verified your e-mail address"},
		"a name with escapes":   {map[string]any{"email": "a\x1b[31m@example.net"}, nil, "names you in a way"},
		"a group with escapes":  {map[string]any{"groups": []string{"a\nb"}}, nil, "names a group in a way"},
		"groups of no kind":     {map[string]any{"groups": 7}, nil, "list of your groups is in an unknown form"},
	} {
		p.mutex.Lock()
		p.claims, p.key = c.claims, right
		if c.key != nil {
			p.key = c.key
		}
		p.mutex.Unlock()
		if what == "no address" {
			c.want = "logged in as sub/7, viewer"
		}
		if is, text := f.browser().follow("https://" + f.web + "/login"); !strings.Contains(text, c.want) || strings.Contains(c.want, "logged in as") != (is.StatusCode == http.StatusOK) {
			t.Errorf("%s: %d %s", what, is.StatusCode, text)
		}
	}
	p.claims, p.key = nil, right

	b := f.browser()
	is, _ := b.do("GET", "/login", "")
	at, err := url.Parse(is.Header.Get("Location"))
	ok(t, err)
	state := at.Query().Get("state")
	for what, path := range map[string]string{
		"another state": "/login/callback?code=c&state=x", "no state": "/login/callback?code=c",
		"another browser": "/login/callback?code=c&state=" + url.QueryEscape(state), "a refusal": "/login/callback?error=access_denied&state=x",
	} {
		if is, text := f.browser().do("GET", path, ""); is.StatusCode != http.StatusUnauthorized || !strings.Contains(text, "has not started to log in") {
			t.Errorf("%s: %d %s", what, is.StatusCode, text)
		}
	}
	if is, text := b.do("GET", "/login/callback?code=c&state=x", ""); is.StatusCode != http.StatusUnauthorized || !strings.Contains(text, "is not for the request of this browser") {
		t.Errorf("another state: %d %s", is.StatusCode, text)
	}
	is, _ = b.do("GET", "/login", "")
	at, err = url.Parse(is.Header.Get("Location"))
	ok(t, err)
	if is, text := b.do("GET", "/login/callback?code=stolen&state="+url.QueryEscape(at.Query().Get("state")), ""); is.StatusCode != http.StatusUnauthorized || !strings.Contains(text, "does not accept its own code") {
		t.Errorf("another code: %d %s", is.StatusCode, text)
	}
}

// TestProviderForCommand: a command that logs in gets a session for its own secret, by a link
// that comes to this machine alone.
func TestProviderForCommand(t *testing.T) {
	t.Parallel()
	f, p := newFleet(t, "example.net"), newForger(t)
	f.provide(&Provider{Issuer: p.URL, Client: "sluice", GroupsClaim: "groups"})
	hash := func(token string) string {
		h, err := api.SecretHash(token)
		ok(t, err)
		return fmt.Sprintf("%x", h)
	}
	token := api.NewSecret()
	for _, back := range []string{"https://other.example.net/", "http://127.0.0.1.example.net:9/", "http://localhost:9/", "http://127.0.0.1/", "http://a@127.0.0.1:9/", "http://127.0.0.1:9/?x=y", "javascript:1", ""} {
		if is, text := f.browser().do("GET", "/login?binds="+hash(token)+"&back="+url.QueryEscape(back), ""); is.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %d %s", back, is.StatusCode, text)
		}
	}
	_, at := f.browser().follow("https://" + f.web + "/login?binds=" + hash(token) + "&back=" + url.QueryEscape("http://127.0.0.1:9/x"))
	back, err := url.Parse(at)
	ok(t, err)
	link := back.Query().Get("link")
	if back.Path != "/x" || link == "" {
		t.Fatal(at)
	}
	if _, err := api.LogIn(t.Context(), "https://"+f.web, link, api.NewSecret(), f.tls()); err == nil || !strings.Contains(err.Error(), "the link was used or has expired") {
		t.Errorf("who has seen the link logs in with a secret of their own: %v", err)
	}
	a, err := api.LogIn(t.Context(), "https://"+f.web, link, token, f.tls())
	ok(t, err)
	if a.Who != "user:erika@example.net" || a.Kind != api.AccessKindSession {
		t.Errorf("%+v", a)
	}
	if _, err := api.LogIn(t.Context(), "https://"+f.web, link, token, f.tls()); err == nil {
		t.Error("twice")
	}
}
