package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/language/geo"
)

func newGeoList() *cobra.Command {
	var continents []string
	var all bool
	cmd := &cobra.Command{
		Use:   "list [COUNTRY...]",
		Short: "List countries with their prefixes and addresses, and the data's age and licence",
		Long: `Lists the continents in the data in use or, with --all, the countries, or those that you name,
with the fewest prefixes that cover their addresses; IPv6 is counted in /64 networks. The source
of the data, their date and their licence come first. --json prints each country.

Exit status: 0 fine, 2 bad use or bad input.`,
		Example: `  sluice geo list
  sluice geo list --all
  sluice geo list NO SE
  sluice geo list --continent EU --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := geo.Open(optionsOf(cmd).stateDir)
			if err != nil {
				return err
			}
			info := d.Info()
			if info.Countries, err = chooseCountries(info.Countries, args, continents); err != nil {
				return err
			}
			if optionsOf(cmd).json {
				return command.PrintJSON(cmd.OutOrStdout(), info)
			}
			printGeoOrigin(cmd.OutOrStdout(), info, time.Now())
			if len(args) == 0 && len(continents) == 0 && !all {
				return printContinents(cmd.OutOrStdout(), info.Countries)
			}
			return printGeoList(cmd.OutOrStdout(), info)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "list all countries")
	cmd.Flags().StringSliceVar(&continents, "continent", nil, "list the countries of continent `CODE` (AF AN AS EU NA OC SA); may be repeated")
	command.Must(cmd.RegisterFlagCompletionFunc("continent", command.Words("AF", "AN", "AS", "EU", "NA", "OC", "SA")))
	return cmd
}

// chooseCountries keeps the countries with one of the codes or in one of the
// continents; all when none are given.
func chooseCountries(all []geo.CountryInfo, codes, continents []string) ([]geo.CountryInfo, error) {
	if len(codes) == 0 && len(continents) == 0 {
		return all, nil
	}
	want := make(map[string]bool)
	within := make(map[string]bool)
	for _, c := range codes {
		code, err := geo.KnownCountry(c)
		if err != nil {
			return nil, err
		}
		want[code] = true
	}
	for _, c := range continents {
		code, err := geo.KnownContinent(c)
		if err != nil {
			return nil, err
		}
		within[code] = true
	}
	return slices.DeleteFunc(all, func(c geo.CountryInfo) bool { return !want[c.Code] && !within[c.Continent] }), nil
}

func printGeoList(out io.Writer, info geo.Info) error {
	fmt.Fprintf(out, "countries    %d\n\n", len(info.Countries))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "IPv4 prefixes\taddresses\tIPv6 prefixes\t/64 networks\t  country\n")
	for _, c := range info.Countries {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t  %s %s\n", english.Grouped(c.Prefixes4), english.Grouped(c.Addresses4), english.Grouped(c.Prefixes6), c.Addresses6, c.Continent, geoName(c.Country))
	}
	return w.Flush()
}

func printContinents(out io.Writer, all []geo.CountryInfo) error {
	sums := map[string]*geo.Counts{}
	countries := map[string]int{}
	for _, c := range all {
		if sums[c.Continent] == nil {
			sums[c.Continent] = &geo.Counts{}
		}
		sums[c.Continent].Prefixes4 += c.Prefixes4
		sums[c.Continent].Addresses4 += c.Addresses4
		sums[c.Continent].Prefixes6 += c.Prefixes6
		countries[c.Continent]++
	}
	fmt.Fprintf(out, "countries    %d (sluice geo list --all lists them, --continent EU some, NO one)\n\n", len(all))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "countries\tIPv4 prefixes\taddresses\tIPv6 prefixes\t  continent\n")
	for _, code := range slices.Sorted(maps.Keys(sums)) {
		c := sums[code]
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t  %s %s\n", countries[code], english.Grouped(c.Prefixes4), english.Grouped(c.Addresses4), english.Grouped(c.Prefixes6), code, geo.ContinentName(code))
	}
	return w.Flush()
}
