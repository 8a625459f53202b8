package peers

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sluice/internal/lab/testnet"
)

// firewalld has zones of interfaces, ipsets, and rich rules in their order.
func firewalld() Peer {
	return Peer{
		Name: "firewalld", Group: "firewalld", Private: true, About: "firewalld with ipsets and rich rules, over nftables",
		needs: []testnet.Feature{
			testnet.Program("firewalld"), testnet.Program("firewall-cmd"), testnet.Program("dbus-daemon"),
			testnet.Program("nft"), testnet.Nftables,
		},
		load: func(ctx context.Context, n *testnet.Namespace, m Meaning, _ Runner) error {
			f, err := StartFirewalld(ctx, n, FirewalldFiles(m))
			if err != nil {
				return err
			}
			return f.Stop() // the rules stay
		},
		cannot: firewalldCannot, without: firewalldWithout,
		text: func(m Meaning) string {
			files := FirewalldFiles(m)
			var out strings.Builder
			for _, name := range slices.Sorted(maps.Keys(files)) {
				fmt.Fprintf(&out, "# %s\n%s", name, files[name])
			}
			return out.String()
		},
	}
}

// Firewalld is a firewalld of its own, on a bus of its own, in a namespace.
type Firewalld struct{ *daemons }

// StartFirewalld starts it with a configuration (what is in /etc/firewalld, by
// path) and waits until it has loaded it. The caller stops it.
func StartFirewalld(ctx context.Context, n *testnet.Namespace, files map[string]string) (*Firewalld, error) {
	d, err := newDaemons(n)
	if err != nil {
		return nil, err
	}
	f := &Firewalld{d}
	if err := f.start(ctx, files); err != nil {
		return nil, fmt.Errorf("start firewalld: %w", f.failed(err))
	}
	return f, nil
}

func (f *Firewalld) start(ctx context.Context, files map[string]string) error {
	p := f.private
	bus := filepath.Join(p.dir, "bus")
	all := map[string]string{"bus.conf": `<!DOCTYPE busconfig>
<busconfig>
  <type>system</type>
  <listen>unix:path=` + bus + `</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
`}
	for path, text := range files {
		all["etc/"+path] = text
	}
	for _, dir := range []string{"zones", "ipsets", "policies", "services", "icmptypes", "helpers"} {
		if err := os.MkdirAll(filepath.Join(p.dir, "etc", dir), 0o755); err != nil {
			return err
		}
	}
	for path, text := range all {
		if err := p.file(path, text); err != nil {
			return err
		}
	}
	p.binds["/etc/firewalld"] = "etc"
	p.env = []string{"DBUS_SYSTEM_BUS_ADDRESS=unix:path=" + bus}
	if err := f.daemon("dbus-daemon", "--nofork", "--nopidfile", "--nosyslog", "--config-file="+filepath.Join(p.dir, "bus.conf")); err != nil {
		return err
	}
	if err := f.until(ctx, func() bool { _, err := os.Stat(bus); return err == nil }); err != nil {
		return fmt.Errorf("wait for the bus: %w", err)
	}
	if err := f.daemon("firewalld", "--nofork", "--nopid", "--log-target=console"); err != nil {
		return err
	}
	err := f.until(ctx, func() bool { _, err := f.Run(ctx, "--state"); return err == nil })
	if err != nil {
		return fmt.Errorf("wait until firewalld has loaded its rules: %w", err)
	}
	// It goes on without what it does not understand.
	said, err := os.ReadFile(filepath.Join(p.dir, "said"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(said)) {
		if strings.Contains(line, "ERROR:") {
			return fmt.Errorf("it says %s", strings.TrimSpace(line))
		}
	}
	return nil
}

// Run runs firewall-cmd and returns what it says.
func (f *Firewalld) Run(ctx context.Context, args ...string) (string, error) {
	return f.private.run(ctx, "firewall-cmd", args...)
}

// Env is what firewall-cmd has to have in its environment to ask this firewalld.
func (f *Firewalld) Env() []string { return f.private.env }

// File writes a file of the configuration, which the next reload reads.
func (f *Firewalld) File(path, text string) error {
	return f.private.file(filepath.Join("etc", path), text)
}
