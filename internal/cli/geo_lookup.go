package cli

import (
	"fmt"
	"net/netip"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/language/geo"
)

type geoLookup struct {
	Address netip.Addr   `json:"address"`
	Country *geo.Country `json:"country"` // null: no country
	Range   string       `json:"range,omitempty"`
}

func newGeoLookup() *cobra.Command {
	return &cobra.Command{
		Use:   "lookup ADDRESS...",
		Short: "Show the country of addresses",
		Long: `Shows the country of each address in the data in use, and the range of that country that
contains it.

Exit status: 0 all have a country, 1 some have none, 2 bad use or bad input.`,
		Example: "  sluice geo lookup 203.0.113.9 2001:db8::1",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			addrs := make([]netip.Addr, len(args))
			for i, arg := range args {
				var err error
				if addrs[i], err = netip.ParseAddr(arg); err != nil || addrs[i].Zone() != "" {
					return fmt.Errorf("%q is not an IP address\nhint: give an address, as names of hosts are not looked up; sluice geo list shows countries", arg)
				}
			}
			d, err := geo.Open(optionsOf(cmd).stateDir)
			if err != nil {
				return err
			}
			return printGeoLookups(cmd, d, addrs)
		},
	}
}

func printGeoLookups(cmd *cobra.Command, d *geo.Database, addrs []netip.Addr) error {
	var found []geoLookup
	var missing error
	for _, a := range addrs {
		m, ok, err := d.Find(a)
		if err != nil {
			return err
		}
		l := geoLookup{Address: a}
		if ok {
			l.Country, l.Range = &m.Country, m.Range.String()
		} else {
			missing = command.ErrFound
		}
		found = append(found, l)
	}
	if optionsOf(cmd).json {
		if err := command.PrintJSON(cmd.OutOrStdout(), found); err != nil {
			return err
		}
		return missing
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	for _, l := range found {
		if l.Country == nil {
			fmt.Fprintf(w, "%s\t-\tno country\n", l.Address)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", l.Address, geoName(*l.Country), l.Country.Continent, l.Range)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return missing
}
