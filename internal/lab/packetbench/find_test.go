package packetbench

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/base/testgolden"
	"sluice/internal/lab/measure"
	"sluice/internal/language/policy"
	"sluice/internal/system/host"
)

// factsWithout are those of a lab with the devices, made without a kernel.
func factsWithout(devices []measure.Device) host.Facts {
	f := host.Facts{Known: true, DefaultRoute: []string{devices[0].Name}, Forwarding4: true, Forwarding6: true, ConntrackMax: 1 << 18}
	for i, d := range devices {
		f.Interfaces = append(f.Interfaces, host.Interface{Name: d.Name, Index: i + 2, Addresses: d.Addresses, Up: true, Kind: "veth"})
	}
	return f
}

// findIn finds the cases of a policy file without a kernel.
func findIn(t *testing.T, file string, sources, flows int) (*finding, []measure.Device) {
	t.Helper()
	p, err := policy.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newState("", func(text string) { t.Log(text) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.remove)
	devices := devicesOf(p)
	r, err := s.resolve(t.Context(), p, factsWithout(devices))
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range ownOf(r) {
		devices[0].Addresses = append(devices[0].Addresses, netip.PrefixFrom(a, a.BitLen()))
	}
	if r, err = s.resolve(t.Context(), p, factsWithout(devices)); err != nil {
		t.Fatal(err)
	}
	f := &finding{finder: &finder{Resolved: r, devices: devices, sources: sources, seed: 1}, flows: flows}
	for _, family := range []addrset.Family{addrset.IPv4, addrset.IPv6} {
		f.find(family)
	}
	return f, devices
}

// What is found in the examples, and which hosts are made for them, is what a reader
// would choose.
func TestFindInExamples(t *testing.T) {
	files, err := filepath.Glob("../../../examples/*/policy.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range append(files, "testdata/all.yaml") {
		name := filepath.Base(filepath.Dir(file))
		if name == "testdata" {
			name = "all"
		}
		t.Run(name, func(t *testing.T) {
			f, devices := findIn(t, file, 1000, 100)
			var out strings.Builder
			for _, d := range devices {
				fmt.Fprintf(&out, "%s has %s, and behind it %s\n", d.Name, d.Addresses, d.Networks)
			}
			for _, c := range f.cases {
				fmt.Fprintf(&out, "%s: %s\n", c.name, c.text)
				if c.bare.Flows[0] != c.traffic.Flows[0] {
					fmt.Fprintf(&out, "    without rules to %s\n", c.bare.Flows[0].To)
				}
			}
			for _, l := range f.lacks {
				fmt.Fprintf(&out, "not %s: %s\n", l.name, l.why)
			}
			testgolden.File(t, filepath.Join("testdata", name+".golden"), []byte(out.String()))
		})
	}
}
