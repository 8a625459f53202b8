package host

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What programs are configured to ask, by the files that name it.
func TestConfiguredServers(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"etc/apt/sources.list": "# deb http://no.example.net/ stable main\n" +
			"deb [signed-by=/usr/share/keyrings/a.gpg arch=amd64] https://deb.example.net/debian stable main\n" +
			"deb-src http://src.example.net:8080/debian stable main # remark\n" +
			"deb cdrom:[a] stable main\ndeb file:/srv stable main\ndeb tor+http://onion.example.net/ stable main\ndeb mirror+https://list.example.net/mirrors stable main\n",
		"etc/apt/sources.list.d/a.sources": "Types: deb\nURIs: http://one.example.net/debian\n https://two.example.net/debian\nSuites: stable\n\n" +
			"Types: deb\nEnabled: no\nURIs: http://off.example.net/debian\n",
		"etc/yum.repos.d/a.repo":          "[base]\nbaseurl=https://rpm.example.net/$releasever/\nenabled=1\n[off]\nmirrorlist=https://off.example.net/\nenabled=0\n[var]\nbaseurl=https://$host/\n",
		"etc/pacman.d/mirrorlist":         "#Server = https://no.example.net/$repo\nServer = https://pacman.example.net/$repo/os/$arch\n",
		"etc/apk/repositories":            "https://apk.example.net/v3/main\n@edge http://apk.example.net/edge\n/media/cdrom/apks\n",
		"etc/chrony/chrony.conf":          "pool pool.example.net iburst maxsources 4\nserver 192.0.2.123 port 1123\nacquisitionport 123\n",
		"etc/systemd/timesyncd.conf":      "[Time]\n#NTP=no.example.net\nNTP=192.0.2.10 ntp.example.net\nFallbackNTP=2001:db8::123\n",
		"etc/ntp.conf":                    "server -4 ntpd.example.net iburst\nserver 127.127.1.0\nrestrict default kod\n",
		"etc/openntpd/ntpd.conf":          "servers open.example.net\nsensor *\n",
		"etc/chrony/sources.d/a.sources":  "peer 192.0.2.124\n",
		"etc/apt/sources.list.d/readme":   "deb http://no.example.net/ stable main\n",
		"etc/zypp/repos.d/a.repo":         "[a]\nmetalink = https://zypp.example.net/x\n",
		"run/chrony-dhcp/eth0.sources":    "server 192.0.2.125 iburst\n",
		"etc/chrony/conf.d/x.conf":        "driftfile /var/lib/chrony/drift\n",
		"etc/systemd/timesyncd.conf.d/no": "NTP=no.example.net\n",
	} {
		write(t, filepath.Join(root, name), text)
	}
	var got []string
	for _, s := range configuredServers(root) {
		line := fmt.Sprintf("%s %s %s/%d", s.Role, s.Name, s.Protocol, s.Port)
		if s.FromPort != 0 {
			line += fmt.Sprintf(" from %d", s.FromPort)
		}
		got = append(got, line+" "+s.File)
	}
	want := []string{
		"package mirror apk.example.net tcp/80 /etc/apk/repositories",
		"package mirror apk.example.net tcp/443 /etc/apk/repositories",
		"package mirror deb.example.net tcp/443 /etc/apt/sources.list",
		"package mirror list.example.net tcp/443 /etc/apt/sources.list",
		"package mirror one.example.net tcp/80 /etc/apt/sources.list.d/a.sources",
		"package mirror pacman.example.net tcp/443 /etc/pacman.d/mirrorlist",
		"package mirror rpm.example.net tcp/443 /etc/yum.repos.d/a.repo",
		"package mirror src.example.net tcp/8080 /etc/apt/sources.list",
		"package mirror two.example.net tcp/443 /etc/apt/sources.list.d/a.sources",
		"package mirror zypp.example.net tcp/443 /etc/zypp/repos.d/a.repo",
		"time server 192.0.2.10 udp/123 /etc/systemd/timesyncd.conf",
		"time server 192.0.2.123 udp/1123 from 123 /etc/chrony/chrony.conf",
		"time server 192.0.2.124 udp/123 /etc/chrony/sources.d/a.sources",
		"time server 192.0.2.125 udp/123 /run/chrony-dhcp/eth0.sources",
		"time server 2001:db8::123 udp/123 /etc/systemd/timesyncd.conf",
		"time server ntp.example.net udp/123 /etc/systemd/timesyncd.conf",
		"time server ntpd.example.net udp/123 from 123 /etc/ntp.conf",
		"time server open.example.net udp/123 /etc/openntpd/ntpd.conf",
		"time server pool.example.net udp/123 from 123 /etc/chrony/chrony.conf",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("servers (-want +got):\n%s", d)
	}

	// A proxy is asked in place of the mirrors.
	write(t, filepath.Join(root, "etc/apt/apt.conf.d/proxy"), "Acquire::http::Proxy \"http://proxy.example.net:3142\";\n")
	proxied := configuredServers(root)
	if slices.ContainsFunc(proxied, func(s Server) bool { return s.Name == "deb.example.net" }) ||
		!slices.ContainsFunc(proxied, func(s Server) bool { return s.Name == "proxy.example.net" && s.Port == 3142 }) {
		t.Errorf("with a proxy apt asks %v", proxied)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestParseHosts(t *testing.T) {
	got := parseHosts("127.0.0.1 localhost\n192.0.2.7 Mirror.example.net mirror # remark\n2001:db8::7 mirror.example.net\nnonsense name\n")
	want := []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")}
	if !slices.Equal(got["mirror.example.net"], want) || len(got["name"]) != 0 || len(got["remark"]) != 0 {
		t.Errorf("got %v", got)
	}
}

// A forwarder on loopback is not who answers; where resolv.conf names others
// too, nothing is added.
func TestForwardersNeedLoopback(t *testing.T) {
	servers := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.53")}
	old := slices.Clone(servers)
	file := filepath.Join(t.TempDir(), "resolv.conf")
	write(t, file, "nameserver 198.51.100.53\n")
	known := forwarderFiles
	forwarderFiles = []string{file}
	t.Cleanup(func() { forwarderFiles = known })
	forwarders(&servers)
	if !slices.Equal(servers, old) {
		t.Errorf("got %v", servers)
	}
	servers = servers[:1]
	forwarders(&servers)
	if want := netip.MustParseAddr("198.51.100.53"); !slices.Contains(servers, want) {
		t.Errorf("got %v, without %v", servers, want)
	}
}

// No text of a file makes the readers fail, or gives a name that is none.
func FuzzServerFiles(f *testing.F) {
	for _, text := range []string{
		"deb [a=b] https://deb.example.net/ x", "URIs: http://a.example.net\n b", "[x]\nbaseurl=https://a.example.net",
		"server a.example.net port 1123\nacquisitionport 123", "NTP=a b", "server -4 a", "Server = https://a.example.net/x",
		"Acquire::http::Proxy \"http://a.example.net:1\";", "192.0.2.1 a b", "deb [", "server", "@x", "[",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all := parseAptProxy(text)
		for _, file := range serverFiles {
			all = append(all, file.parse(text)...)
		}
		for _, s := range all {
			if !plainName(s.Name) || s.Port == 0 || strings.ContainsAny(s.Name, " \n\x1b") {
				t.Errorf("%q gives %+v", text, s)
			}
		}
		parseHosts(text)
	})
}

// Who wonders at a name that no policy has is told what asks it.
func TestWithoutAddress(t *testing.T) {
	f := Facts{Servers: []Server{
		{Role: Mirror, Name: "deb.example.net", Port: 80},
		{Role: Mirror, Name: "deb.example.net", Port: 443},
		{Role: TimeServer, Name: "ntp.example.net"},
		{Role: TimeServer, Name: "known.example.net"},
	}}
	want := "addresses of what this host asks by itself, deb.example.net (package mirror), ntp.example.net (time server)"
	if got := f.withoutAddress([]string{"deb.example.net", "ntp.example.net"}); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
