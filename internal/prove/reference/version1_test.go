package reference

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"sluice/internal/base/packet"
	"sluice/internal/base/testgolden"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/system/host"
)

// TestVersion1 holds the language to its promise: a policy of version 1 means tomorrow what it
// means today. Each file of testdata/version1 is a policy, an interface of the host's inside, and
// what was recorded of some packets. What is there is never recorded again for another meaning:
// that needs a version 2. A new word gets a line in words.txtar.
func TestVersion1(t *testing.T) {
	files, err := filepath.Glob("testdata/version1/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("nothing is recorded", err)
	}
	texts := ""
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			if err := txtar.Write(archive, dir); err != nil {
				t.Fatal(err)
			}
			var inside, recorded *txtar.File
			for i := range archive.Files {
				switch f := &archive.Files[i]; f.Name {
				case "inside":
					inside = f
				case "recorded":
					recorded = f
				default:
					texts += string(f.Data)
				}
			}
			got := version1(t, filepath.Join(dir, "policy.yaml"), strings.Fields(string(inside.Data)))
			if testgolden.Update() {
				recorded.Data = []byte(got)
				testgolden.File(t, file, txtar.Format(archive))
			}
			before, now := strings.Split(string(recorded.Data), "\n"), strings.Split(got, "\n")
			for i := range max(len(before), len(now)) {
				if a, b := at(before, i), at(now, i); a != b {
					t.Errorf("the meaning of %s changed\nwas %s\nis  %s", file, a, b)
				}
			}
		})
	}
	reference, err := os.ReadFile("../../../docs/reference/language.md")
	if err != nil {
		t.Fatal(err)
	}
	words := regexp.MustCompile(`(?ms)^\| words \|.*?\n\n`).Find(reference)
	rows := regexp.MustCompile("(?m)^\\| `(\\w+)").FindAllSubmatch(words, -1)
	if len(rows) < 10 {
		t.Fatalf("the reference has %d words of rules", len(rows))
	}
	for _, row := range rows {
		if !regexp.MustCompile(`(?m)^ +- .*\b` + string(row[1]) + `\b`).MatchString(texts) {
			t.Errorf("nothing is recorded of the word %s", row[1])
		}
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(no such packet)"
}

// asked are the packets of each pair of addresses.
var asked = []struct {
	protocol uint8
	port     uint16 // a type of ICMP, for which 0 is an echo request
	state    packet.State
}{
	{packet.TCP, 22, packet.New},
	{packet.TCP, 25, packet.New},
	{packet.TCP, 80, packet.New},
	{packet.TCP, 443, packet.New},
	{packet.TCP, 5432, packet.New},
	{packet.TCP, 8080, packet.New},
	{packet.TCP, 8443, packet.New},
	{packet.TCP, 9000, packet.New},
	{packet.UDP, 53, packet.New},
	{packet.UDP, 443, packet.New},
	{packet.UDP, 5000, packet.New},
	{packet.ICMP, 0, packet.New},
	{112, 0, packet.New},
	{packet.TCP, 7, packet.Established},
	{packet.TCP, 7, packet.Invalid},
}

// version1 is a line for each packet that the policy is asked about.
func version1(t *testing.T, file string, inside []string) string {
	t.Helper()
	facts := host.Facts{Known: true, DefaultRoute: []string{"wan0"}, Local: town.Local}
	lan := host.Interface{Name: inside[0], Index: 9, Up: true}
	var in []string // a machine there, of each family
	for _, prefix := range inside[1:] {
		p := netip.MustParsePrefix(prefix)
		lan.Addresses = append(lan.Addresses, p)
		in = append(in, p.Addr().Next().Next().Next().Next().String())
	}
	for _, i := range town.Interfaces {
		if i.Name != "lan0" {
			facts.Interfaces = append(facts.Interfaces, i)
		}
	}
	facts.Interfaces = append(facts.Interfaces, lan)
	p, err := policy.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := resolve.Resolve(p, resolve.Options{Facts: facts, User: func(string) (uint32, error) { return 100, nil }})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	here := func(i int) string { return lan.Addresses[i].Addr().String() }
	for _, c := range []struct {
		way      packet.Way
		in, out  string
		from, to string
		owner    int64
	}{
		{packet.In, "wan0", "", "203.0.113.7", "198.51.100.1", -1},
		{packet.In, "wan0", "", "192.0.2.21", "198.51.100.1", -1},
		{packet.In, "wan0", "", "192.0.2.200", "198.51.100.9", -1},
		{packet.In, "wan0", "", "2001:db8:77::7", "2001:db8:100::1", -1},
		{packet.In, "wan0", "", "2001:db8:bad::7", "2001:db8:100::1", -1},
		{packet.In, lan.Name, "", in[0], here(0), -1},
		{packet.In, lan.Name, "", in[1], here(1), -1},
		{packet.In, lan.Name, "", "203.0.113.7", here(0), -1}, // forged
		{packet.Through, "wan0", lan.Name, "203.0.113.7", in[0], -1},
		{packet.Through, "wan0", lan.Name, "192.0.2.200", in[0], -1},
		{packet.Through, "wan0", lan.Name, "2001:db8:77::7", in[1], -1},
		{packet.Through, lan.Name, "wan0", in[0], "192.0.2.200", -1},
		{packet.Through, lan.Name, "wan0", in[1], "2001:db8:99::7", -1},
		{packet.Out, "", "wan0", "198.51.100.1", "192.0.2.200", 0},
		{packet.Out, "", "wan0", "198.51.100.1", "192.0.2.200", 100},
		{packet.Out, "", "wan0", "2001:db8:100::1", "2001:db8:99::7", 0},
		{packet.Out, "", lan.Name, here(0), in[0], 0},
	} {
		for _, a := range asked {
			p := packet.Packet{
				In: c.in, Out: c.out, Source: netip.MustParseAddr(c.from), Destination: netip.MustParseAddr(c.to), Owner: c.owner, HopLimit: 64,
				Protocol: a.protocol, State: a.state,
			}
			switch a.protocol {
			case packet.TCP, packet.UDP:
				p.SourcePort, p.Port = 40000, a.port
				if a.protocol == packet.TCP {
					p.Flags = packet.SYN
					if a.state != packet.New {
						p.Flags = packet.ACK
					}
				}
			case packet.ICMP:
				p.ICMPType = 8
				if p.Source.Is6() {
					p.Protocol, p.ICMPType = packet.ICMPv6, 128
				}
			}
			p.SourceLocal, p.DestinationLocal = packet.Is(Own(facts, p.Source)), packet.Is(Own(facts, p.Destination))
			path := Follow(r, p, c.way)
			fmt.Fprintf(&out, "%s to %s, %s > %s %d/%d", cmp.Or(c.in, "own"), cmp.Or(c.out, "own"), c.from, c.to, p.Protocol, p.Port)
			if c.owner >= 0 {
				fmt.Fprintf(&out, " of user %d", c.owner)
			}
			fmt.Fprintf(&out, ", %s: %s", a.state, path.Verdict)
			if was, is := netip.AddrPortFrom(p.Destination, p.Port), netip.AddrPortFrom(path.Packet.Destination, path.Packet.Port); was != is {
				fmt.Fprintf(&out, " to %s", is)
			}
			if path.Packet.SNAT {
				fmt.Fprint(&out, " from ", path.Packet.Source)
			}
			out.WriteString("\n")
		}
	}
	return out.String()
}
