package demo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sluice/internal/lab/testnet"
)

// startNginx serves a page that names the address of who asks, as a set-up step.
func startNginx(s *testnet.Namespace, dir string) error {
	config := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(`daemon off;
worker_processes 1;
pid %[1]s/nginx.pid;
error_log stderr;
events { worker_connections 1024; }
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	server {
		listen 80;
		listen [::]:80;
		default_type text/plain;
		location / { return 200 "hello $remote_addr\n"; }
	}
}
`, dir)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	p := s.Start("nginx", "-p", dir, "-c", config)
	if err := s.WaitTCP(netip.MustParseAddrPort("127.0.0.1:80"), 5*time.Second); err != nil {
		return fmt.Errorf("nginx did not start: %w\n%s", err, p.Output())
	}
	return nil
}

// startResolver serves the zone example.net, as a set-up step.
func startResolver(s *testnet.Namespace, at netip.Addr) {
	s.Start("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--pid-file=",
		"--user=root", "--no-resolv", "--no-hosts", "--bind-interfaces",
		"--listen-address="+at.String(), "--address=/www.example.net/203.0.113.80")
}

// get fetches the page from inside a namespace and checks that the server saw
// the client's own address.
func get(from *testnet.Namespace, own, server netip.Addr, patience time.Duration) testnet.Result {
	transport := &http.Transport{DialContext: from.Dial, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+netip.AddrPortFrom(server, 80).String()+"/", nil)
	if err != nil {
		return testnet.Result{Outcome: testnet.Failed, Err: err}
	}
	response, err := transport.RoundTrip(request)
	switch {
	case ctx.Err() != nil:
		return testnet.Result{Outcome: testnet.Silent, Err: ctx.Err()}
	case err != nil:
		return testnet.Result{Outcome: testnet.Failed, Err: err}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || strings.TrimSpace(string(body)) != "hello "+own.String()) {
		err = fmt.Errorf("status %d, page %q", response.StatusCode, body)
	}
	if err != nil {
		return testnet.Result{Outcome: testnet.Failed, Err: err}
	}
	return testnet.Result{Outcome: testnet.Answered, Reply: body}
}
