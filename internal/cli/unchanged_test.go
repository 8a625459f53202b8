package cli

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/backend/nftables/calibration"
	"sluice/internal/engine/apply"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/system/host"
)

// sumCase is what a sum is made of.
type sumCase struct {
	dir   string
	text  string
	args  []string
	facts host.Facts
	can   backend.Capabilities
	in    resolve.Inputs
	costs costs
}

func (c sumCase) sum(t *testing.T) string {
	t.Helper()
	file := filepath.Join(c.dir, "policy.yaml")
	if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := policy.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	root := Root()
	cmd, args, err := root.Find(append([]string{"apply", file}, c.args...))
	if err != nil {
		t.Fatal(err)
	}
	if cmd.Flags().Lookup("untold") == nil {
		cmd.Flags().Bool("untold", false, "a flag that nobody has said anything of")
	}
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return newSummed(cmd, file, loaded, c).sum(c.in)
}

func newSummed(cmd *cobra.Command, file string, loaded *policy.Policy, c sumCase) *preparation {
	return &preparation{
		cmd: cmd, host: &apply.Host{Backend: nftables.New()}, file: file, can: c.can,
		line: pipeline{policy: loaded, facts: c.facts, costs: c.costs},
	}
}

// TestSum: everything that a policy is made of shows in the sum, and nothing
// else does.
func TestSum(t *testing.T) {
	base := sumCase{
		dir: t.TempDir(), text: "version: 1\ninput:\n  default: drop\n",
		facts: host.Facts{Known: true, Interfaces: []host.Interface{{Name: "eth0", Index: 2}}},
		can:   backend.Capabilities{backend.FIB: backend.Yes},
		in:    resolve.Inputs{"file x": "1"},
	}
	sum := base.sum(t)
	if again := base.sum(t); sum == "" || again != sum {
		t.Fatalf("%q and then %q", sum, again)
	}
	check := func(what string, c sumCase, same bool) {
		t.Helper()
		if got := c.sum(t); (got == sum) != same {
			t.Errorf("%s: the sum stays: %v", what, !same)
		}
	}
	c := base
	c.text = "version: 1\n#\ninput:\n  default: drop\n"
	check("a line more in the policy", c, false)
	c = base
	c.dir = t.TempDir()
	check("another file", c, false)
	c = base
	c.can = maps.Clone(base.can)
	c.can[backend.FIB] = backend.No
	check("another kernel", c, false)
	c = base
	c.costs.ignored, c.costs.elsewhere = "another kernel", true
	check("why figures are default ones", c, true)
	measured := calibration.Calibration{Measured: time.Now(), Costs: nftables.DefaultCosts()}
	c.costs = costs{measured: &measured}
	check("what was measured is what the figures that come with Sluice are", c, true)
	measured.Costs.Lookup.Interval.Of4096++
	check("another figure", c, false)
	for what, in := range map[string]resolve.Inputs{
		"another text": {"file x": "2"}, "another file": {"file y": "1"}, "one more": {"file x": "1", "user y": "7"}, "none": {},
	} {
		c = base
		c.in = in
		check("input: "+what, c, false)
	}
	c = base
	c.args = []string{"--confirm", "60s", "--force", "--wait", "3s", "--no-verify"}
	check("how it is applied", c, true)
	c.args = []string{"--untold"}
	if got := c.sum(t); got != "" {
		t.Errorf("a flag that is not known: %q", got)
	}

	apart := map[string]bool{"SSHClients": true, "OuterFlows": true, "ConntrackCount": true}
	kind := reflect.TypeFor[host.Facts]()
	for i := range kind.NumField() {
		c = base
		another(t, reflect.ValueOf(&c.facts).Elem().Field(i))
		check("fact "+kind.Field(i).Name, c, apart[kind.Field(i).Name])
	}
	c = base
	c.facts.Interfaces = []host.Interface{{Name: "eth0", Index: 3}}
	check("the interface was made anew", c, false)
	c.facts.Interfaces = []host.Interface{{Name: "eth0", Index: 2, Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}}}
	check("the interface has an address", c, false)
}

// another gives a value that is not the one that it has.
func another(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Int:
		v.SetInt(v.Int() + 1)
	case reflect.Uint16, reflect.Uint64:
		v.SetUint(v.Uint() + 1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Slice:
		v.Set(reflect.Append(reflect.MakeSlice(v.Type(), 0, 1), reflect.New(v.Type().Elem()).Elem()))
	default:
		t.Fatalf("no other %s is known", v.Type())
	}
}

// TestSumOfThisProgram: a build of the same version is another program.
func TestSumOfThisProgram(t *testing.T) {
	before, err := thisProgram()
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(exe, old, old); err != nil {
		t.Fatal(err)
	}
	if after, err := thisProgram(); err != nil || after == before {
		t.Errorf("%s before and after, %v", after, err)
	}
}
