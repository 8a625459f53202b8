package policy

import "sluice/internal/base/addrset"

// NeverBannedAs names the addresses that no ban reaches, whatever a policy says: those of
// the host and of its links, those of a host that asks for its address, and what is nobody's.
var NeverBannedAs = []struct {
	Name      string
	Addresses addrset.Set
}{
	{"a loopback address", addrset.MustParse("127.0.0.0/8", "::1")},
	{"a link-local address", addrset.MustParse("169.254.0.0/16", "fe80::/10")},
	{"a multicast address", addrset.MustParse("224.0.0.0/4", "ff00::/8")},
	{"the unspecified address", addrset.MustParse("0.0.0.0", "::")},
	{"the broadcast address", addrset.MustParse("255.255.255.255")},
}

// NeverBanned is all of NeverBannedAs.
var NeverBanned = func() (all addrset.Set) {
	for _, n := range NeverBannedAs {
		all = all.Union(n.Addresses)
	}
	return all
}()
