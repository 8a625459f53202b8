package check_test

import (
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/prove/check"
	"sluice/internal/system/host"
)

// Every code has an example in the manual that has it, and the fixed one has it
// no more, nor any error; the severities that the manual names are right.
func TestManualExamples(t *testing.T) {
	for _, e := range check.Explanations() {
		t.Run(string(e.Code), func(t *testing.T) {
			manual := manualHost()
			manual.Firewalls = flushing
			before, r := lintText(t, e.Before, manual)
			if !slices.Contains(codes(before), e.Code) {
				t.Errorf("not found before the fix, only %v in\n%s", before.Findings, e.Before)
			}
			for _, f := range before.Findings {
				explained, _ := check.Explain(string(f.Code))
				if explained == nil || !slices.Contains(explained.Severities, f.Severity) {
					t.Errorf("%s: the manual does not know that it is a %s", f.Code, f.Severity)
				}
			}
			checked := check.Run(r, manual)
			byCheck := slices.ContainsFunc(checked, func(f check.Finding) bool { return f.Code == e.Code })
			if byCheck == e.Advice {
				t.Errorf("found by check: %v, advice: %v", byCheck, e.Advice)
			}
			after, _ := lintText(t, e.After, manual)
			for _, f := range after.Findings {
				if f.Code == e.Code || f.Severity == check.Error {
					t.Errorf("after the fix:\n%v", f)
				}
			}
		})
	}
}

// The examples are clean on a host that they fit, except for what each one shows on
// purpose.
func TestExamplesLint(t *testing.T) {
	prefix := netip.MustParsePrefix
	for name, want := range map[string][]check.Code{
		"containers": nil, "gateway": nil, "load-balancer": nil, "only-europe": nil, "virtual-machines": nil,
		"web-server": nil,
	} {
		t.Run(name, func(t *testing.T) {
			p, err := policy.Load(filepath.Join("../../../examples", name, "policy.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			f := manualHost()
			f.Interfaces, f.Local, f.SSHClients, f.Published, f.Servers = nil, nil, nil, nil, f.Servers[:0]
			f.Resolvers, f.Gateways = []netip.Addr{netip.MustParseAddr("198.18.0.53")}, []netip.Addr{netip.MustParseAddr("198.51.100.2")}
			router := p.Forward != nil
			f.Forwarding4, f.Forwarding6 = router, router
			for i, device := range []struct{ name, four, six string }{
				{"eth0", "198.51.100.1/24", "2001:db8:100::1/64"},
				{"lan0", "10.20.0.1/24", "2001:db8:20::fe/64"},
				{"dmz0", "10.20.1.1/28", "2001:db8:20:1::fe/64"},
				{"docker0", "172.17.0.1/16", "2001:db8:17::fe/64"},
				{"vm-1", "10.30.0.1/32", "2001:db8:30::1/128"},
			} {
				four, six := prefix(device.four), prefix(device.six)
				f.Interfaces = append(f.Interfaces, host.Interface{Name: device.name, Index: i + 2, Kind: "device", Up: true, MTU: 1500, Addresses: []netip.Prefix{four, six}})
				f.Local = append(f.Local, netip.PrefixFrom(four.Addr(), 32), netip.PrefixFrom(six.Addr(), 128))
			}
			r, err := resolve.Resolve(p, resolve.Options{
				Facts: f, Geo: func() (*geo.Database, error) { return geo.Open(t.TempDir()) },
				User: func(string) (uint32, error) { return 0, nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			report := check.Lint(r, f, check.Options{Open: func(name string) (io.ReadCloser, error) { return os.Open(name) }})
			got := codes(report)
			slices.Sort(got)
			if !slices.Equal(slices.Compact(got), want) {
				t.Errorf("%v", report.Findings)
			}
		})
	}
}
