package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/language/geo"
)

func newGeo() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "geo",
		Short: "Update and show the country data",
		Long: `Policies name countries and continents; these commands manage the data that turn them into
addresses. Until the first update the data built into Sluice are used, so you need not download
any.

Files: geo/countries in the state directory, and geo/countries.previous, which the last update
replaced and "geo undo" restores.

Exit status: 0 fine, 1 found something, 2 bad use or bad input.`,
		Example: `  sluice geo list
  sluice geo update --from dbip-country-lite-2026-06.csv.gz
  sluice geo lookup 203.0.113.9`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newGeoUpdate(), newGeoUndo(), newGeoLookup(), newGeoList(), newGeoDiff())
	return cmd
}

// printGeoOrigin prints where country data come from, a line each.
func printGeoOrigin(w io.Writer, i geo.Info, now time.Time) {
	place := i.File
	if i.BuiltIn {
		place = "built in"
	}
	fmt.Fprintf(w, "source       %s (%s)\n", i.Source, place)
	fmt.Fprintf(w, "date         %s\n", geoDate(i.Date, now))
	licence := i.Licence
	if licence == "" {
		licence = "the data do not say"
	}
	fmt.Fprintf(w, "licence      %s\n", licence)
	if i.Attribution != "" {
		fmt.Fprintf(w, "attribution  %s\n", i.Attribution)
	}
}

// geoDate shows a date of data and how long ago it was.
func geoDate(date, now time.Time) string {
	if date.IsZero() {
		return "not known"
	}
	days := int(now.Sub(date).Hours() / 24)
	switch {
	case days < 0:
		return date.Format(time.DateOnly) + " (in the future)"
	case days == 0:
		return date.Format(time.DateOnly) + " (today)"
	case days == 1:
		return date.Format(time.DateOnly) + " (1 day old)"
	}
	return fmt.Sprintf("%s (%d days old)", date.Format(time.DateOnly), days)
}

// geoName is how a country is shown in a line of text.
func geoName(c geo.Country) string {
	return strings.TrimSpace(c.Code + " " + c.Name)
}
