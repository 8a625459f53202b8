package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"sluice/internal/agent/config"
	"sluice/internal/base/english"
	"sluice/internal/base/fetch"
	"sluice/internal/cli/command"
	"sluice/internal/engine"
	"sluice/internal/language/geo"
)

func newGeoUpdate() *cobra.Command {
	var (
		in   engine.UpdatingCountries
		date string
	)
	cmd := &cobra.Command{
		Use:   "update [--from PUBLISHER|[NAME=]URL|[NAME=]FILE]...",
		Short: "Replace the country data with newer data, after checking them",
		Long: `Downloads country data, checks them and puts them in use; the data before are kept for "geo
undo". Without --from it takes the publishers in the agent's file (/etc/sluice/agent.yaml,
countries), or else the sources of the data in use; if those are the built-in data, dbip and
registries.

PUBLISHER is dbip (DB-IP's "IP to Country Lite" of the month, free with attribution) or
registries (the delegations of the five regional registries). With several publishers the
first one decides, and the others add addresses that it does not have; where they disagree is
shown by country. NAME= names the publisher of files or URLs: those with the same name, or
without one, are of the same publisher.

Formats are detected by content, compressed with gzip or not: lines of start,end,country with
addresses or decimal numbers (DB-IP Lite and others), MaxMind databases (.mmdb), and the
registries' delegated and delegated-extended files. If a publisher has a file for each family,
or each registry its own, repeat --from.

Data are refused if they are empty, damaged, or hold fewer than 80 % of the addresses of the
data in use, in either family, as a truncated file does. --force takes them anyway, since
publishers count differently. If anything is refused, the data in use stay.

The running policy keeps the old data until "sluice refresh --countries".

Files: geo/countries, geo/countries.previous in the state directory.
Environment: HTTP_PROXY, HTTPS_PROXY, NO_PROXY.
Exit status: 0 fine, 2 refused, bad use or bad input.`,
		Example: `  sluice geo update --from dbip-country-lite-2026-06.csv.gz
  sluice geo update --from dbip --from registries
  sluice geo update --from ipv4.csv --from ipv6.csv --date 2026-06-01
  sluice geo update --from https://data.example.net/countries.mmdb --sha256 HEX`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if date != "" {
				var err error
				if in.Date, err = time.Parse(time.DateOnly, date); err != nil {
					return fmt.Errorf("--date %q is not a date such as 2026-06-01", date)
				}
			}
			return updateCountries(cmd, in)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&in.From, "from", nil, "`PUBLISHER|URL|FILE` to take the data from; may be repeated")
	flags.StringVar(&in.SHA256, "sha256", "", "require the file to have this checksum in `HEX`")
	flags.StringVar(&date, "date", "", "`DAY` of the data (2026-06-01), if they do not contain it")
	flags.String("config", config.Default, "take the publishers from the agent's `FILE` without --from")
	flags.BoolVar(&in.Force, "force", false, "accept data with far fewer addresses than those in use")
	return cmd
}

func updateCountries(cmd *cobra.Command, in engine.UpdatingCountries) error {
	ctx, stop := command.Interruptible(cmd)
	defer stop()
	h, err := hostOf(cmd)
	if err != nil {
		return err
	}
	file, _ := cmd.Flags().GetString("config")
	if cmd.Flags().Changed("config") && len(in.From) == 0 {
		if in.From, err = publishersOf(file); err != nil {
			return err
		}
	}
	h.Publishers = func() ([]string, error) {
		from, err := publishersOf(file)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return from, err
	}
	bar := newGeoProgress(cmd.ErrOrStderr())
	h.Download = bar.show
	result, err := through(h, command.HereArguments(cmd)).UpdateCountries(ctx, in)
	bar.end()
	if err != nil {
		return err
	}
	return answer(cmd, result, false, func(w io.Writer) { printGeoUpdate(w, result) })
}

// publishersOf are those of country data that an agent's file names.
func publishersOf(file string) ([]string, error) {
	asked, err := config.Load(file)
	if err != nil {
		return nil, err
	}
	return asked.Publishers, nil
}

func printGeoUpdate(w io.Writer, r *geo.UpdateResult) {
	printGeoOrigin(w, r.Info, time.Now())
	fmt.Fprintf(w, "countries    %d\n", len(r.Info.Countries))
	fmt.Fprintf(w, "IPv4         %s %s in %s %s\n", english.Grouped(r.Info.Total.Addresses4), english.Noun(r.Info.Total.Addresses4, "address"), english.Grouped(r.Info.Total.Ranges4), english.Noun(r.Info.Total.Ranges4, "range"))
	fmt.Fprintf(w, "IPv6         %s /64 networks in %s %s\n", r.Info.Total.Addresses6, english.Grouped(r.Info.Total.Ranges6), english.Noun(r.Info.Total.Ranges6, "range"))
	if r.Info.Overlaps > 0 {
		fmt.Fprintf(w, "overlaps     %s %s overlapped another country's; the narrower one counts\n", english.Grouped(r.Info.Overlaps), english.Noun(r.Info.Overlaps, "row"))
	}
	for i, p := range r.Publishers {
		printPublisher(w, p, i == 0)
	}
	if !r.Changed {
		fmt.Fprintln(w, "nothing changed")
		return
	}
	fmt.Fprintf(w, "changed      %s; sluice geo diff shows them\n", english.Plural(len(r.Diff.Countries), "country"))
	fmt.Fprintln(w, "the running policy still uses the old data: load the new with sluice refresh --countries")
}

// shownDiffers is how many pairs of countries are printed as text.
const shownDiffers = 10

func printPublisher(w io.Writer, p geo.Publisher, first bool) {
	addresses := func(c geo.Counts) string {
		return fmt.Sprintf("%s %s, %s /64 networks", english.Grouped(c.Addresses4), english.Noun(c.Addresses4, "address"), c.Addresses6)
	}
	name := p.Name
	if name == "" {
		name = "the one without a name"
	}
	if first {
		fmt.Fprintf(w, "publisher    %s decides %s\n", name, addresses(p.Decides))
		return
	}
	fmt.Fprintf(w, "publisher    %s adds %s\n", name, addresses(p.Decides))
	if len(p.Differs) == 0 {
		return
	}
	fmt.Fprintf(w, "             and disagrees about %s\n", addresses(p.Otherwise))
	for i, d := range p.Differs {
		if i == shownDiffers {
			fmt.Fprintf(w, "             and %s more: --json has all\n", english.Plural(len(p.Differs)-i, "pair"))
			break
		}
		fmt.Fprintf(w, "             %s and not %s: %s\n", geoName(d.Said), geoName(d.Decided), addresses(d.Counts))
	}
}

// geoProgress draws a bar where a person watches, and nothing elsewhere.
type geoProgress struct {
	w    io.Writer
	from string
	bar  *progressbar.ProgressBar
}

func newGeoProgress(w io.Writer) *geoProgress {
	if f, ok := command.Bare(w).(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		w = nil
	}
	return &geoProgress{w: w}
}

func (p *geoProgress) show(from string, done, total int64) {
	if p.w == nil {
		return
	}
	if p.bar == nil || from != p.from {
		p.end()
		p.from = from
		p.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(p.w), progressbar.OptionSetDescription(path.Base(fetch.Redact(from))),
			progressbar.OptionShowBytes(true), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish())
	}
	// A bar that cannot be drawn is no reason to stop.
	_ = p.bar.Set64(done)
}

func (p *geoProgress) end() {
	if p.bar != nil {
		_ = p.bar.Clear()
		p.bar = nil
	}
}
