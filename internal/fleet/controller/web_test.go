package controller

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// access lets a program ask.
func (f *fleet) access(by *api.Client, name string, role api.Role, hosts string) (string, *api.Access, error) {
	f.Helper()
	token := api.NewSecret()
	hash, err := api.SecretHash(token)
	ok(f, err)
	made, err := by.CreateAccess(f.Context(), api.NewAccess{
		Name: name, Secret: hex.EncodeToString(hash[:]), Role: role, Hosts: hosts, Expires: time.Now().Add(time.Hour),
	})
	return token, made, err
}

// newSecret is the hash of a secret that nobody needs.
func newSecret(t testing.TB) string {
	t.Helper()
	hash, err := api.SecretHash(api.NewSecret())
	ok(t, err)
	return hex.EncodeToString(hash[:])
}

func (f *fleet) tls() *tls.Config {
	f.Helper()
	ca, err := os.ReadFile(filepath.Join(f.dir, "ca.pem"))
	ok(f, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &tls.Config{RootCAs: pool}
}

// elsewhere asks over HTTPS.
func (f *fleet) elsewhere(token string) *api.Client {
	return api.NewRemote("https://"+f.web, token, f.tls())
}

// TestStrangers: who has no good token learns nothing and costs little.
func TestStrangers(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	good, made, err := f.access(f.client, "ci", api.Admin, "")
	ok(t, err)
	late, over, err := f.access(f.client, "late", api.Admin, "")
	ok(t, err)
	ok(t, f.client.WithdrawAccess(t.Context(), over.Id))
	ended := api.NewSecret()
	_, err = f.elsewhere(good).Status(t.Context())
	ok(t, err)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: f.tls()}}
	t.Cleanup(client.CloseIdleConnections)
	ask := func(path, header string) (int, wire.Failure) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+f.web+path, http.NoBody)
		ok(t, err)
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		answer, err := client.Do(r)
		ok(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		ok(t, err)
		var failure wire.Failure
		if answer.StatusCode >= 400 {
			ok(t, json.Unmarshal(text, &failure))
		}
		return answer.StatusCode, failure
	}
	for what, c := range map[string]struct{ path, header, want string }{
		"none":              {"/api/v1/status", "", "a token is required"},
		"a path of none":    {"/api/v1/none", "", "a token is required"},
		"the metrics":       {"/metrics", "", "a token is required"},
		"another scheme":    {"/api/v1/status", "Basic " + good, "a token is required"},
		"no token":          {"/api/v1/status", "Bearer x", "a token is required"},
		"a long one":        {"/api/v1/status", "Bearer " + strings.Repeat("x", 8000), "a token is required"},
		"an unknown one":    {"/api/v1/status", "Bearer " + ended, "the token is not known"},
		"one that is over":  {"/api/v1/status", "Bearer " + late, "the token was withdrawn"},
		"with blanks":       {"/api/v1/status", "Bearer  " + good, "a token is required"},
		"the hash of a one": {"/api/v1/status", "Bearer " + made.Id, "a token is required"},
	} {
		if status, failure := ask(c.path, c.header); status != http.StatusUnauthorized || failure.Kind != wire.KindUnknownCaller || !strings.Contains(failure.Text, c.want) {
			t.Errorf("%s: %d %+v", what, status, failure)
		}
	}
	refused := 0
	for range 3 * strangerBurst {
		if status, _ := ask("/api/v1/status", "Bearer "+api.NewSecret()); status == http.StatusTooManyRequests {
			refused++
		} else if status != http.StatusUnauthorized {
			t.Fatal(status)
		}
	}
	if refused == 0 {
		t.Errorf("%d tokens were tried from one address", 3*strangerBurst)
	}
	_, err = f.client.Status(t.Context()) // on the socket nobody is in the way
	ok(t, err)
}

// TestTokenEnds: one that has expired is good no more.
func TestTokenEnds(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	token := api.NewSecret()
	hash, err := api.SecretHash(token)
	ok(t, err)
	ends := time.Now().Add(time.Second)
	_, err = f.client.CreateAccess(t.Context(), api.NewAccess{Name: "ci", Secret: hex.EncodeToString(hash[:]), Role: api.Viewer, Expires: ends})
	ok(t, err)
	f.until("its end", func() bool {
		_, err := f.elsewhere(token).Status(t.Context())
		return kind(err) == wire.KindUnknownCaller && strings.Contains(err.Error(), "the token expired at")
	})
	if time.Now().Before(ends) {
		t.Error("it ends too early")
	}
}

// TestCallerAsksTooMuch: one token cannot take the controller from others.
func TestCallerAsksTooMuch(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	token, _, err := f.access(f.client, "ci", api.Viewer, "")
	ok(t, err)
	other, _, err := f.access(f.client, "other", api.Viewer, "")
	ok(t, err)
	c := f.elsewhere(token)
	f.until("it asks too much", func() bool {
		for range callerBurst {
			if _, err := c.Status(t.Context()); kind(err) == wire.KindBusy {
				return true
			}
		}
		return false
	})
	_, err = f.elsewhere(other).Status(t.Context())
	ok(t, err)
}

// TestHostsOfARole: who has a role for some hosts sees those, changes those, and gives no
// more than that.
func TestHostsOfARole(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	for host, env := range map[string]string{"web-1": "prod", "web-2": "test"} {
		_, err := f.join(host, f.token(map[string]string{"env": env}, 1))
		ok(t, err)
	}
	_, err := f.publish("input: {default: drop}\n")
	ok(t, err)
	token, _, err := f.access(f.client, "prod", api.Admin, "env=prod")
	ok(t, err)
	c := f.elsewhere(token)

	is, err := c.Status(t.Context())
	ok(t, err)
	if is.Hosts != 1 {
		t.Errorf("status counts %d hosts", is.Hosts)
	}
	for selector, want := range map[string]string{"": "web-1", "host=web-1": "web-1", "host=web-2": "", "env=prod or env=test": "web-1", "not env=prod": ""} {
		hosts, err := c.Hosts(t.Context(), selector)
		ok(t, err)
		got := ""
		for _, h := range hosts.Hosts {
			got += h.Host
		}
		if got != want {
			t.Errorf("%q selects %s", selector, got)
		}
	}
	for _, host := range []string{"web-2", "web-9"} { // one outside looks like none
		_, labels := c.SetLabels(t.Context(), host, []byte("{}"))
		for what, err := range map[string]error{"revoke": c.Revoke(t.Context(), host, ""), "labels": labels} {
			if kind(err) != wire.KindNotFound || err.Error() != `host "`+host+`": not found` {
				t.Errorf("%s of %s: %v", what, host, err)
			}
		}
	}
	if _, err := c.SetLabels(t.Context(), "web-1", []byte("{}")); kind(err) != wire.KindBadRequest {
		t.Errorf("labels of its own: %v", err)
	}

	tokens, err := c.Tokens(t.Context())
	ok(t, err)
	if len(tokens.Tokens) != 1 || tokens.Tokens[0].Labels["env"] != "prod" {
		t.Errorf("%+v", tokens)
	}
	all, err := f.client.Tokens(t.Context())
	ok(t, err)
	if len(all.Tokens) != 2 {
		t.Fatalf("%+v", all)
	}
	for _, other := range all.Tokens {
		if err := c.WithdrawToken(t.Context(), other.Id); (err == nil) != (other.Labels["env"] == "prod") {
			t.Errorf("it withdraws the token of %v: %v", other.Labels, err)
		}
	}
	secret := api.NewSecret()
	hash, err := api.SecretHash(secret)
	ok(t, err)
	enrols := api.NewToken{Id: "x", Secret: hex.EncodeToString(hash[:]), Uses: 1, Expires: time.Now().Add(time.Hour), Labels: map[string]string{"env": "test"}}
	if err := c.CreateToken(t.Context(), enrols); kind(err) != wire.KindRole {
		t.Errorf("it enrols others: %v", err)
	}
	enrols.Labels["env"] = "prod"
	ok(t, c.CreateToken(t.Context(), enrols))

	rollouts, err := c.Rollouts(t.Context(), 0)
	ok(t, err)
	one, err := c.Rollout(t.Context(), 1)
	ok(t, err)
	if text, err := json.Marshal(append(rollouts, *one)); err != nil || len(rollouts) != 1 || strings.Contains(string(text), "web-2") {
		t.Errorf("roll-outs: %s %v", text, err)
	}

	_, given, err := f.access(c, "less", api.Operator, "role=web or env=test")
	ok(t, err)
	if given.Hosts != "(role=web or env=test) and env=prod" || given.By != "token:prod" {
		t.Errorf("it gives %+v", given)
	}
	_, given, err = f.access(c, "the-same", api.Admin, "")
	ok(t, err)
	if given.Hosts != "env=prod" {
		t.Errorf("it gives %+v", given)
	}
	operator, _, err := f.access(f.client, "operator", api.Operator, "")
	ok(t, err)
	if _, _, err := f.access(f.elsewhere(operator), "more", api.Admin, ""); kind(err) != wire.KindRole {
		t.Errorf("an operator gives: %v", err)
	}
}

// TestWhatIsOfAllHosts: the operations that do not say how they keep within a caller's hosts
// are refused to whom has some.
func TestWhatIsOfAllHosts(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	who := caller{Who: "token:x", Role: api.Admin}
	var err error
	who.Hosts, err = who.hosts("env=prod")
	ok(t, err)
	within := 0
	for pattern, o := range api.Operations() {
		method, path, _ := strings.Cut(pattern, " ")
		_, kind := f.ask(who, method, parameter.ReplaceAllString(path, "1"))
		if (kind == wire.KindRole) == o.Within {
			t.Errorf("%s, within %v: %s", pattern, o.Within, kind)
		}
		if o.Within {
			within++
		}
	}
	if within == 0 || within == len(api.Operations()) {
		t.Errorf("%d of %d are within", within, len(api.Operations()))
	}
}

// TestCertificateInFiles is one that somebody renews while the controller runs.
func TestCertificateInFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := &certificateFiles{certificate: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem")}
	if _, err := files.get(nil); err == nil {
		t.Error("no file is a certificate")
	}
	write := func(at time.Time) {
		t.Helper()
		certificate, key, err := trust.NewCA("example.net", time.Now())
		ok(t, err)
		ok(t, os.WriteFile(files.key, key, 0o600))
		ok(t, os.WriteFile(files.certificate, certificate, 0o600))
		ok(t, os.Chtimes(files.certificate, at, at))
		files.looked = time.Time{}
	}
	read := func() string {
		t.Helper()
		is, err := files.get(nil)
		ok(t, err)
		return fmt.Sprintf("%x", is.Leaf.SerialNumber)
	}
	write(time.Unix(1, 0))
	first := read()
	write(time.Unix(2, 0))
	second := read()
	if first == second {
		t.Error("the renewed one is not served")
	}
	ok(t, os.WriteFile(files.certificate, []byte("half of i"), 0o600))
	files.looked = time.Time{}
	if read() != second {
		t.Error("what is not a certificate is served")
	}
}

// TestOneAddressHoldsNotAll: connections beyond what one address may have are closed.
func TestOneAddressHoldsNotAll(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	var held []net.Conn
	defer func() {
		for _, c := range held {
			_ = c.Close()
		}
	}()
	closed := func(c net.Conn) bool {
		ok(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
		_, err := c.Read(make([]byte, 1))
		timeout, is := err.(net.Error) //nolint:errorlint // it is bare
		return err != nil && (!is || !timeout.Timeout())
	}
	for range mostFrom {
		c, err := net.Dial("tcp", f.web)
		ok(t, err)
		held = append(held, c)
	}
	f.until("one beyond is closed", func() bool {
		c, err := net.Dial("tcp", f.web)
		ok(t, err)
		defer c.Close()
		return closed(c)
	})
	if closed(held[0]) {
		t.Error("the first was closed")
	}
	for _, c := range held {
		_ = c.Close()
	}
	token, _, err := f.access(f.client, "ci", api.Viewer, "")
	ok(t, err)
	f.until("it is let in again", func() bool {
		_, err := f.elsewhere(token).Status(t.Context())
		return err == nil
	})
}

// TestLimitsAreBounded: who changes their address with each request fills no memory.
func TestLimitsAreBounded(t *testing.T) {
	t.Parallel()
	l := newLimits(1, 2)
	for i := range 2 * mostLimits {
		l.get(fmt.Sprint(i)).Allow()
	}
	if len(l.of) > mostLimits+1 {
		t.Errorf("%d are kept", len(l.of))
	}
	for addr, want := range map[string]string{"192.0.2.1:1": "192.0.2.1", "[::ffff:192.0.2.1]:1": "192.0.2.1", "[2001:db8::1:2:3:4]:1": "2001:db8::/64", "[fe80::1%eth0]:1": "fe80::/64", "@": ""} {
		if got := neighbours(&http.Request{RemoteAddr: addr}); got != want {
			t.Errorf("%s is counted with %s", addr, got)
		}
	}
}
