package demo

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sluice/internal/lab/product"
	"sluice/internal/lab/testnet"
)

// The network of a fleet, whose bridge is the controller's.
const (
	fleetNetwork = "10.99.0."
	controllerAt = fleetNetwork + "1:7443"
)

// The fleet of the demo.
var (
	fleetHosts = []string{"web-1", "web-2", "web-3", "web-4", "web-5"}
	fleetFiles = map[string]string{
		"fleet.yaml":         "version: 1\nfleet: example.net\nparts: [parts/*.yaml]\nroll-out: {stages: [1 per class, 100%], settle: 1s, probes: [controller]}\n",
		"parts/10-base.yaml": "version: 1\ninput: {default: drop, rules: [allow ssh from " + fleetNetwork + "0/24]}\nexpect: [deny tcp/9999]\n",
	}
)

// fleet is a controller with the hosts that it has.
type fleet struct {
	*demo
	space *testnet.Namespace // of the controller
	web   string             // where people reach it from this machine, https://localhost:PORT
	hosts []*fleetHost
}

type fleetHost struct {
	product.Sluice
	name  string // its role, and a number
	space *testnet.Namespace
	at    netip.Addr
	port  *testnet.Port // of the controller's namespace, to it
}

func (h *fleetHost) socket() string { return h.State + ".socket" }

// fleetActs has a fleet take a policy host by host, and shows what happens to a mistake and
// of a change by hand.
func (d *demo) fleetActs() error {
	d.title("A fleet: one signed policy, a controller, %d hosts", len(fleetHosts))
	f := &fleet{demo: d}
	d.fleet = f
	for _, act := range []func() error{func() error { return f.found(fleetHosts, fleetFiles) }, f.first, f.change, f.mistake, f.drift} {
		if err := act(); err != nil {
			return err
		}
	}
	return nil
}

// controller is its program.
func (d *demo) controller() string {
	return filepath.Join(filepath.Dir(d.Binary), "sluice-controller")
}

// command runs the controller's program where the controller is.
func (f *fleet) command(args ...string) (string, error) {
	return f.space.Run(f.controller(), args...)
}

func (f *fleet) path(names ...string) string {
	return filepath.Join(append([]string{f.scratch, "fleet"}, names...)...)
}

func (f *fleet) inController(args ...string) []string {
	return append(args, "--dir", f.path("controller"))
}

func (f *fleet) inRepository(args ...string) []string {
	return append(args, "--repository", f.path("repository"))
}

// until waits for what a command says.
func (f *fleet) until(what string, is func(out string) bool, args ...string) (out string, err error) {
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if out, err = f.command(f.inController(args...)...); is(out) {
			return out, nil
		}
	}
	return "", fmt.Errorf("within two minutes it never came that %s: %w\n%s", what, err, out)
}

// all waits until each host proves a bundle.
func (f *fleet) all(bundle int) (string, error) {
	return f.until(fmt.Sprintf("all hosts prove bundle %d", bundle), func(out string) bool {
		return strings.Count(out, fmt.Sprintf("proved  bundle %d ", bundle)) == len(f.hosts)
	}, "hosts")
}

// found makes a fleet of hosts that run no policy yet, and has people reach its controller
// at an address of this machine.
func (f *fleet) found(names []string, files map[string]string) error {
	f.space = f.net.Namespace("controller")
	var ports []*testnet.Port
	for i, name := range names {
		h := &fleetHost{Sluice: product.Sluice{Binary: f.Binary, State: f.path(name)}, name: name, space: f.net.Namespace(name)}
		h.at = netip.MustParseAddr(fmt.Sprint(fleetNetwork, 11+i))
		_, h.port = f.net.Join(
			testnet.End{In: h.space, Device: "eth0", Addresses: []string{h.at.String() + "/24"}},
			testnet.End{In: f.space, Device: fmt.Sprint("port", i+1)})
		h.space.Route("default4", fleetNetwork+"1")
		h.space.ServeTCP("0.0.0.0:22", "0.0.0.0:80", "0.0.0.0:5432", "0.0.0.0:9999")
		f.hosts, ports = append(f.hosts, h), append(ports, h.port)
	}
	f.space.Bridge("fleet", []string{fleetNetwork + "1/24"}, ports...)
	if _, err := f.command("init", "--fleet", "example.net", "--repository", f.path("repository"), "--keys", f.path("keys"), "--dir", f.path("controller"), "--no-passphrase"); err != nil {
		return err
	}
	for name, text := range files {
		if err := f.write(name, text); err != nil {
			return err
		}
	}
	f.web = fmt.Sprint("https://localhost:", f.space.PassOn(webAt).Port())
	f.space.Start(f.controller(), f.inController("run", "--listen", controllerAt, "--web", webAt, "--web-url", f.web)...)
	for _, h := range f.hosts {
		role, _, _ := strings.Cut(h.name, "-")
		token, err := f.until("the controller answers", func(out string) bool { return strings.Contains(out, "sluice1.") },
			f.inRepository("token", "create", "--labels", "env=prod,role="+role, "--for", "1h")...)
		if err != nil {
			return err
		}
		if err := os.WriteFile(f.path("token"), []byte(token[strings.Index(token, "sluice1."):]), 0o600); err != nil {
			return err
		}
		f.space.Start(f.Binary, "agent", "--netns", h.space.Name(), "--state-dir", h.State, "--socket", h.socket())
		if _, err := h.Must(context.Background(), h.space, "agent", "enrol", "https://"+controllerAt, "--token-file", f.path("token"), "--name", h.name); err != nil {
			return err
		}
	}
	return nil
}

// write writes a file of the repository.
func (f *fleet) write(name, text string) error {
	return os.WriteFile(f.path("repository", filepath.FromSlash(name)), []byte(text), 0o600)
}

// first has the hosts take the first policy.
func (f *fleet) first() error {
	if err := f.publish(); err != nil {
		return err
	}
	out, err := f.all(1)
	if err != nil {
		return err
	}
	f.quote("sluice-controller hosts", out)
	f.head()
	f.check("tcp/80 at web-5", silent, f.try(4, 80))
	return nil
}

// publish signs the repository, and begins the roll-out.
func (f *fleet) publish() error {
	if _, err := f.command(f.inRepository("sign", "--key", f.path("keys", "policy.pem"))...); err != nil {
		return err
	}
	_, err := f.command(f.inController(f.inRepository("publish")...)...)
	return err
}

// try says what happens to a new connection from the controller to a host.
func (f *fleet) try(host int, port uint16) string {
	return f.space.TryTCP(testnet.TCPTry{To: netip.AddrPortFrom(f.hosts[host].at, port), Patience: patience}).Outcome.String()
}

func (f *fleet) part(text string) error {
	return errors.Join(f.write("parts/50-web.yaml", text), f.publish())
}

// change has one host take a change first, and then the others.
func (f *fleet) change() error {
	if err := f.part("version: 1\nhosts: role=web\ninput: {rules: [allow http]}\n"); err != nil {
		return err
	}
	f.say("parts/50-web.yaml: hosts: role=web, allow http; signed, published")
	out, err := f.until("the canary settles", func(out string) bool { return strings.Contains(out, "settles until") }, "rollout", "show")
	if err != nil {
		return err
	}
	f.quote("sluice-controller rollout show", out)
	if out, err = f.until("the roll-out is done", func(out string) bool { return strings.Contains(out, "bundle 2: done") }, "rollout", "show"); err != nil {
		return err
	}
	f.quote("sluice-controller rollout show", out)
	if _, err = f.all(2); err != nil {
		return err
	}
	f.head()
	for i := range f.hosts {
		f.check(fmt.Sprintf("tcp/80 at web-%d", i+1), answered, f.try(i, 80))
	}
	return nil
}

// mistake publishes what closes the way to the controller.
func (f *fleet) mistake() error {
	f.title("One that closes its own management: the canary takes it back alone")
	if err := f.part("version: 1\nhosts: role=web\noutput: {default: reject, rules: [allow dns]}\n"); err != nil {
		return err
	}
	out, err := f.until("the roll-out has gone back", func(out string) bool { return strings.Contains(out, "bundle 3: reverted") }, "rollout", "show")
	if err != nil {
		return err
	}
	f.quote("sluice-controller rollout show", out)
	told := "more than one host"
	if strings.Contains(out, "1 of 1 canary failed") {
		told = "one host"
	}
	if _, err = f.all(2); err != nil {
		return err
	}
	f.head()
	f.check("who was told of it", "one host", told)
	for i := range f.hosts {
		f.check(fmt.Sprintf("tcp/80 at web-%d, by the policy from before", i+1), answered, f.try(i, 80))
	}
	return nil
}

// drift changes a host by hand.
func (f *fleet) drift() error {
	f.title("Somebody changes the rules of web-3 by hand")
	h := f.hosts[2]
	f.head()
	f.check("tcp/9999 at web-3", silent, f.try(2, 9999))
	if _, err := h.space.Run("nft", "insert", "rule", "inet", "sluice", "input", "tcp", "dport", "9999", "accept"); err != nil {
		return err
	}
	f.check("the same, after nft insert rule ... accept", answered, f.try(2, 9999))
	var told string // its row, and what stands beneath
	_, err := f.until("drift is told in packets", func(out string) bool {
		_, told, _ = strings.Cut(out, "web-3  drift")
		told, _, _ = strings.Cut(told, "\nweb-4")
		return strings.Contains(told, ":9999")
	}, "hosts")
	if err != nil {
		return err
	}
	f.quote("sluice-controller hosts", f.shown("web-3  drift"+told))
	if _, err := h.Must(context.Background(), h.space, "restore"); err != nil {
		return err
	}
	if _, err = f.all(2); err != nil {
		return err
	}
	f.head()
	f.check("tcp/9999 at web-3, after sluice restore there", silent, f.try(2, 9999))
	return nil
}
