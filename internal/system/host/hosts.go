package host

import (
	"net/netip"
	"os"
	"strings"
)

// hostsFile gives the addresses of each name of a hosts(5) file, in lower case.
func hostsFile(path string) map[string][]netip.Addr {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil // then no name is known
	}
	return parseHosts(string(text))
}

func parseHosts(text string) map[string][]netip.Addr {
	out := map[string][]netip.Addr{}
	for _, words := range uncommented(text, "#") {
		a, err := netip.ParseAddr(words[0])
		if err != nil {
			continue
		}
		for _, name := range words[1:] {
			name = strings.ToLower(name)
			out[name] = append(out[name], a.Unmap().WithZone(""))
		}
	}
	return out
}
