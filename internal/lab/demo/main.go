package demo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sluice/internal/lab/testnet"
	"sluice/internal/language/geo"
)

// demo is one run: the laboratory, the product, and what was seen so far.
type demo struct {
	*report
	lab
	product
	db     *geo.Database
	policy string // file, in the directory that the product runs in
	dir    string // for what the servers write
}

// Main plays it, and returns the exit status: 0 all is as it has to be, 1 something is
// not, 2 it could not be played, 130 interrupted.
func Main(args []string) int {
	var d demo
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.StringVar(&d.binary, "sluice", "bin/sluice", "the binary to show")
	flags.StringVar(&d.policy, "policy", "examples/only-europe/policy.yaml", "the policy to apply")
	data := flags.String("data", ".cache/geo/dbip-country", "directory of the country data")
	picture := flags.String("picture", "", "write a picture (SVG) of what was printed to `FILE`")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}

	dir, err := os.MkdirTemp("", "sluice-demo-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 2
	}
	defer os.RemoveAll(dir)
	d.dir, d.state = dir, filepath.Join(dir, "state")
	d.in, d.policy = filepath.Split(d.policy)
	if d.binary, err = filepath.Abs(d.binary); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 2
	}
	d.report = newReport(os.Stdout)

	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if d.net, err = testnet.Create("demo"); err == nil {
		err = errors.Join(d.play(*data), d.net.Close())
	}
	if interrupted.Err() != nil { // the laboratory closed itself, so whatever ran in it failed
		fmt.Fprintln(os.Stderr, "interrupted, everything is removed")
		return 130
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 2
	}
	status := d.close()
	if *picture != "" && status == 0 {
		if err := os.WriteFile(*picture, drawTerminal("make demo", d.record.String()), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			return 2
		}
	}
	return status
}

// play is the whole of the demo, part by part.
func (d *demo) play(data string) error {
	for _, part := range []func() error{
		func() error { return d.loadCountries(data) },
		d.makeInternet,
		d.applyPolicy,
		d.whoGetsIn,
		d.slowResolver,
		d.whoReachesSSH,
		d.whatOpens,
		d.byHand,
		d.lockOut,
		d.fullTable,
		func() error { return d.packetCost(data) },
	} {
		var failure error
		if err := errors.Join(d.net.Try(func() { failure = part() }), failure); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) loadCountries(dir string) error {
	d.title("Country data")
	files, err := filepath.Glob(filepath.Join(dir, "dbip-country-ipv?.csv"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no country data in %s\nhint: scripts/fetch-geo-data fetches them", dir)
	}
	args := []string{"geo", "update"}
	for _, f := range files {
		if f, err = filepath.Abs(f); err != nil {
			return err
		}
		args = append(args, "--from", f)
	}
	if _, err := d.must(nil, args...); err != nil {
		return err
	}
	if d.db, err = geo.Open(d.state); err != nil {
		return err
	}
	info := d.db.Info()
	d.say("%s, %s: %d IPv4 and %d IPv6 ranges of %d countries", info.Source,
		info.Date.Format("January 2006"), info.Total.Ranges4, info.Total.Ranges6, len(info.Countries))
	d.say("%s, %s", info.Attribution, info.Licence)
	return nil
}

func (d *demo) makeInternet() error {
	if err := d.build(d.db, []string{"DE", "NO", "IT"}, []string{"US", "BR", "JP"}); err != nil {
		return err
	}
	d.netns = d.host.Name()
	if err := startNginx(d.host, d.dir); err != nil {
		return err
	}
	startResolver(d.resolver, resolver4)
	d.host.ServeTCP("0.0.0.0:22", "[::]:22")
	d.host.ServeUDP("0.0.0.0:443", "[::]:443")
	return nil
}

// must runs a command of the product that has to succeed.
func (d *demo) must(env []string, args ...string) (string, error) {
	out, status, err := d.run(env, args...)
	if err == nil && status != 0 {
		err = fmt.Errorf("sluice %s: exit status %d:\n%s", strings.Join(args, " "), status, out)
	}
	return out, err
}

func (d *demo) applyPolicy() error {
	d.title("The only-Europe example, applied (in %s)", filepath.Clean(d.in))
	start := time.Now()
	out, err := d.must(nil, "apply", d.policy)
	if err != nil {
		return err
	}
	d.quote("sluice apply "+d.policy, withoutSteps(out))
	d.say("loaded, read back and proved in %.1f s", time.Since(start).Seconds())
	return d.proved()
}
