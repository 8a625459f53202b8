package demo

import (
	"context"
	"errors"
	"os"
	"path/filepath"
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
	db      *geo.Database
	policy  string // file, in the directory that sluice runs in
	scratch string // directory for state, policies and what the servers write
	fleet   *fleet
}

// Options say what is played.
type Options struct {
	Binary  string   // sluice, an absolute path
	Policy  string   // file
	Data    string   // directory of the country data
	Picture string   // file for a picture (SVG) of what was printed, "" is none
	Out     *os.File // for whoever looks on
	Packets int      // of Show: so many more a second
	// Stay waits, at the end of Play, while pages show what was played; nil: there are none.
	Stay func() error
}

// Result is what came of it.
type Result struct {
	Checks  int      `json:"checks"`
	Wrong   []string `json:"wrong"` // checks that saw something else than expected
	Seconds float64  `json:"seconds"`
}

// Play plays it. An error is that it could not be played, or was interrupted, by the
// signal that testnet closes its networks of.
func Play(o Options) (r Result, err error) {
	err = within(o, func(d *demo) error {
		if err := d.play(o.Data); err != nil {
			return err
		}
		r = d.close()
		if o.Picture != "" && len(r.Wrong) == 0 {
			if err := os.WriteFile(o.Picture, drawTerminal("make demo", d.record.String()), 0o644); err != nil {
				return err
			}
		}
		if o.Stay == nil {
			return nil
		}
		return d.inTurn(func() error { return d.showPage(o.Stay) })
	})
	return r, err
}

// within has a laboratory for as long as act takes.
func within(o Options, act func(*demo) error) (err error) {
	d := &demo{report: newReport(o.Out)}
	if d.scratch, err = os.MkdirTemp("", "sluice-demo-"); err != nil {
		return err
	}
	defer os.RemoveAll(d.scratch)
	d.Binary, d.State = o.Binary, filepath.Join(d.scratch, "state")
	d.Dir, d.policy = filepath.Split(o.Policy)
	if d.net, err = testnet.Create("demo"); err != nil {
		return err
	}
	return errors.Join(act(d), d.net.Close())
}

// play is the whole of the demo, part by part.
func (d *demo) play(data string) error {
	return d.inTurn(
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
		d.letIn,
		d.fleetActs,
	)
}

// inTurn ends at the first part that fails.
func (d *demo) inTurn(parts ...func() error) error {
	for _, part := range parts {
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
	if _, err := d.host.ServeWeb(d.scratch, "\t\tlisten [::]:80;\n\t\tlocation / { return 200 \"hello $remote_addr\\n\"; }\n"); err != nil {
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
