package fetch

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"sluice/internal/lab/testnet"
)

// TestRedirectInside: a server of the Internet leads nobody to an address of the own network, by
// whatever way; one of the own network may.
func TestRedirectInside(t *testing.T) {
	const inside = "SLUICE_TEST_INSIDE"
	if os.Getenv(inside) == "" {
		testnet.Require(t, testnet.Namespaces)
		script := "ip link set lo up\n"
		for _, a := range []string{"203.0.113.7/32", "198.51.100.7/32", "10.9.9.9/32", "100.64.0.9/32", "169.254.0.9/32", "2001:db8::7/128", "fd00::9/128"} {
			script += "ip addr add " + a + " dev lo nodad 2>/dev/null || ip addr add " + a + " dev lo\n"
		}
		cmd := exec.Command("sh", "-ec", script+`exec "$0" -test.run='^TestRedirectInside$' -test.v`, os.Args[0])
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestRedirectInside") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	at := func(address string) string {
		l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
		if err != nil {
			t.Fatal(err)
		}
		s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if to := r.URL.Query().Get("to"); to != "" {
				http.Redirect(w, r, to, http.StatusFound)
				return
			}
			fmt.Fprint(w, "data")
		})}}
		s.Start()
		t.Cleanup(s.Close)
		return "http://" + l.Addr().String()
	}
	public, other, public6 := at("203.0.113.7"), at("198.51.100.7"), at("2001:db8::7")
	for _, to := range []string{other, public, public6} {
		if _, err := Stream(t.Context(), io.Discard, Request{From: public + "/?to=" + to}); err != nil {
			t.Errorf("to %s: %v", to, err)
		}
	}
	for _, address := range []string{"10.9.9.9", "127.0.0.1", "::1", "fd00::9", "100.64.0.9", "169.254.0.9"} {
		to := at(address)
		for _, from := range []string{public + "/?to=" + to, public6 + "/?to=" + to, public + "/?to=" + other + "/?to=" + to} {
			if _, err := Stream(t.Context(), io.Discard, Request{From: from}); err == nil || !strings.Contains(err.Error(), "redirected to "+strings.TrimPrefix(to, "http://")+", a private address") {
				t.Errorf("%s: %v", from, err)
			}
		}
		if _, err := Stream(t.Context(), io.Discard, Request{From: at("10.9.9.9") + "/?to=" + to}); err != nil {
			t.Errorf("inside, to %s: %v", to, err)
		}
		if _, err := Stream(t.Context(), io.Discard, Request{From: to}); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
}

func TestOwn(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"203.0.113.7": false, "2001:db8::7": false, "::ffff:203.0.113.7": false, "64:ff9b::203.0.113.7": false, "2002:cb00:7107::1": false,
		"::ffff:10.0.0.1": true, "64:ff9b::169.254.169.254": true, "64:ff9b:1::203.0.113.7": true, "2002:7f00:1::": true, "2002:a00:1::1": true,
		"0.0.0.0": true, "::": true, "224.0.0.1": true, "fe80::1": true, "192.168.1.1": true, "100.127.0.1": true, "100.128.0.1": false,
	} {
		if is := own(netip.MustParseAddr(text)); is != want {
			t.Errorf("%s: %v", text, is)
		}
	}
}
