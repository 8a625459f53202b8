package ipset_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"sluice/internal/base/testgolden"
	"sluice/internal/importer"
	"sluice/internal/importer/ipset"
	"sluice/internal/program"
)

// TestGolden: sets of each type, as ipset 7.17 saves them, and what is in them.
func TestGolden(t *testing.T) {
	const file = "testdata/sets.txtar"
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sets, err := ipset.Parse(string(archive.Files[0].Data))
	if err != nil {
		t.Fatal(err)
	}
	got := []txtar.File{archive.Files[0], {Name: "sets", Data: []byte(text(sets))}}
	archive.Files = got
	testgolden.File(t, file, txtar.Format(archive))
}

func text(sets map[string]*ipset.Set) string {
	var order []*ipset.Set
	for name, s := range sets {
		if name != s.Name {
			return name + " is " + s.Name
		}
		order = append(order, s)
	}
	slices.SortFunc(order, func(a, b *ipset.Set) int { return a.Line - b.Line })
	var b strings.Builder
	for _, s := range order {
		fmt.Fprintf(&b, "%s, %s, line %d, parts %v, %d of %d entries", s.Name, s.Type, s.Line, s.Parts, s.Entries, s.Most)
		if s.Lengths > 0 {
			fmt.Fprintf(&b, " of %d lengths", s.Lengths)
		}
		if s.Expires {
			b.WriteString(", which expire")
		}
		if s.Unsaid != "" {
			b.WriteString(": " + s.Unsaid)
		}
		b.WriteString("\n")
		for r := range s.Addresses.Each() {
			fmt.Fprintf(&b, "  %s\n", r)
		}
		for _, e := range s.Elements {
			fmt.Fprintf(&b, "  %s\n", e)
		}
	}
	return b.String()
}

func TestErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"create a\n", `line 1, column 1: "create a" is neither a set nor an element: create NAME TYPE, or add NAME ELEMENT`},
		{"flush a b\n", `line 1, column 1: "flush" is not a command of ipset save: create or add`},
		{"create a hash\n", `line 1, column 10: "hash" is not a set type such as hash:ip`},
		{"create a hash:ip\n\n create a hash:ip\n", "line 3, column 9: set a is defined twice"},
		{"create a hash:ip netmask 33\n", `line 1, column 18: "33" is not a prefix length`},
		{"create a hash:ip netmask\n", `line 1, column 18: "" is not a prefix length`},
		{"add a 192.0.2.1\n", "line 1, column 5: no set a is defined before its element"},
		{"create a hash:ip\nadd a 192.0.2.1,tcp:80\n", `line 2, column 7: "192.0.2.1,tcp:80" has 2 parts, but an element of type hash:ip has 1`},
		{"create a hash:ip\nadd a 2001:db8::1\n", `line 2, column 7: "2001:db8::1" is not valid for the ip part of type hash:ip`},
		{"create a hash:ip,port\nadd a 192.0.2.1,tcp:99999\n", `line 2, column 7: "tcp:99999" is not valid for the port part of type hash:ip,port`},
		{"create a bitmap:port range 0-9\nadd a 5-3\n", `line 2, column 7: "5-3" is not valid for the port part of type bitmap:port`},
		{"create a hash:ip comment\nadd a 192.0.2.1 comment \"x\n", "line 2, column 25: a quote that does not end on its line"},
		{"create a list:set size 8\nadd a b\n", "line 2, column 7: there is no set b"},
		{"create a list:set size 8\ncreate b list:set size 8\nadd a b\n", "line 3, column 7: set b is itself a list"},
	} {
		_, err := ipset.Parse(c.text)
		var bad *importer.SyntaxError
		if !errors.As(err, &bad) || err.Error() != c.want {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
	}
}

// BenchmarkParse reads a set of 100,000 prefixes.
func BenchmarkParse(b *testing.B) {
	var text strings.Builder
	text.WriteString("create a hash:net family inet hashsize 1024 maxelem 100000 counters\n")
	for i := range 100_000 {
		fmt.Fprintf(&text, "add a 10.%d.%d.%d/%d packets 0 bytes 0\n", i>>13&255, i>>5&255, i&31<<3, 29+i%4)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ipset.Parse(text.String()); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzParse: whatever somebody prints, there are sets that a program may have, or one
// error with its line.
func FuzzParse(f *testing.F) {
	archive, err := txtar.ParseFile("testdata/sets.txtar")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(archive.Files[0].Data))
	f.Add("create a hash:net,port,net\nadd a 10.0.0.0/8,tcp:80-81,192.0.2.0/24 nomatch comment \"x\"\nadd a 10.0.0.0/9,udp:1,192.0.2.0\ncreate l list:set\nadd l a\n")
	f.Add("create a hash:ip,mark markmask 0x1\ncreate b hash:ip,mark family inet6\nadd b 2001:db8::1,0x7\n")
	f.Fuzz(func(t *testing.T, text string) {
		sets, err := ipset.Parse(text)
		var bad *importer.SyntaxError
		switch {
		case err != nil && (!errors.As(err, &bad) || bad.Line < 1 || bad.Column < 1 || bad.Line > strings.Count(text, "\n")+1):
			t.Fatalf("%v", err)
		case err != nil:
			return
		}
		for _, s := range sets {
			if s.Unsaid != "" {
				if !s.Addresses.IsEmpty() || len(s.Elements) > 0 {
					t.Fatalf("%s holds what nobody says: %s", s.Name, s.Unsaid)
				}
				continue
			}
			p := program.Program{Sets: []program.Set{{ID: "x", Elements: s.Elements}}}
			for _, part := range s.Parts {
				if part == "port" && len(s.Parts) > 1 {
					p.Sets[0].Key = append(p.Sets[0].Key, program.Protocol)
				}
				p.Sets[0].Key = append(p.Sets[0].Key, program.Port)
			}
			if err := p.Check(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
