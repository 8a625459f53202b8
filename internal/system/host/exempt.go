package host

import (
	"errors"
	"net/netip"
	"slices"

	"sluice/internal/base/sorting"
	"sluice/internal/system/kernel/link"
)

// Exempt is whom no ban by a limit hits: who is logged in over ssh, the routers of the
// default routes and the name servers, sorted. Loopback and link-local addresses, which
// no ban hits anyway, are left out, and so is who is connected to ssh but not known to be
// logged in: nobody is to exempt himself by connecting.
func (f *Facts) Exempt() []netip.Addr {
	all := slices.Concat(f.Gateways, f.Resolvers)
	for _, p := range f.SSHClients {
		if !p.Unproved {
			all = append(all, p.Remote.Addr())
		}
	}
	var out []netip.Addr
	for _, a := range all {
		if a = a.Unmap().WithZone(""); a.IsGlobalUnicast() {
			out = append(out, a)
		}
	}
	return sorting.Unique(out, netip.Addr.Compare)
}

// ReadServing reads the routers of the default routes and the name servers; namespace is
// as in Facts.
func (f *Facts) ReadServing(namespace string) error {
	gateways, failed := link.Gateways()
	f.Gateways = sorting.Unique(gateways, netip.Addr.Compare)
	resolvers, err := Resolvers(namespace)
	f.Resolvers = resolvers
	return errors.Join(failed, err)
}

// ReadPeers reads who manages the host over ssh, which needs its interfaces; own is as
// of Describe.
func (f *Facts) ReadPeers(own *SSHClient) error {
	had := len(f.Unread)
	f.readSSHClients(own)
	if len(f.Unread) > had {
		return errors.New(f.Unread[had])
	}
	return nil
}
