package host

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sluice/internal/base/sorting"
	"sluice/internal/system/kernel/netns"
)

// Role is what a server is to the host that asks it.
type Role string

// Roles.
const (
	Mirror     Role = "package mirror"
	TimeServer Role = "time server"
)

// Server is a server that the host asks by itself, as a program's configuration
// names it.
type Server struct {
	Role      Role         `json:"role"`
	Name      string       `json:"name"`                // as configured, may be an address
	Addresses []netip.Addr `json:"addresses,omitempty"` // none: the name is not known here
	Protocol  string       `json:"protocol"`            // "tcp" or "udp"
	Port      uint16       `json:"port"`
	FromPort  uint16       `json:"from-port,omitempty"` // that the program asks from; 0: whichever the kernel gives
	File      string       `json:"file"`                // that names it
}

// ReadServers reads which package mirrors and time servers the host asks, and which
// other firewalls start with it. Names become addresses by /etc/hosts and,
// by asking the host's resolver, which has so much time for all of them (0: it is
// not asked); a name that stays without an address is told of in Unread.
//
// It is apart from Describe, since most callers need none of it and names
// change their addresses from day to day.
func (f *Facts) ReadServers(ctx context.Context, patience time.Duration) {
	f.Servers = configuredServers("/")
	if f.Namespace == "" { // services are the host's own
		f.Firewalls = otherFirewalls(os.DirFS("/"))
	}
	forwarders(&f.Resolvers)
	names := hostsFile("/etc/hosts")
	var asked []string
	for i := range f.Servers {
		s := &f.Servers[i]
		if a, err := netip.ParseAddr(s.Name); err == nil {
			s.Addresses = []netip.Addr{a.Unmap().WithZone("")}
		} else if s.Addresses = slices.Clone(names[strings.ToLower(s.Name)]); len(s.Addresses) == 0 {
			asked = append(asked, s.Name)
		}
	}
	slices.Sort(asked)
	asked = slices.Compact(asked)
	if patience == 0 {
		if len(asked) > 0 {
			f.Unread = append(f.Unread, f.withoutAddress(asked)+": names were not looked up")
		}
		return
	}
	found := lookUpNames(ctx, asked, patience)
	for i := range f.Servers {
		if s := &f.Servers[i]; len(s.Addresses) == 0 {
			s.Addresses = found[s.Name]
		}
	}
	asked = slices.DeleteFunc(asked, func(n string) bool { return len(found[n]) > 0 })
	if len(asked) > 0 {
		f.Unread = append(f.Unread, f.withoutAddress(asked)+": the names could not be looked up")
	}
}

// withoutAddress is the servers of some names, and why anybody wants their addresses.
func (f *Facts) withoutAddress(asked []string) string {
	var of []string
	for _, s := range f.Servers {
		if text := fmt.Sprintf("%s (%s)", s.Name, s.Role); slices.Contains(asked, s.Name) && !slices.Contains(of, text) {
			of = append(of, text)
		}
	}
	return "addresses of what this host asks by itself, " + strings.Join(of, ", ")
}

// lookUpNames asks for all names at once.
func lookUpNames(ctx context.Context, names []string, patience time.Duration) map[string][]netip.Addr {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	here, err := netns.Here()
	if err != nil {
		return nil
	}
	defer here.Close()
	resolver := here.Resolver()
	type answer struct {
		name      string
		addresses []netip.Addr
	}
	answers := make(chan answer, len(names))
	for _, name := range names {
		go func() {
			// A name that nobody knows is told of by its lack of addresses.
			all, _ := resolver.LookupNetIP(ctx, "ip", name)
			for i := range all {
				all[i] = all[i].Unmap().WithZone("")
			}
			answers <- answer{name, sorting.Unique(all, netip.Addr.Compare)}
		}()
	}
	out := map[string][]netip.Addr{}
	for range names {
		select {
		case a := <-answers:
			out[a.name] = a.addresses
		case <-ctx.Done():
			return out
		}
	}
	return out
}

// Files that name the servers which a forwarder on loopback asks, where
// resolv.conf names the forwarder alone (NetworkManager with dnsmasq,
// resolvconf(8) with dnsmasq).
var forwarderFiles = []string{"/run/NetworkManager/no-stub-resolv.conf", "/run/dnsmasq/resolv.conf"}

func forwarders(servers *[]netip.Addr) {
	if len(*servers) == 0 || slices.ContainsFunc(*servers, func(a netip.Addr) bool { return !a.IsLoopback() }) {
		return
	}
	for _, file := range forwarderFiles {
		if asked, err := nameservers(file); err == nil {
			*servers = append(*servers, asked...)
		}
	}
	*servers = sorting.Unique(*servers, netip.Addr.Compare)
}

// serverFiles are the files that name servers, below the root of a file system.
var serverFiles = []struct {
	pattern string
	parse   func(text string) []Server
}{
	{"etc/apt/sources.list", parseAptList},
	{"etc/apt/sources.list.d/*.list", parseAptList},
	{"etc/apt/sources.list.d/*.sources", parseAptSources},
	{"etc/yum.repos.d/*.repo", parseRepositories},
	{"etc/zypp/repos.d/*.repo", parseRepositories},
	{"etc/pacman.d/mirrorlist", parsePacman},
	{"etc/apk/repositories", parseAPK},
	{"etc/chrony.conf", parseChrony},
	{"etc/chrony/chrony.conf", parseChrony},
	{"etc/chrony/conf.d/*.conf", parseChrony},
	{"etc/chrony/sources.d/*.sources", parseChrony},
	{"run/chrony-dhcp/*.sources", parseChrony},
	{"etc/systemd/timesyncd.conf", parseTimesyncd},
	{"etc/systemd/timesyncd.conf.d/*.conf", parseTimesyncd},
	{"run/systemd/timesyncd.conf.d/*.conf", parseTimesyncd},
	{"etc/ntp.conf", parseNTP},
	{"etc/ntpsec/ntp.conf", parseNTP},
	{"etc/openntpd/ntpd.conf", parseOpenNTPD},
	{"etc/ntpd.conf", parseOpenNTPD},
}

// configuredServers reads the files below a root. What cannot be read is the
// business of programs that this host does not have.
func configuredServers(root string) []Server {
	var all []Server
	for _, f := range serverFiles {
		all = append(all, serversIn(root, f.pattern, f.parse)...)
	}
	if proxies := aptProxies(root); len(proxies) > 0 {
		all = slices.DeleteFunc(all, func(s Server) bool { return strings.HasPrefix(s.File, "/etc/apt/") })
		all = append(all, proxies...)
	}
	sorting.By(all, func(a, b Server) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol),
			cmp.Compare(a.Port, b.Port), cmp.Compare(a.FromPort, b.FromPort), cmp.Compare(a.File, b.File))
	})
	return slices.CompactFunc(all, func(a, b Server) bool {
		a.File, b.File = "", ""
		return a.Role == b.Role && a.Name == b.Name && a.Protocol == b.Protocol && a.Port == b.Port && a.FromPort == b.FromPort
	})
}

// serversIn reads the files below a root that a pattern names.
func serversIn(root, pattern string, parse func(text string) []Server) []Server {
	var all []Server
	paths, _ := filepath.Glob(filepath.Join(root, pattern)) // the patterns are right
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for _, s := range parse(string(text)) {
			if under, err := filepath.Rel(root, path); err == nil {
				s.File = "/" + under
			}
			all = append(all, s)
		}
	}
	return all
}

// aptProxies is the proxies that apt asks in place of its mirrors.
func aptProxies(root string) []Server {
	return append(serversIn(root, "etc/apt/apt.conf", parseAptProxy), serversIn(root, "etc/apt/apt.conf.d/*", parseAptProxy)...)
}
