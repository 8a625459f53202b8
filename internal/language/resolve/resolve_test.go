package resolve

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/base/testseed"
	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
	"sluice/internal/system/host"
)

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, file string) *policy.Policy {
	t.Helper()
	p, err := policy.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func builtin(t *testing.T) func() (*geo.Database, error) {
	return func() (*geo.Database, error) { return geo.Open(t.TempDir()) }
}

func TestSets(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "lists/banned.txt", "\ufeff# remark\n192.0.2.1\r\n\n 192.0.2.2-192.0.2.9 ; why\n2001:db8::/64\n")
	file := write(t, dir, "policy.yaml", `version: 1
sets:
  office: [203.0.113.0/24, 203.0.114.0/24]
  banned: { file: lists/banned.txt, except: [spared] }
  spared: [192.0.2.4]
  all: { union: [office, banned] }
  monaco: { countries: [MC] }
  counted: { file: lists/banned.txt, counters: true }
`)
	r, err := Resolve(load(t, file), Options{Geo: builtin(t)})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"office": "203.0.113.0-203.0.114.255",
		"banned": "192.0.2.1-192.0.2.3, 192.0.2.5-192.0.2.9, 2001:db8::/64",
		"all":    "192.0.2.1-192.0.2.3, 192.0.2.5-192.0.2.9, 203.0.113.0-203.0.114.255, 2001:db8::/64",
	} {
		if got := rangesText(r.Sets[name].Addresses.Ranges()); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if got := rangesText(r.Sets["counted"].Elements); got != "192.0.2.1, 192.0.2.2-192.0.2.9, 2001:db8::/64" {
		t.Errorf("counted elements are %s", got)
	}
	if monaco := r.Sets["monaco"].Addresses; !monaco.Has4() || monaco.Contains(netip.MustParseAddr("8.8.8.8")) {
		t.Errorf("monaco has %d addresses", monaco.Count4())
	}
}

func rangesText(ranges []addrset.Range) string {
	texts := make([]string, len(ranges))
	for i, r := range ranges {
		texts[i] = r.String()
	}
	return strings.Join(texts, ", ")
}

// Every mistake is told, each at the line of the file that has it.
func TestErrors(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "bad.txt", "192.0.2.1\nnonsense\n  192.0.2.9-192.0.2.1\n")
	file := write(t, dir, "policy.yaml", `version: 1
zones:
  wan: { interfaces: [default-route] }
sets:
  bad: { file: bad.txt }
  gone: { file: gone.txt }
  list: { url: "https://lists.example.net/x.txt" }
output:
  default: allow
  rules:
    - allow smtp by user nobody-of-that-name
`)
	_, err := Resolve(load(t, file), Options{Geo: builtin(t), Facts: host.Facts{Known: true}})
	var errs policy.Errors
	if !errors.As(err, &errs) {
		t.Fatalf("got %v", err)
	}
	text := err.Error()
	for _, want := range []string{
		"policy.yaml:3:", "no default route",
		"bad.txt:2:1:", "bad.txt:3:3:",
		"policy.yaml:6:", "gone.txt",
		"policy.yaml:7:", "no copy of",
		"policy.yaml:11:", "nobody-of-that-name",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
}

func TestZones(t *testing.T) {
	file := write(t, t.TempDir(), "policy.yaml", `version: 1
zones:
  wan: { interfaces: [default-route, "ppp*"] }
  vms: { networks: [10.20.0.0/16] }
`)
	facts := host.Facts{Known: true, DefaultRoute: []string{"eth0"}, Interfaces: []host.Interface{
		{Name: "eth0", Addresses: []netip.Prefix{netip.MustParsePrefix("198.51.100.1/24"), netip.MustParsePrefix("fe80::1/64")}},
		{Name: "ppp7", Addresses: []netip.Prefix{netip.MustParsePrefix("198.51.100.77/32")}},
		{Name: "br0", Addresses: []netip.Prefix{netip.MustParsePrefix("10.20.0.1/16")}},
	}}
	r, err := Resolve(load(t, file), Options{Facts: facts})
	if err != nil {
		t.Fatal(err)
	}
	wan := r.Zones["wan"]
	if got := strings.Join(wan.Interfaces, " "); got != RouteInterfaces+" ppp*" {
		t.Errorf("interfaces of wan: %s", got)
	}
	if got := strings.Join(wan.Patterns(), " "); got != "eth0 ppp*" {
		t.Errorf("interfaces of wan by the facts: %s", got)
	}
	if !wan.HasInterface("eth0") || wan.Names("eth0") || !wan.Names("ppp7") || wan.HasInterface("br0") {
		t.Error("what is of wan is mistaken")
	}
	if got := rangesText(wan.Own.Ranges()); got != "198.51.100.1, 198.51.100.77" {
		t.Errorf("own addresses of wan: %s", got)
	}
	if wan.HasNetworks || !r.Zones["vms"].HasNetworks {
		t.Error("networks of the zones are mistaken")
	}
}

// A list of a million lines is read as a stream: while it is, no more than a
// buffer of it is held.
func TestLongSetFile(t *testing.T) {
	const lines = 1_000_000
	reader, writer := io.Pipe()
	go func() {
		for i := range lines {
			fmt.Fprintf(writer, "10.%d.%d.%d/32\n", i>>16, i>>8&255, i&255)
		}
		writer.Close()
	}()
	n := 0
	if err := ReadSetFile("list", reader, func(addrset.Range) { n++ }); err != nil {
		t.Fatal(err)
	}
	if n != lines {
		t.Errorf("read %d of %d lines", n, lines)
	}
}

func TestHostileSetFiles(t *testing.T) {
	for name, text := range map[string]string{
		"a line of 10 MB":  strings.Repeat("1", 10<<20),
		"every line wrong": strings.Repeat("x\n", 1000),
		"zero bytes":       "192.0.2.1\x00\n",
	} {
		err := ReadSetFile("list", strings.NewReader(text), func(addrset.Range) {})
		var errs policy.Errors
		if !errors.As(err, &errs) || len(errs) > maxSetFileErrors+1 {
			t.Errorf("%s: %d errors: %.200v", name, len(errs), err)
		}
	}
}

// Elements that are counted apart are disjoint and cover what the set covers.
func TestDisjoint(t *testing.T) {
	random := testseed.Rand(t)
	address := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}) }
	for range 2000 {
		var written []addrset.Range
		for range 1 + random.IntN(8) {
			from := random.IntN(256)
			written = append(written, addrset.Range{From: address(from), To: address(min(255, from+random.IntN(40)))})
		}
		except := addrset.Of(addrset.Range{From: address(100), To: address(100 + random.IntN(60))})
		keep := addrset.Of(written...).Difference(except)
		got := disjoint(written, keep)
		for i := 1; i < len(got); i++ {
			if got[i].From.Compare(got[i-1].To) <= 0 {
				t.Fatalf("%s overlaps %s", got[i], got[i-1])
			}
		}
		if !addrset.Of(got...).Equal(keep) {
			t.Fatalf("elements %s do not make %s", rangesText(got), keep)
		}
	}
}

func FuzzReadSetFile(f *testing.F) {
	f.Add("192.0.2.1\n2001:db8::/32 # remark\n192.0.2.1-192.0.2.9\n")
	f.Add("\ufeff;x\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		lines := strings.Count(text, "\n") + 1
		err := ReadSetFile("list", strings.NewReader(text), func(r addrset.Range) {
			if !r.IsValid() {
				t.Errorf("gave the range %v", r)
			}
		})
		var errs policy.Errors
		if err != nil && !errors.As(err, &errs) {
			t.Fatalf("error without a place: %v", err)
		}
		for _, e := range errs {
			if e.Pos.Line < 1 || e.Pos.Line > lines || e.Pos.Column < 1 {
				t.Errorf("error outside the file: %v", e)
			}
		}
	})
}

// TestLiving: a file of single addresses is edited in place, as long as it is
// small; what has ranges, and what is in the policy, is not.
func TestLiving(t *testing.T) {
	dir := t.TempDir()
	lines := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "10.0.%d.%d\n", i>>8, i&255)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"one.txt": "192.0.2.1\n", "two.txt": "192.0.2.1\n192.0.2.2\n2001:db8::1\n", "range.txt": "192.0.2.1\n192.0.2.2-192.0.2.3\n192.0.2.9\n",
		"prefix.txt": "192.0.2.0/24\n", "none.txt": "# nothing\n", "most.txt": lines(editedInPlace), "more.txt": lines(editedInPlace + 1),
	} {
		write(t, dir, name, text)
	}
	file := write(t, dir, "policy.yaml", `version: 1
sets:
  one: { file: one.txt }
  two: { file: two.txt }
  range: { file: range.txt }
  prefix: { file: prefix.txt }
  none: { file: none.txt }
  most: { file: most.txt }
  more: { file: more.txt }
  counted: { file: range.txt, counters: true }
  literal: [192.0.2.1]
  union: { union: [one, two] }
`)
	r, err := Resolve(load(t, file), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"one": true, "two": true, "range": false, "prefix": false, "none": false, "most": true, "more": false,
		"counted": true, "literal": false, "union": false,
	} {
		if r.Sets[name].Living != want {
			t.Errorf("%s is living: %v", name, !want)
		}
	}
}

func TestOrigin(t *testing.T) {
	dir := t.TempDir()
	list := write(t, dir, "lists/banned.txt", "\ufeff# remark\n192.0.2.1\n\n 192.0.2.2-192.0.2.9 ; why\n192.0.2.4\n")
	file := write(t, dir, "policy.yaml", `version: 1
zones:
  lan: { interfaces: [lan0], networks: [10.20.0.0/24] }
sets:
  office: [203.0.113.0/24, 203.0.114.0/24]
  banned: { file: lists/banned.txt, except: [spared] }
  spared: [192.0.2.4]
  all: { union: [office, banned], except: [office] }
  monaco: { countries: [MC], continents: [AF] }
  away: { union: [office], except: [monaco] }
`)
	r, err := Resolve(load(t, file), Options{Geo: builtin(t)})
	if err != nil {
		t.Fatal(err)
	}
	monaco := r.Sets["monaco"].Addresses
	data, err := builtin(t)()
	if err != nil {
		t.Fatal(err)
	}
	only, err := data.Countries("MC")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := only.Bounds()
	far, _, _ := monaco.Difference(only).Bounds()
	for _, c := range []struct{ set, address, want string }{
		{"office", "203.0.114.9", "office policy.yaml:5:28 203.0.114.0/24"},
		{"office", "203.0.115.9", ""},
		{"lan", "10.20.0.9", "lan policy.yaml:3:41 10.20.0.0/24"},
		{"banned", "192.0.2.1", "banned banned.txt:2:1 192.0.2.1"},
		{"banned", "192.0.2.3", "banned banned.txt:4:2 192.0.2.2-192.0.2.9"},
		{"banned", "192.0.2.4", "banned banned.txt:4:2 192.0.2.2-192.0.2.9, banned banned.txt:5:1 192.0.2.4, not banned>spared policy.yaml:7:12 192.0.2.4"},
		{"all", "203.0.113.1", "all>office policy.yaml:5:12 203.0.113.0/24, not all>office policy.yaml:5:12 203.0.113.0/24"},
		{"all", "192.0.2.4", "all>banned banned.txt:4:2 192.0.2.2-192.0.2.9, all>banned banned.txt:5:1 192.0.2.4, not all>banned>spared policy.yaml:7:12 192.0.2.4"},
		{"monaco", first.String(), "monaco policy.yaml:9:25 MC"},
		{"monaco", far.String(), "monaco policy.yaml:9:43 AF"},
		{"away", first.String(), "not away>monaco policy.yaml:9:25 MC"},
	} {
		entries, err := r.Origin(c.set, netip.MustParseAddr(c.address))
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, e := range entries {
			text := strings.Join(e.Sets, ">") + " " + fmt.Sprintf("%s:%d:%d", filepath.Base(e.Pos.File), e.Pos.Line, e.Pos.Column) + " "
			switch {
			case e.Country == "MC":
				text += "MC"
			case e.Country != "":
				text += e.Continent
			default:
				text += e.Element.String()
			}
			if e.Out {
				text = "not " + text
			}
			if e.Country != "" && (!strings.Contains(e.Data, "of 20") || !e.Element.IsValid()) {
				t.Errorf("%s in %s comes of data %q, range %s", c.address, c.set, e.Data, e.Element)
			}
			all = append(all, text)
		}
		if got := strings.Join(all, ", "); got != c.want {
			t.Errorf("%s in %s: %s, want %s", c.address, c.set, got, c.want)
		}
	}
	for _, c := range []struct{ set, address, want string }{
		{"monaco", first.String(), "MC"}, {"away", first.String(), "MC"}, {"away", "192.0.2.1", ""}, {"office", first.String(), ""}, {"nothing", first.String(), ""},
	} {
		country, data, ok, err := r.Country(c.set, netip.MustParseAddr(c.address))
		if err != nil || country.Code != c.want || ok != (c.want != "") || ok && !strings.Contains(data, "of 20") {
			t.Errorf("%s of %s is of %q by %q, %t, %v, want %q", c.address, c.set, country.Code, data, ok, err, c.want)
		}
	}
	if _, err := r.Origin("nothing", netip.MustParseAddr("192.0.2.1")); err == nil {
		t.Error("a set that is not there is no error")
	}
	if err := os.Remove(list); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Origin("banned", netip.MustParseAddr("192.0.2.1")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is gone: %v", err)
	}
}
