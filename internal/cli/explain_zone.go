package cli

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/language/resolve"
	"sluice/internal/system/host"
)

// interfaces refuses the name of a zone where one of an interface is wanted.
func (a askedPacket) interfaces(f host.Facts, r *resolve.Resolved) error {
	for _, flag := range []struct{ name, value string }{{"--in", a.in}, {"--out", a.out}} {
		zone := r.Zones[flag.value]
		named := func(i host.Interface) bool { return i.Name == flag.value }
		if zone == nil || slices.Contains(zone.Patterns(), flag.value) || slices.ContainsFunc(f.Interfaces, named) {
			continue
		}
		if len(zone.Interfaces) == 0 {
			return fmt.Errorf("%s %s: %s is a zone without interfaces\nhint: say an interface, or leave %s out", flag.name, flag.value, flag.value, flag.name)
		}
		return fmt.Errorf("%s %s: %s is a zone\nhint: say one of its interfaces: %s", flag.name, flag.value, flag.value, strings.Join(zone.Patterns(), ", "))
	}
	return nil
}
