package replica

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sysctlPatterns name what decides about a packet, below /proc/sys/net, in the order
// in which it is set: some settings change others below them.
var sysctlPatterns = []string{
	"ipv4/ip_forward",
	"ipv6/conf/all/forwarding",
	"ipv4/conf/all/*", "ipv6/conf/all/*",
	"ipv4/conf/default/*", "ipv6/conf/default/*",
	"ipv4/conf/*/*", "ipv6/conf/*/*",
	"ipv4/fib_*", "ipv4/fwmark_*", "ipv4/icmp_*", "ipv4/ip_*", "ipv4/ipfrag_*", "ipv4/*_l3mdev_accept",
	"ipv6/fib_*", "ipv6/fwmark_*", "ipv6/flowlabel_*", "ipv6/icmp/*", "ipv6/ip6frag_*",
	"netfilter/nf_conntrack_*",
}

// notCopied are settings that are secret, that ask for something to be done, or
// that would make the copy speak by itself.
var notCopied = []string{"stable_secret", "addr_gen_mode", "flush", "mtu", "accept_ra", "use_tempaddr"}

const sysctlRoot = "/proc/sys/net"

// setting is one sysctl.
type setting struct{ path, value string }

// readSysctls reads those of the calling thread's namespace; what may not be read is
// left out.
func readSysctls() []setting {
	var all []setting
	seen := map[string]bool{}
	for _, pattern := range sysctlPatterns {
		paths, _ := filepath.Glob(filepath.Join(sysctlRoot, pattern)) // it cannot be malformed
		slices.Sort(paths)
		for _, path := range paths {
			if seen[path] || slices.Contains(notCopied, filepath.Base(path)) {
				continue
			}
			seen[path] = true
			if value, err := os.ReadFile(path); err == nil {
				all = append(all, setting{path, strings.TrimSpace(string(value))})
			}
		}
	}
	return all
}

// writeSysctls sets what differs. Settings of the whole machine cannot be written in a
// namespace, and need not.
func writeSysctls(settings []setting) {
	for _, s := range settings {
		if have, err := os.ReadFile(s.path); err != nil || strings.TrimSpace(string(have)) == s.value {
			continue
		}
		if f, err := os.OpenFile(s.path, os.O_WRONLY, 0); err == nil {
			_, _ = f.WriteString(s.value)
			_ = f.Close()
		}
	}
}

// quiet keeps devices that are made from now on from giving themselves addresses.
func quiet() {
	writeSysctls([]setting{
		{filepath.Join(sysctlRoot, "ipv6/conf/default/addr_gen_mode"), "1"}, // IN6_ADDR_GEN_MODE_NONE
		{filepath.Join(sysctlRoot, "ipv6/conf/default/accept_dad"), "0"},
	})
}
