package testnet

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
)

// ServeWeb has nginx serve on port 80 of IPv4, as a set-up step; server is what its
// server block says beside that. The folder is for what it writes, and nobody else's.
func (s *Namespace) ServeWeb(dir, server string) (*Process, error) {
	s.net.helper()
	config := filepath.Join(dir, "nginx.conf")
	// One process: the worker of a master that was killed would live on.
	text := fmt.Sprintf(`daemon off;
master_process off;
pid %[1]s/nginx.pid;
error_log %[1]s/error.log;
events { worker_connections 8192; }
http {
	access_log off;
	keepalive_requests 1000000000;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	server {
		listen 80 backlog=8192;
		default_type text/plain;
%[2]s	}
}
`, dir, server)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	p := s.Start("nginx", "-p", dir, "-c", config, "-e", "stderr")
	if err := s.WaitTCP(netip.MustParseAddrPort("127.0.0.1:80"), Patience); err != nil {
		return nil, fmt.Errorf("nginx did not start: %w\n%s", err, p.Output())
	}
	return p, nil
}

// ServeName has dnsmasq answer for one name and no other, as a set-up step.
func (s *Namespace) ServeName(at netip.Addr, name, address string) {
	s.net.helper()
	s.Start("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--pid-file=", "--user=root", "--no-resolv", "--no-hosts",
		"--bind-interfaces", "--listen-address="+at.String(), "--address=/"+name+"/"+address)
}

// SysctlNumber reads a parameter that is a number.
func (s *Namespace) SysctlNumber(name string) (int, error) {
	text, err := s.GetSysctl(name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}
