package cli

import (
	"crypto/ed25519"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/ssh"

	"sluice/internal/fleet/trust"
)

// addresses are lines of a list, from a number on.
func addresses(from, to int) string {
	var out strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&out, "198.51.%d.%d\n", i/128, i%128*2)
	}
	return out.String()
}

// TestSignLists: what the URLs of sets serve is signed with the policy, and stays as it was
// signed where nothing good can be had; what hosts ask for by themselves is not.
func TestSignLists(t *testing.T) {
	t.Setenv("SSH_AUTH_SOCK", "")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var served atomic.Value
	served.Store(addresses(0, 100) + "# the end\n")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/list.txt" {
			t.Errorf("it asks for %s", r.URL)
		}
		if text, _ := served.Load().(string); text != "" {
			_, _ = w.Write([]byte(text))
			return
		}
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer server.Close()
	repository, keys, _, line := fleetFolders(t)
	run(t, 0, line...)
	sign := func(want int, more ...string) (string, string) {
		t.Helper()
		return run(t, want, append([]string{"sign", "--repository", repository, "--key", filepath.Join(keys, "policy.pem")}, more...)...)
	}
	signed := func() (files []trust.File, texts map[string]string) {
		t.Helper()
		r, err := trust.OpenRepository(repository)
		ok(t, err)
		_, m, err := r.Newest()
		ok(t, err)
		texts = map[string]string{}
		for _, f := range m.Lists {
			text, err := r.Blob(f.SHA256)
			ok(t, err)
			texts[f.Path] = string(text)
		}
		return m.Lists, texts
	}
	part := "version: 1\nhosts: role=%s\nsets:\n  own: {url: \"" + server.URL + "/own.txt\", refresh: 1h}\n  scanners: {url: \"" + server.URL + "/list.txt\"}\n  some: {file: some.txt}\ninput: {rules: [\"drop from [scanners, some, own]\"]}\n"
	write(t, filepath.Join(repository, "parts/50-web.yaml"), fmt.Sprintf(part, "web"))
	write(t, filepath.Join(repository, "parts/60-db.yaml"), fmt.Sprintf(part, "db"))
	write(t, filepath.Join(repository, "parts/some.txt"), "203.0.113.9\n")
	_, errOut := sign(2, "--offline")
	has(t, errOut, "set scanners: no copy of "+server.URL+"/list.txt yet")
	out, _ := sign(0)
	has(t, out, "+ parts/some.txt", "+ trust/lists/scanners-")
	files, texts := signed()
	if len(files) != 2 || files[0].Path != "trust/lists/"+filepath.Base(files[0].Path) || files[0].Selector != "(role=web) or (role=db)" || files[1].Selector != files[0].Selector {
		t.Errorf("lists %+v", files)
	}
	if got := texts[files[0].Path]; got != addresses(0, 100) {
		t.Errorf("the remark is signed too:\n%s", got)
	}
	out, _ = sign(0)
	has(t, out, "which nothing has changed since")

	for _, bad := range []struct{ serves, says string }{{"", "502 Bad Gateway"}, {addresses(0, 50), "50% of the IPv4 addresses"}, {"<html>\n", "<html>"}} {
		served.Store(bad.serves)
		ok(t, os.RemoveAll(os.Getenv("XDG_CACHE_HOME"))) // as in CI
		out, errOut = sign(0)
		has(t, out, "which nothing has changed since")
		has(t, errOut, "warning: set scanners stays as it was signed", bad.says)
	}
	served.Store(addresses(0, 50))
	out, _ = sign(0, "--offline")
	has(t, out, "which nothing has changed since")
	out, _ = sign(0, "--force")
	has(t, out, "bundle 2 of", "~ trust/lists/scanners-")
	if _, texts := signed(); texts[files[0].Path] != addresses(0, 50) {
		t.Errorf("signed %q", texts)
	}
}

// TestCosignLists: who signs second signs the list that was signed first, whatever its server
// says by now.
func TestCosignLists(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	serves := addresses(0, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(serves)) }))
	defer server.Close()
	repository, _, _, line := fleetFolders(t)
	var sockets []string
	for _, name := range []string{"a", "b"} {
		public, private, err := ed25519.GenerateKey(nil)
		ok(t, err)
		sockets = append(sockets, sshAgent(t, private))
		key, err := ssh.NewPublicKey(public)
		ok(t, err)
		file := filepath.Join(t.TempDir(), name+".pub")
		write(t, file, string(ssh.MarshalAuthorizedKey(key)))
		line = append(line, "--policy-key", file)
	}
	run(t, 0, append(line, "--policy-threshold", "2")...)
	write(t, filepath.Join(repository, "parts/50-web.yaml"), "version: 1\nsets: {scanners: {url: \""+server.URL+"/list.txt\"}}\ninput: {rules: [drop from scanners]}\n")
	t.Setenv("SSH_AUTH_SOCK", sockets[0])
	run(t, 1, "sign", "--repository", repository)
	serves = addresses(0, 101)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("SSH_AUTH_SOCK", sockets[1])
	out, errOut := run(t, 0, "sign", "--repository", repository)
	has(t, out, "bundle 1 of example.net, which nothing has changed since")
	has(t, errOut, "signed bundle 1 until")
}
