package host

import (
	"maps"
	"net/netip"
	"slices"

	"sluice/internal/system/kernel/conntrack"
	"sluice/internal/system/kernel/link"
	"sluice/internal/system/kernel/socket"
	"sluice/internal/system/kernel/wireguard"
	"sluice/internal/system/kernel/xfrm"
)

func (f *outerFinder) readOwn() error {
	f.ownAddresses, f.addresses = map[netip.Addr]bool{}, map[string][]netip.Addr{}
	links, err := link.List()
	if err != nil {
		return err
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Index] = l.Name
		for _, p := range l.Addresses {
			f.ownAddresses[p.Addr()] = true
			f.addresses[l.Name] = append(f.addresses[l.Name], p.Addr())
		}
	}
	indices, err := link.DefaultRoutes()
	if err != nil {
		return err
	}
	for _, i := range indices {
		f.ways = append(f.ways, names[i])
	}
	if len(f.ways) == 0 {
		f.ways = slices.Sorted(maps.Keys(f.addresses))
	}
	// A default route through the tunnel itself is not its outer flow's.
	f.ways = slices.DeleteFunc(f.ways, func(name string) bool {
		kind := f.devices[name].Kind
		return name == "lo" || !slices.Contains(plain, kind) && !slices.Contains(layered, kind)
	})
	return nil
}

func (f *outerFinder) readEntries() (err error) {
	n, err := conntrack.Count()
	if err != nil || n == 0 {
		return err
	}
	f.entries, err = conntrack.List()
	return err
}

func (f *outerFinder) readUDP() (err error) {
	f.udp, err = socket.UDP()
	return err
}

func (f *outerFinder) readTCP() (err error) {
	f.tcp, err = socket.TCP()
	return err
}

func (f *outerFinder) readStates() (err error) {
	f.states, err = xfrm.States()
	return err
}

func (f *outerFinder) readWireGuard() (err error) {
	f.wireguard, err = wireguard.Devices()
	return err
}
