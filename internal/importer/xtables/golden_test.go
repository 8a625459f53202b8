package xtables_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"sluice/internal/base/testgolden"
	"sluice/internal/importer"
	"sluice/internal/importer/ipset"
	"sluice/internal/importer/xtables"
)

// Each file of testdata is what iptables-save or ip6tables-save printed, the program that
// it is, and what of it no program says.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			saved, rest := archive.Files[0], archive.Files[:1]
			var sets map[string]*ipset.Set
			if len(archive.Files) > 1 && archive.Files[1].Name == "ipset-save" {
				rest = archive.Files[:2]
				if sets, err = ipset.Parse(string(archive.Files[1].Data)); err != nil {
					t.Fatal(err)
				}
			}
			family := 4
			if saved.Name == "ip6tables-save" {
				family = 6
			}
			r, err := xtables.Parse(string(saved.Data), "iptables-legacy", family, sets)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Program.Check(); err != nil {
				t.Error(err)
			}
			got := append(slices.Clone(rest), txtar.File{Name: "program", Data: []byte(r.Program.Text())}, txtar.File{Name: "unlifted", Data: []byte(unlifted(r))})
			archive.Files = got
			testgolden.File(t, file, txtar.Format(archive))
		})
	}
}

func unlifted(r *importer.Ruleset) string {
	var b strings.Builder
	for _, u := range r.Unlifted {
		fmt.Fprintf(&b, "%s:%d %s: %s\n", u.Chain, u.Rule, u.Text, u.Why)
	}
	return b.String()
}

// TestBeside: what a program does not say of a rule is beside it.
func TestBeside(t *testing.T) {
	r, err := xtables.Parse(`# a comment
*nat
:PREROUTING ACCEPT [1:2]
:POSTROUTING ACCEPT [3:4]
COMMIT
*filter
:INPUT DROP [12:345]
:OUTPUT ACCEPT
:mine - [0:0]
[7:420] -A INPUT -p tcp -m tcp --dport 22 -j mine
-A INPUT -m mac --mac-source 02:00:00:00:00:01 -j ACCEPT -c 8 99
[1:60] -A mine -s 192.0.2.1/32 -m multiport -p tcp --ports 1,2 -j ACCEPT
COMMIT
`, "iptables-nft", 4, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]*importer.Rule{
		"filter/INPUT:1": {Table: "filter", Chain: "INPUT", Number: 1, Line: 10, Text: "-A INPUT -p tcp -m tcp --dport 22 -j mine", Count: &importer.Count{Packets: 7, Bytes: 420}, Whole: true},
		"filter/INPUT:2": {Table: "filter", Chain: "INPUT", Number: 2, Line: 11, Text: "-A INPUT -m mac --mac-source 02:00:00:00:00:01 -j ACCEPT -c 8 99", Count: &importer.Count{Packets: 8, Bytes: 99}},
		"filter/mine:1":  {Table: "filter", Chain: "mine", Number: 1, Line: 12, Text: "-A mine -s 192.0.2.1/32 -m multiport -p tcp --ports 1,2 -j ACCEPT", Count: &importer.Count{Packets: 1, Bytes: 60}, Whole: true},
	}
	if diff := cmp.Diff(want, r.Rules); diff != "" {
		t.Error(diff)
	}
	bases := []importer.Base{
		{Table: "nat", Chain: "PREROUTING", Hook: "prerouting", Priority: -100, Count: &importer.Count{Packets: 1, Bytes: 2}},
		{Table: "filter", Chain: "INPUT", Hook: "input", Count: &importer.Count{Packets: 12, Bytes: 345}},
		{Table: "filter", Chain: "OUTPUT", Hook: "output"},
		{Table: "nat", Chain: "POSTROUTING", Hook: "postrouting", Priority: 100, Count: &importer.Count{Packets: 3, Bytes: 4}},
	}
	if diff := cmp.Diff(bases, r.Bases); diff != "" {
		t.Error(diff)
	}
	for i, h := range r.Program.Hooks {
		if want := bases[i].Table + "/" + bases[i].Chain; h.Chain != want {
			t.Errorf("hook %d is of %s, its base of %s", i, h.Chain, want)
		}
	}
	if diff := cmp.Diff(map[string]uint64{"filter/INPUT:1": 7, "filter/INPUT:2": 8, "filter/mine:1": 1}, r.Profile()); diff != "" {
		t.Error(diff)
	}
	for _, c := range r.Program.Chains {
		numbers := []int{}
		for _, rule := range c.Rules {
			if r.Rules[rule.ID] == nil {
				t.Errorf("a rule of %s has the ID %q, which is not a rule's", c.Name, rule.ID)
			}
			numbers = append(numbers, rule.Origin.Line)
		}
		if !slices.IsSorted(numbers) {
			t.Errorf("the rules of %s are in the order %v", c.Name, numbers)
		}
	}
}
