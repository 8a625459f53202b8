package nftables_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"sluice/internal/importer/nftables"
)

// TestCorpus reads tables of real hosts, where SLUICE_TEST_CORPUS names the folder that has
// them in nft/*.nft and they load in a namespace.
func TestCorpus(t *testing.T) {
	folder := os.Getenv("SLUICE_TEST_CORPUS")
	if folder == "" {
		t.Skip("no corpus: SLUICE_TEST_CORPUS is not set")
	}
	files, err := filepath.Glob(filepath.Join(folder, "nft", "*.nft"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in %s: %v", folder, err)
	}
	const mark = "\n=text=\n"
	rules, whole, loaded := 0, 0, 0
	for _, name := range files {
		cmd := exec.Command("unshare", "-n", "sh", "-c", `nft -f "$0" && nft -n -j list ruleset && echo "=text=" && nft -t -a list ruleset`, name)
		printed, err := cmd.Output()
		if err != nil {
			continue
		}
		loaded++
		listing, text, _ := strings.Cut(string(printed), mark)
		rulesets, err := nftables.Parse([]byte(listing), []byte(text))
		if err != nil {
			t.Errorf("%s: %v", filepath.Base(name), err)
			continue
		}
		for _, r := range rulesets {
			if err := r.Program.Check(); err != nil {
				t.Errorf("%s: %v", filepath.Base(name), err)
			}
			for _, rule := range r.Rules {
				rules++
				if rule.Whole {
					whole++
				}
			}
			for _, u := range r.Unlifted {
				t.Logf("%s %s:%d %s: %s", filepath.Base(name), u.Chain, u.Rule, u.Text, u.Why)
			}
		}
	}
	t.Logf("%d of %d rules of %d files are lifted whole; %d files do not load here", whole, rules, loaded, len(files)-loaded)
}

// FuzzParse: whatever is listed, there are programs that are well formed, in which each
// rule that was not read whole is named, or one error.
func FuzzParse(f *testing.F) {
	archive, err := txtar.ParseFile("testdata/statements.txtar")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(archive.Files[0].Data, archive.Files[1].Data)
	for _, statements := range []string{
		`{"vmap":{"key":{"ct":{"key":"state"}},"data":{"set":[[1,{"drop":null}],["*",{"jump":{"target":"d"}}]]}}}`,
		`{"counter":{"packets":1,"bytes":2}},{"vmap":{"key":{"numgen":{"mode":"inc"}},"data":{"set":[[1,{"jump":{"target":"d"}}]]}}}`,
		`{"limit":{"rate":1,"per":"second","burst":5,"inv":true}},{"log":{"level":"info","group":7}},{"queue":{"num":3}},{"accept":null}`,
		`{"match":{"op":"==","left":{"concat":[{"payload":{"protocol":"ip","field":"saddr"}},{"meta":{"key":"mark"}}]},"right":{"set":[{"concat":["192.0.2.1",3]}]}}},{"dnat":{"addr":{"range":["192.0.2.1","192.0.2.9"]},"port":{"range":[1,2]}}}`,
		`{"xt":{"type":"match","name":"mac"}},{"set":{"op":"update","elem":{"payload":{"protocol":"ip","field":"saddr"}},"set":"@s","stmt":[{"limit":{"rate":1,"per":"second","burst":5}}]}},{"goto":{"target":"d"}}`,
	} {
		listing := `{"nftables":[{"table":{"family":"inet","name":"t"}},{"set":{"family":"inet","table":"t","name":"s","type":"ipv4_addr","elem":["192.0.2.1",{"prefix":{"addr":"10.0.0.0","len":8}}]}},` +
			`{"chain":{"family":"inet","table":"t","name":"d"}},{"chain":{"family":"inet","table":"t","name":"c","type":"filter","hook":"input","prio":10,"policy":"drop"}},` +
			`{"rule":{"family":"inet","table":"t","chain":"c","handle":4,"expr":[` + statements + `]}}]}`
		f.Add([]byte(listing), []byte("table inet t {\n\tchain c {\n\t\ttype filter hook input priority 10; policy drop;\n\t\ta b # handle 4\n\t}\n}\n"))
	}
	f.Fuzz(func(t *testing.T, listing, text []byte) {
		rulesets, err := nftables.Parse(listing, text)
		if err != nil {
			return
		}
		for _, r := range rulesets {
			unlifted := map[string]bool{}
			for _, u := range r.Unlifted {
				unlifted[fmt.Sprintf("%s:%d", u.Chain, u.Rule)] = true
			}
			if err := r.Program.Check(); err != nil {
				t.Fatal(err)
			}
			for id, rule := range r.Rules {
				if rule.Whole == unlifted[id] {
					t.Fatalf("%s is %+v, unlifted %v", id, rule, unlifted[id])
				}
			}
		}
	})
}

// BenchmarkParse reads 100,000 rules, in one chain and in 5,000.
func BenchmarkParse(b *testing.B) {
	for _, chains := range []int{1, 5000} {
		b.Run(fmt.Sprintf("%d chains", chains), func(b *testing.B) {
			var listing, text strings.Builder
			listing.WriteString(`{"nftables":[{"table":{"family":"inet","name":"t"}}`)
			text.WriteString("table inet t {\n")
			for c := range chains {
				fmt.Fprintf(&listing, `,{"chain":{"family":"inet","table":"t","name":"c%d"`, c)
				if c == 0 {
					listing.WriteString(`,"type":"filter","hook":"input","prio":0,"policy":"drop"`)
				}
				listing.WriteString("}}")
				fmt.Fprintf(&text, "\tchain c%d {\n", c)
				for i := range 100_000 / chains {
					handle := 1 + c*100_000/chains + i
					verdict := `{"accept":null}`
					if c == 0 {
						verdict = fmt.Sprintf(`{"jump":{"target":"c%d"}}`, 1+i%max(1, chains-1))
					}
					if chains == 1 {
						verdict = `{"drop":null}`
					}
					fmt.Fprintf(&listing, `,{"rule":{"family":"inet","table":"t","chain":"c%d","handle":%d,"expr":[{"match":{"op":"==","left":{"payload":{"protocol":"ip","field":"saddr"}},"right":"10.%d.%d.%d"}},{"counter":{"packets":1,"bytes":2}},%s]}}`, c, handle, i>>16&255, i>>8&255, i&255, verdict)
					fmt.Fprintf(&text, "\t\tip saddr 10.%d.%d.%d counter packets 1 bytes 2 # handle %d\n", i>>16&255, i>>8&255, i&255, handle)
				}
				text.WriteString("\t}\n")
			}
			listing.WriteString("]}")
			text.WriteString("}\n")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := nftables.Parse([]byte(listing.String()), []byte(text.String())); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
