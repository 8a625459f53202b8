package host

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sluice/internal/base/sorting"
)

// systemd-resolved listens here and keeps the servers that it asks itself in a
// file of its own (systemd-resolved.service(8)).
var resolvedStub = []netip.Addr{netip.MustParseAddr("127.0.0.53"), netip.MustParseAddr("127.0.0.54")}

const (
	resolvConf   = "/etc/resolv.conf"
	resolvedConf = "/run/systemd/resolve/resolv.conf"
)

func (f *Facts) readResolvers() {
	servers, err := Resolvers(f.Namespace)
	if err != nil {
		f.unread("resolvers", err)
		return
	}
	f.Resolvers = servers
}

// Resolvers is the name servers that a host itself asks, sorted; namespace is as
// in Facts.
func Resolvers(namespace string) ([]netip.Addr, error) {
	path := resolvConf
	if namespace != "" {
		// ip-netns(8) shows this file in place of the host's.
		if own := namespaceConf(namespace); readable(own) {
			path = own
		}
	}
	servers, err := nameservers(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(servers, func(a netip.Addr) bool { return slices.Contains(resolvedStub, a) }) {
		if asked, err := nameservers(resolvedConf); err == nil {
			servers = append(slices.DeleteFunc(servers, func(a netip.Addr) bool { return slices.Contains(resolvedStub, a) }), asked...)
		}
	}
	return sorting.Unique(servers, netip.Addr.Compare), nil
}

func namespaceConf(namespace string) string {
	return filepath.Join("/etc/netns", namespace, "resolv.conf")
}

func readable(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func nameservers(path string) ([]netip.Addr, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return parseResolvConf(file)
}

// parseResolvConf reads the nameserver lines of resolv.conf(5); lines that it
// does not know are left out, as the resolver of the C library does.
func parseResolvConf(in io.Reader) ([]netip.Addr, error) {
	var servers []netip.Addr
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(fields[1]); err == nil {
			servers = append(servers, a.Unmap().WithZone(""))
		}
	}
	return servers, lines.Err()
}
