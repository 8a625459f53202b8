package controller

import (
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/base/selector"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/wire"
	"sluice/web"
)

// link lets a person log in.
func (f *fleet) link(user string, role api.Role, lasts time.Duration) string {
	f.Helper()
	secret := api.NewSecret()
	hash, err := api.SecretHash(secret)
	ok(f, err)
	_, err = f.client.CreateLink(f.Context(), api.NewLink{User: user, Secret: hex.EncodeToString(hash[:]), Role: role, Expires: time.Now().Add(lasts)})
	ok(f, err)
	return secret
}

// browser keeps cookies, and follows no redirect.
type browser struct {
	*fleet
	client *http.Client
}

func (f *fleet) browser() *browser {
	jar, err := cookiejar.New(nil)
	ok(f, err)
	b := &browser{f, &http.Client{
		Jar: jar, Transport: &http.Transport{TLSClientConfig: f.tls()},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	f.Cleanup(b.client.CloseIdleConnections)
	return b
}

// answer is one without its body.
type answer struct {
	StatusCode int
	Header     http.Header
	cookies    []*http.Cookie
}

func (b *browser) do(method, path, form string, headers ...string) (answer, string) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), method, "https://"+b.web+path, strings.NewReader(form))
	ok(b, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	said, err := b.client.Do(r)
	ok(b, err)
	defer said.Body.Close()
	text, err := io.ReadAll(said.Body)
	ok(b, err)
	return answer{said.StatusCode, said.Header, said.Cookies()}, string(text)
}

// TestLoginInBrowser: a link is used by a person who presses a button, once; the session is
// of that browser and of no other page in it.
func TestLoginInBrowser(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	b := f.browser()
	link := f.link("erika@example.net", api.Admin, time.Hour)
	if answer, text := b.do("GET", "/session", ""); answer.StatusCode != http.StatusUnauthorized || !strings.Contains(text, "a token is required") {
		t.Error(answer.StatusCode, text)
	}
	for range 2 { // looking at it uses nothing
		answer, text := b.do("GET", "/login?link="+link, "")
		if answer.StatusCode != http.StatusOK || !strings.Contains(text, link) || answer.Header.Get("Referrer-Policy") != "no-referrer" || !strings.Contains(answer.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Error(answer.StatusCode, text, answer.Header)
		}
	}
	if answer, text := b.do("GET", `/login?link="><script>alert(1)</script>`, ""); answer.StatusCode != http.StatusBadRequest || strings.Contains(text, "script") {
		t.Error(text)
	}
	form := url.Values{"link": {link}}.Encode()
	if answer, _ := b.do("POST", "/login", form, "Origin", "https://other.example.net"); answer.StatusCode != http.StatusForbidden {
		t.Errorf("another page logs in: %d", answer.StatusCode)
	}
	if answer, _ := b.do("GET", "/api/v1/status", "", "Authorization", "Bearer "+link); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("the link is a token: %d", answer.StatusCode)
	}
	answer, text := b.do("POST", "/login", form, "Origin", "https://"+f.web)
	cookies := answer.cookies
	if answer.StatusCode != http.StatusSeeOther || len(cookies) != 1 || text != "" {
		t.Fatalf("%d %v %s", answer.StatusCode, cookies, text)
	}
	if c := cookies[0]; !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" || !strings.HasPrefix(c.Name, "__Host-") || c.MaxAge != 12*60*60 {
		t.Errorf("%+v", c)
	}
	if answer, text := b.do("GET", "/session", ""); answer.StatusCode != http.StatusOK || !strings.Contains(text, "logged in as erika@example.net, admin for all hosts") {
		t.Error(text)
	}
	own := web.CSRF(cookies[0].Value)
	if answer, text := f.browser().do("POST", "/login", form); answer.StatusCode != http.StatusUnauthorized || !strings.Contains(text, "the link was used") {
		t.Error(answer.StatusCode, text)
	}
	if answer, text := b.do("GET", "/api/v1/hosts", ""); answer.StatusCode != http.StatusOK {
		t.Error(text)
	}
	for _, headers := range [][]string{{"Origin", "https://other.example.net"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}} {
		if answer, text := b.do("POST", "/api/v1/hosts/web-1/revoke", "{}", append(headers, web.CSRFHeader, own)...); answer.StatusCode != http.StatusForbidden || !strings.Contains(text, "another page asks this") {
			t.Errorf("%v: %d %s", headers, answer.StatusCode, text)
		}
	}
	for _, shows := range []string{"", web.CSRF("another")} {
		if answer, text := b.do("POST", "/api/v1/hosts/web-1/revoke", "{}", "Origin", "https://"+f.web, web.CSRFHeader, shows); answer.StatusCode != http.StatusForbidden || !strings.Contains(text, "does not show that this page sends it") {
			t.Error(answer.StatusCode, text)
		}
	}
	if answer, text := b.do("POST", "/api/v1/hosts/web-1/revoke", "{}", "Origin", "https://"+f.web, web.CSRFHeader, own); answer.StatusCode != http.StatusNotFound {
		t.Error(answer.StatusCode, text)
	}
	if answer, _ := b.do("DELETE", "/api/v1/session", "", web.CSRFHeader, own); answer.StatusCode != http.StatusNoContent || len(answer.cookies) != 1 || answer.cookies[0].MaxAge >= 0 {
		t.Errorf("%d %v", answer.StatusCode, answer.cookies)
	}
	if answer, _ := b.do("GET", "/api/v1/hosts", "", "Cookie", sessionCookie+"="+cookies[0].Value); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("a session that was ended: %d", answer.StatusCode)
	}
	late := f.link("max@example.net", api.Viewer, time.Second)
	f.until("its end", func() bool {
		_, text := f.browser().do("POST", "/login", url.Values{"link": {late}}.Encode())
		return strings.Contains(text, "the link was used or has expired")
	})
}

// logged is a person with a session, of groups as a provider names them.
func (f *fleet) logged(user string, groups ...string) *api.Client {
	f.Helper()
	return f.elsewhere(f.session(user, groups...))
}

// session is the token of one.
func (f *fleet) session(user string, groups ...string) string {
	f.Helper()
	token := api.NewSecret()
	hash, err := api.SecretHash(token)
	ok(f, err)
	ok(f, f.controller.Store.CreateAccess(f.Context(), "user:"+user, store.Access{
		ID: api.AccessID(hash), Kind: store.AccessSession, Secret: hash, Who: "user:" + user, Groups: groups, Expires: time.Now().Add(time.Hour),
	}))
	return token
}

// TestAccessOfFleet: the newest bundle says what people may, to each all that it gives.
func TestAccessOfFleet(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	for host, env := range map[string]string{"web-1": "prod", "web-2": "test", "web-3": "dev"} {
		_, err := f.join(host, f.token(map[string]string{"env": env}, 1))
		ok(t, err)
	}
	erika, maxim, nobody := f.logged("erika@example.net", "netops", "staff"), f.logged("max@example.net", "guests"), f.logged("oidc:netops")
	sees := func(c *api.Client) string {
		t.Helper()
		hosts, err := c.Hosts(t.Context(), "")
		if kind(err) == wire.KindRole && strings.Contains(err.Error(), "has no role here: access of fleet.yaml gives roles") {
			return "no role"
		}
		ok(t, err)
		var names []string
		for _, h := range hosts.Hosts {
			names = append(names, h.Host)
		}
		return strings.Join(names, " ")
	}
	check := func(when string, want ...string) {
		t.Helper()
		got := []string{sees(erika), sees(maxim), sees(nobody)}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, and not %q", when, got, want)
		}
	}
	check("before a bundle", "no role", "no role", "no role")
	text := f.text
	f.text = text + "access:\n- { who: \"oidc:netops\", role: operator, hosts: env=prod }\n- { who: \"oidc:staff\", role: viewer, hosts: env=test }\n- { who: \"user:Max@example.net\", role: admin, hosts: env=dev }\n"
	_, err := f.publish("input: {default: drop}\n")
	ok(t, err)
	check("of the bundle", "web-1 web-2", "web-3", "no role")
	is, err := erika.Session(t.Context())
	ok(t, err)
	if text, err := json.Marshal(is.Grants); err != nil || string(text) != `[{"hosts":"env=prod","role":"operator"},{"hosts":"env=test","role":"viewer"}]` {
		t.Errorf("%s %v", text, err)
	}
	for host, c := range map[string]*api.Client{"web-3": maxim, "web-1": erika} {
		if err := c.Revoke(t.Context(), host, ""); (err == nil) != (c == maxim) || c == erika && kind(err) != wire.KindRole {
			t.Errorf("revoke %s: %v", host, err)
		}
	}
	if err := maxim.Revoke(t.Context(), "web-1", ""); kind(err) != wire.KindNotFound {
		t.Errorf("an admin of others revokes: %v", err)
	}
	f.text = text
	_, err = f.publish("input: {default: reject}\n")
	ok(t, err)
	check("of the bundle after", "no role", "no role", "no role")
}

// TestRoleOfSeveral: of several roles, those that an operation wants say of which hosts.
func TestRoleOfSeveral(t *testing.T) {
	t.Parallel()
	read := func(text string) *selector.Selector {
		s, err := selector.Parse(text)
		ok(t, err)
		return s
	}
	who := caller{Who: "user:a", grants: []grant{{api.Viewer, nil}, {api.Operator, read("a")}, {api.Admin, read("b and c")}}}
	for role, want := range map[api.Role]string{api.Viewer: "", api.Operator: "a or b and c", api.Admin: "b and c"} {
		is, may := who.to(role)
		got := ""
		if is.Hosts != nil {
			got = is.Hosts.String()
		}
		if !may || got != want || is.Role != api.Admin {
			t.Errorf("%s: %v %q %s", role, may, got, is.Role)
		}
	}
	who.grants = who.grants[:1]
	if is, may := who.to(api.Operator); may || is.Role != api.Viewer {
		t.Errorf("%v %+v", may, is)
	}
	if is, may := (caller{Who: "user:a", grants: []grant{}}).to(api.Viewer); may || is.Role != "" {
		t.Errorf("%v %+v", may, is)
	}
}

// TestPage: browsers get the page by HTTP/2, where all that it asks goes by one connection.
func TestPage(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: f.tls(), ForceAttemptHTTP2: true}}
	t.Cleanup(client.CloseIdleConnections)
	for path, kind := range map[string]string{"/": "text/html", "/hosts/web-1": "text/html", "/assets/sluice.js": "text/javascript"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+f.web+path, http.NoBody)
		ok(t, err)
		said, err := client.Do(r)
		ok(t, err)
		ok(t, said.Body.Close())
		if said.StatusCode != http.StatusOK || said.ProtoMajor != 2 || !strings.HasPrefix(said.Header.Get("Content-Type"), kind) || !strings.Contains(said.Header.Get("Content-Security-Policy"), "script-src 'self'") {
			t.Errorf("%s: %s %s %v", path, said.Proto, said.Status, said.Header)
		}
	}
}
