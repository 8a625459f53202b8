package demo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"sluice/internal/lab/product"
	"sluice/internal/lab/testnet"
	"sluice/internal/language/geo"
)

// demo is one run: the laboratory, the product, and what was seen so far.
type demo struct {
	*report
	lab
	product.Sluice
	db     *geo.Database
	policy string // file, in the directory that sluice runs in
	dir    string // for what the servers write
}

// Main plays it, and returns the exit status: 0 all is as it has to be, 1 something is
// not, 2 it could not be played, 130 interrupted.
func Main(args []string) int {
	var d demo
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.StringVar(&d.Binary, "sluice", "bin/sluice", "the binary to show")
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
	d.dir, d.State = dir, filepath.Join(dir, "state")
	d.Dir, d.policy = filepath.Split(d.policy)
	if d.Binary, err = filepath.Abs(d.Binary); err != nil {
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
	if err := d.TakeCountries(context.Background(), dir); err != nil {
		return err
	}
	db, err := geo.Open(d.State)
	if err != nil {
		return err
	}
	d.db = db
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
	if _, err := d.host.ServeWeb(d.dir, "\t\tlisten [::]:80;\n\t\tlocation / { return 200 \"hello $remote_addr\\n\"; }\n"); err != nil {
		return err
	}
	d.resolver.ServeName(resolver4, "www.example.net", "203.0.113.80")
	d.host.ServeTCP("0.0.0.0:22", "[::]:22")
	d.host.ServeUDP("0.0.0.0:443", "[::]:443")
	return nil
}

// run runs a command about the host.
func (d *demo) run(args ...string) (output string, status int, err error) {
	return d.Run(context.Background(), d.host, nil, args...)
}

// must is run of a command that has to succeed.
func (d *demo) must(args ...string) (string, error) {
	return d.Must(context.Background(), d.host, args...)
}

func (d *demo) applyPolicy() error {
	d.title("The only-Europe example, applied (in %s)", filepath.Clean(d.Dir))
	start := time.Now()
	out, err := d.must("apply", d.policy)
	if err != nil {
		return err
	}
	d.quote("sluice apply "+d.policy, withoutSteps(out))
	d.say("loaded, read back and proved in %.1f s", time.Since(start).Seconds())
	return d.proved()
}
