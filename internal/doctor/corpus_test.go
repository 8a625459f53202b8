package doctor_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/base/testgolden"
	"sluice/internal/importer/loaded"
	"sluice/internal/lab/testnet"
)

// TestCorpus diagnoses a host with what each tool of Debian loads for a usual one, as
// scripts/usual-rulesets has saved it, and holds what is read and all that is found by
// rules to a golden list. A warning there is true: shorewall of IPv4 leaves IPv6 open.
func TestCorpus(t *testing.T) {
	const golden = "testdata/usual/findings.golden"
	files, err := filepath.Glob("testdata/usual/*")
	if err != nil {
		t.Fatal(err)
	}
	hosts := map[string]*broken{}
	for _, file := range files {
		name, kind, _ := strings.Cut(filepath.Base(file), ".")
		if file == golden {
			continue
		}
		b := hosts[name]
		if b == nil {
			b = newBroken(t)
			hosts[name] = b
			b.reachable()
			if name == "docker" {
				b.docker()
			}
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tool, rules, _ := strings.Cut(kind, "-")
		switch {
		case kind == "nft":
			b.host.Nft(string(text))
		case kind == "ipset": // before the rules that name its sets
			b.host.MustRun("ipset", "restore", "-file", file)
		default:
			b.tables("iptables-"+tool, map[string]int{"rules": 4, "rules6": 6}[rules], string(text))
		}
	}
	var got []string
	for name, b := range hosts {
		_, all := b.examine("", time.Millisecond)
		for _, u := range all.Unread {
			got = append(got, fmt.Sprintf("%s: not read: %s", name, u))
		}
		if err := b.host.Do(func() error {
			rulesets, errs := loaded.Read(t.Context())
			for _, r := range rulesets {
				whole := 0
				for _, rule := range r.Rules {
					if rule.Whole {
						whole++
					}
				}
				got = append(got, fmt.Sprintf("%s: %s %s %s: %d of %d rules are read whole", name, r.Tool, r.Family, r.Table, whole, len(r.Rules)))
			}
			return errors.Join(errs...)
		}); err != nil {
			t.Error(err)
		}
		n := 0
		for _, f := range all.Findings {
			if slices.Contains(ruleChecks, f.Check) {
				n++
				got = append(got, fmt.Sprintf("%s: %s: %s: %s", name, f.Severity, f.Check, f.Text))
			}
		}
		if n == 0 {
			got = append(got, name+": nothing")
		}
	}
	slices.Sort(got)
	text := strings.Join(got, "\n") + "\n"
	testgolden.File(t, golden, []byte(text))
}

// docker has the two bridges that Docker's rules name, with a container at each.
func (b *broken) docker() {
	b.t.Helper()
	b.host.Forward()
	for bridge, network := range map[string]string{"docker0": "172.17.0.", "br-backend": "198.51.100."} {
		box := b.net.Unnamed("box")
		port, _ := b.net.Join(testnet.End{In: b.host, Device: "veth-" + bridge}, testnet.End{In: box, Device: "eth0", Addresses: []string{network + "2/24"}})
		b.host.Bridge(bridge, []string{network + "1/24"}, port)
		box.Route("default4", network+"1")
		box.ServeTCP(network + "2:80")
	}
}
