package link

import (
	"errors"
	"fmt"
	"slices"

	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"
)

// Card is what the driver of a device says of it.
type Card struct {
	Driver        string // "" where it has no name
	Receive, Send Ring
	// Off are offloads that could be on and are not, by the kernel's names
	// (net/ethtool/common.c, netdev_features_strings).
	Off []string
}

// Ring is of packets that wait between a device and the processor; zero where there is
// none.
type Ring struct{ Now, Most uint32 }

// offloads are those that spare a processor work for each packet.
var offloads = []string{"rx-checksum", "rx-gro", "tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6", "tx-generic-segmentation", "tx-tcp-segmentation", "tx-tcp6-segmentation"}

// Cards asks the drivers of devices, by their names, in the network namespace of the
// calling thread (ioctl SIOCETHTOOL). A device that is gone is left out.
func Cards(names ...string) (map[string]Card, error) {
	asked, err := ethtool.NewEthtool()
	if err != nil {
		return nil, fmt.Errorf("ask drivers of devices: %w", err)
	}
	defer asked.Close()
	out := map[string]Card{}
	for _, name := range names {
		c, err := card(asked, name)
		if errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("ask the driver of %s: %w", name, err)
		}
		out[name] = c
	}
	return out, nil
}

func card(asked *ethtool.Ethtool, name string) (c Card, err error) {
	unless := func(err error) error {
		if errors.Is(err, unix.EOPNOTSUPP) {
			return nil
		}
		return err
	}
	if c.Driver, err = asked.DriverName(name); unless(err) != nil {
		return c, err
	}
	ring, err := asked.GetRing(name)
	if unless(err) != nil {
		return c, err
	}
	if err == nil {
		c.Receive, c.Send = Ring{ring.RxPending, ring.RxMaxPending}, Ring{ring.TxPending, ring.TxMaxPending}
	}
	features, err := asked.FeaturesWithState(name)
	for feature, state := range features {
		if state.Available && !state.Active && slices.Contains(offloads, feature) {
			c.Off = append(c.Off, feature)
		}
	}
	slices.Sort(c.Off)
	return c, unless(err)
}
