package cli

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/base/english"
	"sluice/internal/cli/command"
	"sluice/internal/language/apart"
	"sluice/internal/language/geo"
)

func newGeoDiff() *cobra.Command {
	return &cobra.Command{
		Use:   "diff [FILE|URL...]",
		Short: "Show how an update changes the country data, by country",
		Long: `Shows what each country gains and loses: with files, between the data in use and the files, as
an update from them would change it; without, between the data that the last update replaced
and those in use. Nothing changes.

Exit status: 0 no difference, 1 differences, 2 bad use or bad input.`,
		Example: `  sluice geo diff dbip-country-lite-2026-07.csv.gz
  sluice geo diff`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o := optionsOf(cmd)
			current, err := geo.Open(o.stateDir)
			if err != nil {
				return err
			}
			var d geo.Diff
			if len(args) > 0 {
				next, err := geo.ReadFiles(cmd.Context(), readApart(cmd.ErrOrStderr()), args...)
				if err != nil {
					return err
				}
				d, err = geo.Compare(current, next)
				if err != nil {
					return err
				}
			} else {
				previous, err := geo.OpenPrevious(o.stateDir)
				if err != nil {
					return err
				}
				if d, err = geo.Compare(previous, current); err != nil {
					return err
				}
			}
			return reportGeoDiff(cmd, d)
		},
	}
}

func reportGeoDiff(cmd *cobra.Command, d geo.Diff) error {
	if optionsOf(cmd).json {
		if err := command.PrintJSON(cmd.OutOrStdout(), d); err != nil {
			return err
		}
	} else if err := printGeoDiff(cmd.OutOrStdout(), d); err != nil {
		return err
	}
	if len(d.Countries) > 0 {
		return command.ErrFound
	}
	return nil
}

func printGeoDiff(out io.Writer, d geo.Diff) error {
	now := time.Now()
	fmt.Fprintf(out, "old  %s, %s\n", d.Old.Source, geoDate(d.Old.Date, now))
	fmt.Fprintf(out, "new  %s, %s\n", d.New.Source, geoDate(d.New.Date, now))
	if len(d.Countries) == 0 {
		fmt.Fprintln(out, "no difference")
		return nil
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "IPv4 prefixes\taddresses\tIPv6 prefixes\t/64 networks\t  country\n")
	for _, c := range d.Countries {
		for _, change := range [...]struct {
			sign   string
			counts geo.Counts
		}{{"+", c.Added}, {"-", c.Removed}} {
			n := change.counts
			if n.Ranges4 == 0 && n.Ranges6 == 0 {
				continue
			}
			fmt.Fprintf(w, "%[1]s%[2]s\t%[1]s%[3]s\t%[1]s%[4]s\t%[1]s%[5]s\t  %[6]s\n", change.sign,
				english.Grouped(n.Prefixes4), english.Grouped(n.Addresses4), english.Grouped(n.Prefixes6), n.Addresses6, geoName(c.Country))
		}
	}
	return w.Flush()
}

// fetchRanges is the process that fetches lists and country data.
var fetchRanges = command.FetchRanges("sluice")

// readApart is that process, with warnings to a writer.
func readApart(w io.Writer) apart.Process {
	return apart.Process{Command: fetchRanges, Unconfined: apart.Once(func(text string) { warn(w, text) })}
}
