package diagnose_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"sluice/internal/doctor"
	"sluice/internal/lab/diagnose"
	"sluice/internal/lab/testnet"
)

// banned is a chain of nftables that drops so many addresses, one by one.
func banned(n int) string {
	var b strings.Builder
	b.WriteString("table inet t {\n\tchain c {\n\t\ttype filter hook input priority 0\n")
	for i := range n {
		fmt.Fprintf(&b, "\t\tip saddr 203.0.113.%d drop\n", i)
	}
	return b.String() + "\t}\n}\n"
}

// TestCorpus: each tool's rulesets are loaded and diagnosed by the real program, what does
// not load is named with what its tool says, and other files are left alone.
func TestCorpus(t *testing.T) {
	testnet.Require(t, testnet.Namespaces, testnet.Nftables, testnet.IPTablesLegacy("filter"), testnet.Program("ipset"))
	binary := filepath.Join(t.TempDir(), "sluice")
	if text, err := exec.Command("go", "build", "-o", binary, "sluice/cmd/sluice").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, text)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"a.nft":        banned(100),
		"below/b.save": "*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n-A INPUT -p tcp --dport 23 -j LOG\n-A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT\nCOMMIT\n",
		"c.v6":         "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n-A INPUT -s 2001:db8:7::/48 -j LOG\nCOMMIT\n",
		"d.ipset":      "create office hash:net family inet\nadd office 203.0.113.0/24\n",
		"e.nft":        "table inet t {\n\tchain c { nonsense; }\n}\n",
		"README.md":    "The rulesets of this folder.\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	of := func(binary string) *diagnose.Result {
		r, err := diagnose.Corpus(t.Context(), diagnose.Options{Binary: binary, Dir: dir, Window: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := of(binary)
	got := map[string]string{}
	for _, f := range r.Files {
		var of []string
		for _, found := range f.Findings {
			switch found.Check { // others are of the machine
			case "linear-rules", "log-unlimited", "ipv6-open", "replies-cut":
				of = append(of, found.Check)
			}
		}
		got[f.Name] = fmt.Sprintf("%s %t %v%s%s", f.Tool, f.NotLoaded == "", of, f.Failed, f.Unread)
		if (f.NotLoaded == "") != (f.Seconds > 0) {
			t.Errorf("%+v", f)
		}
	}
	want := map[string]string{
		"a.nft":        "nft true [linear-rules][]",
		"below/b.save": "iptables-legacy-restore true [ipv6-open log-unlimited][]",
		"c.v6":         "ip6tables-legacy-restore true [log-unlimited][]",
		"d.ipset":      "ipset true [][]",
		"e.nft":        "nft false [][]",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	fires := map[string]diagnose.Fires{}
	for _, f := range r.Fires {
		fires[f.Check] = f
	}
	if got, want := fires["log-unlimited"], (diagnose.Fires{Check: "log-unlimited", Files: 2, Findings: 2}); got != want {
		t.Errorf("%+v", got)
	}
	// A doctor that ends without a report is told of.
	for _, f := range of("false").Files {
		if f.NotLoaded == "" && !strings.HasPrefix(f.Failed, "exit status 1") {
			t.Errorf("%+v", f)
		}
	}
}

// TestPick: the same seed draws the same findings, none of them twice.
func TestPick(t *testing.T) {
	r := &diagnose.Result{}
	for i := range 10 {
		r.Files = append(r.Files, diagnose.File{Name: fmt.Sprint(i), Findings: []doctor.Finding{{Check: "x"}, {Check: "y"}}})
	}
	a, b, other := r.Pick(8, 1), r.Pick(8, 1), r.Pick(8, 2)
	if !reflect.DeepEqual(a, b) || reflect.DeepEqual(a, other) {
		t.Errorf("%v\n%v\n%v", a, b, other)
	}
	seen := map[string]bool{}
	for _, p := range r.Pick(30, 1) {
		seen[p.File+p.Finding.Check] = true
	}
	if len(seen) != 20 {
		t.Errorf("%d findings of 20", len(seen))
	}
}
