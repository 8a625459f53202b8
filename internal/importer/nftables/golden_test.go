package nftables_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"sluice/internal/base/testgolden"
	"sluice/internal/importer/nftables"
)

// Each file of testdata is what nft listed, as JSON and as text, the programs that it is,
// and what of it no program says.
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
			rulesets, err := nftables.Parse(archive.Files[0].Data, archive.Files[1].Data)
			if err != nil {
				t.Fatal(err)
			}
			var programs, unlifted strings.Builder
			for _, r := range rulesets {
				if err := r.Program.Check(); err != nil {
					t.Error(err)
				}
				fmt.Fprintf(&programs, "table %s %s, %d rules\n", r.Family, r.Table, len(r.Rules))
				for _, b := range r.Bases {
					fmt.Fprintf(&programs, "base %s at %s, priority %d\n", b.Chain, b.Hook, b.Priority)
				}
				programs.WriteString(r.Program.Text())
				for _, u := range r.Unlifted {
					fmt.Fprintf(&unlifted, "%s %s:%d %s: %s\n", r.Table, u.Chain, u.Rule, u.Text, u.Why)
				}
				for _, c := range r.Program.Chains {
					for _, rule := range c.Rules {
						if r.Rules[rule.ID] == nil {
							t.Errorf("a rule of %s has the ID %q, which is not a rule's", c.Name, rule.ID)
						} else if rule.Origin.Text != r.Rules[rule.ID].Text {
							t.Errorf("%s is %q, and its origin %q", rule.ID, r.Rules[rule.ID].Text, rule.Origin.Text)
						}
					}
				}
			}
			got := append(archive.Files[:2:2], txtar.File{Name: "programs", Data: []byte(programs.String())}, txtar.File{Name: "unlifted", Data: []byte(unlifted.String())})
			archive.Files = got
			testgolden.File(t, file, txtar.Format(archive))
		})
	}
}
