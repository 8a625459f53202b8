package controller

import (
	"bufio"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDex logs in at a real provider, by a password. It is for the long form, since building
// the provider takes as long as many tests.
func TestDex(t *testing.T) {
	if testing.Short() {
		t.Skip("builds dex: left out by -short")
	}
	t.Parallel()
	program := filepath.Join(t.TempDir(), "dex")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir = "../../lab/dex"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f := newFleet(t, "example.net")
	f.text += "access: [{who: \"user:erika@example.net\", role: operator}]\n"
	_, err := f.publish("input: {default: drop}\n")
	ok(t, err)
	f.keepWeb = true // the provider knows where it sends people
	dex := exec.CommandContext(t.Context(), program, "sluice", "secret", "https://"+f.web+"/login/callback", "erika@example.net", "correct horse")
	in, err := dex.StdinPipe()
	ok(t, err)
	out, err := dex.StdoutPipe()
	ok(t, err)
	ok(t, dex.Start())
	t.Cleanup(func() { _, _ = in.Close(), dex.Wait() })
	issuer, err := bufio.NewReader(out).ReadString('\n')
	ok(t, err)
	issuer = strings.TrimSpace(issuer)
	f.provide(&Provider{Issuer: issuer, Client: "sluice", Secret: "secret", GroupsClaim: "groups"})

	for password, want := range map[string]string{"correct horse": "logged in as erika@example.net, operator for all hosts", "wrong": "Invalid"} {
		b := f.browser()
		b.client.CheckRedirect = nil
		get := func(method, at, form string) (string, string) {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), method, at, strings.NewReader(form))
			ok(t, err)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			said, err := b.client.Do(r)
			ok(t, err)
			defer said.Body.Close()
			text := new(strings.Builder)
			_, err = bufio.NewReader(said.Body).WriteTo(text)
			ok(t, err)
			return said.Request.URL.String(), text.String()
		}
		at, page := get("GET", "https://"+f.web+"/login", "")
		if !strings.HasPrefix(at, issuer) || !strings.Contains(page, "password") {
			t.Fatalf("%s: %s", at, page)
		}
		_, page = get("POST", at, url.Values{"login": {"erika@example.net"}, "password": {password}}.Encode())
		if !strings.Contains(page, "password") {
			_, page = get("GET", "https://"+f.web+"/session", "")
		}
		if !strings.Contains(page, want) {
			t.Errorf("%s: %s", password, page)
		}
	}
}
