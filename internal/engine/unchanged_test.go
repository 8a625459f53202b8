package engine

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/engine/apply"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/system/host"
)

// sumCase is what a sum is made of.
type sumCase struct {
	dir     string
	text    string
	request Request
	facts   host.Facts
	can     backend.Capabilities
	in      resolve.Inputs
	costs   Costs
}

func (c sumCase) sum(t *testing.T) string {
	t.Helper()
	c.request.File = filepath.Join(c.dir, "policy.yaml") + c.request.File
	if err := os.WriteFile(c.request.File, []byte(c.text), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := policy.Load(c.request.File)
	if err != nil {
		t.Fatal(err)
	}
	p := preparation{
		Request: c.request, Policy: loaded, Facts: c.facts, Can: c.can, Costs: c.costs, Backend: nftables.New(),
		host: &Host{Host: &apply.Host{}},
	}
	return p.sum(c.in)
}

// costsOf are the costs of a backend on a host where these were measured; nil: where none
// were.
func costsOf(model *nftables.CostModel) Costs {
	_, out := Calibrated(nftables.New(nftables.Calibration(func(string) (*nftables.CostModel, backend.Figures) {
		return model, backend.Figures{}
	})), "", nil)
	return out
}

// TestSum: everything that a policy is made of shows in the sum, and nothing
// else does.
func TestSum(t *testing.T) {
	base := sumCase{
		dir: t.TempDir(), text: "version: 1\ninput:\n  default: drop\n",
		facts: host.Facts{Known: true, Interfaces: []host.Interface{{Name: "eth0", Index: 2}}},
		can:   backend.Capabilities{backend.FIB: backend.Yes},
		in:    resolve.Inputs{"file x": "1"},
		costs: costsOf(nil),
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
	c.costs.Ignored, c.costs.Elsewhere = "another kernel", true
	check("why figures are default ones", c, true)
	model := nftables.DefaultCosts()
	c.costs = costsOf(&model)
	check("what was measured equals the built-in figures", c, true)
	model.Lookup.Interval.Of4096++
	c.costs = costsOf(&model)
	check("another figure", c, false)
	for what, in := range map[string]resolve.Inputs{
		"another text": {"file x": "2"}, "another file": {"file y": "1"}, "one more": {"file x": "1", "user y": "7"}, "none": {},
	} {
		c = base
		c.in = in
		check("input: "+what, c, false)
	}
	// What a request asks for beside the text is in the profile, or is not summed up.
	for i := range reflect.TypeFor[Request]().NumField() {
		c = base
		field := reflect.TypeFor[Request]().Field(i).Name
		if field == "Files" { // what they hold is in the sum
			continue
		}
		another(t, reflect.ValueOf(&c.request).Elem().Field(i))
		check("request "+field, c, field == "Order" || field == "Hits" || field == "Detach" || field == "NoMeaning" || field == "Texts" || field == "Offline" || strings.HasPrefix(field, "Draft"))
		if got := c.sum(t); (field == "Without" || field == "NoExpect") && got != "" {
			t.Errorf("%s is asked for: %q", field, got)
		}
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
	check("the interface was made again", c, false)
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
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
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
	before, err := thisProgram("1")
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
	if after, err := thisProgram("1"); err != nil || after == before {
		t.Errorf("%s before and after, %v", after, err)
	}
}
