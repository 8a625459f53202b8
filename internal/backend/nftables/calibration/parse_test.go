package calibration

import (
	"bytes"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"sluice/internal/backend/nftables"
	"sluice/internal/system/host"
)

// sample is a calibration as a host would store it.
func sample() *Calibration {
	return &Calibration{
		Schema: Schema, Measured: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Took: 61.5, Version: "1.0",
		Machine: host.Machine{Kernel: "6.12.1", Arch: "amd64", Processor: "a processor", Processors: 2, Memory: 1 << 30, Mitigations: "retpolines"},
		Costs:   nftables.DefaultCosts(), Spread: map[string]Bounds{"packet.route-ns": {90, 110}},
	}
}

func encoded(t testing.TB) string {
	t.Helper()
	data, err := sample().encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestSaveAndLoad(t *testing.T) {
	dir := t.TempDir() + "/state"
	if c, err := Load(dir); c != nil || err != nil {
		t.Fatalf("nothing is stored, and %+v, %v was read", c, err)
	}
	if was, err := Remove(dir); was || err != nil {
		t.Fatalf("nothing is stored, and removed: %v, %v", was, err)
	}
	want := sample()
	if err := want.Save(dir); err != nil {
		t.Fatal(err)
	}
	got, err := Load(dir)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, %v\nstored %+v", got, err, want)
	}
	if info, err := os.Stat(File(dir)); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the file is %v, %v", info, err)
	}
	if was, err := Remove(dir); !was || err != nil {
		t.Errorf("removed: %v, %v", was, err)
	}
}

func TestCopy(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()+"/state"
	if err := Copy(from, to); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(to); err == nil {
		t.Error("nothing is stored, and a directory was made for it")
	}
	for _, want := range []string{"damaged", encoded(t)} {
		if err := os.WriteFile(File(from), []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Copy(from, to); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(File(to)); err != nil || string(got) != want {
			t.Errorf("copied %q, %v, want %q", got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	whole := encoded(t)
	replaced := func(old, by string) string {
		if strings.Count(whole, old) != 1 {
			t.Fatalf("%q stands %d times in the sample", old, strings.Count(whole, old))
		}
		return strings.Replace(whole, old, by, 1)
	}
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "c.json:1:1: not a calibration: unexpected end of JSON input"},
		{"words", "hello\n", "c.json:1:1: not a calibration: invalid character"},
		{"half", whole[:len(whole)/2], "not a calibration: unexpected end of JSON input"},
		{"two", whole + whole, "not a calibration: invalid character '{' after top-level value"},
		{"a list", "[1, 2]", "not a calibration: json: cannot unmarshal array"},
		{"nothing", "null", "c.json:1:1: not a calibration: it is not an object"},
		{"no schema", replaced(`"schema": "sluice-calibration/1"`, `"schema": ""`), `c.json:2:13: its schema is "", this version reads sluice-calibration/1`},
		{"something else", replaced("sluice-calibration/1", "sluice-figures/1"), `its schema is "sluice-figures/1"`},
		{"a text for a number", replaced(`"route-ns": 100`, `"route-ns": "100"`), "not a calibration: json: cannot unmarshal string"},
		{"negative", replaced(`"route-ns": 100`, `"route-ns": -1`), `:19: packet.route-ns is -1 ns, but must be from 0.1 to 100000`},
		{"huge", replaced(`"route-ns": 100`, `"route-ns": 1e300`), "packet.route-ns is 1e+300 ns"},
		{"too huge", replaced(`"route-ns": 100`, `"route-ns": 1e999`), "not a calibration: "},
		{"missing", replaced("      \"route-ns\": 100,\n", ""), "costs: packet.route-ns is missing"},
		{"unknown", replaced(`"route-ns": 100`, `"route-ns": 100, "rout-ns": 1`), "costs: unknown constant packet.rout-ns"},
		{"twice", replaced(`"route-ns": 100`, `"route-ns": 100, "route-ns": 100`), "duplicate costs.packet.route-ns"},
		{"falls", replaced(`"of-65536-ns": 900`, `"of-65536-ns": 1`), "lookup.interval-set.of-65536-ns is 1 ns, less than lookup.interval-set.of-16384-ns (570 ns)"},
		{"long ago", replaced("2026-11-21", "1970-01-01"), "impossible time of measurement 1970-01-01"},
		{"no kernel", replaced("6.12.1", ""), "it does not say on which kernel it was measured"},
		{"bounds", replaced(`"low": 90`, `"low": 900`), "spread: packet.route-ns lies from 900 to 110"},
		{"too long", whole + strings.Repeat(" ", mostBytes), "c.json:1:1: more than 1048576 bytes: not a calibration"},
	} {
		got, err := Parse("c.json", []byte(c.text))
		var damaged *DamagedError
		if !errors.As(err, &damaged) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v\nwant %s", c.name, got, err, c.want)
		}
	}
}

// TestParseOtherVersion: the file of an upgrade or a downgrade is no damage.
func TestParseOtherVersion(t *testing.T) {
	for _, text := range []string{
		`{"schema": "sluice-calibration/2", "costs": {"packet": [1]}, "measured": 5}`,
		strings.Replace(encoded(t), "sluice-calibration/1", "sluice-calibration/0", 1),
	} {
		c, err := Parse("c.json", []byte(text))
		var other *OtherVersionError
		if c != nil || !errors.As(err, &other) {
			t.Errorf("%s: %+v, %v", text, c, err)
		}
	}
}

// TestSchema: constants that come, go or are called otherwise need a schema with
// another number, so that an upgrade takes no stored file for a damaged one.
func TestSchema(t *testing.T) {
	var names bytes.Buffer
	for _, c := range nftables.Constants() {
		names.WriteString(c.Name + "\n")
	}
	file := "testdata/" + strings.ReplaceAll(Schema, "/", "-") + ".txt"
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if names.String() != string(want) {
		t.Errorf("the constants are other ones than those of %s, in %s: give the schema another number\n%s", Schema, file, names.String())
	}
}

func TestUnfit(t *testing.T) {
	c := sample()
	now := c.Machine
	now.Memory, now.Load = 5, 9
	if why := c.Unfit(now); why != "" {
		t.Errorf("the same machine with other work: %s", why)
	}
	for what, change := range map[string]func(*host.Machine){
		"kernel 6.12.1 then, 6.12.2 now":                      func(m *host.Machine) { m.Kernel = "6.12.2" },
		"architecture amd64 then, arm64 now":                  func(m *host.Machine) { m.Arch = "arm64" },
		"processor a processor then, unknown now":             func(m *host.Machine) { m.Processor = "" },
		"number of processors 2 then, 1 now":                  func(m *host.Machine) { m.Processors = 1 },
		"mitigations retpolines then, IBRS now":               func(m *host.Machine) { m.Mitigations = "IBRS" },
		"clock source by the clock then, in instructions now": func(m *host.Machine) { m.Counted = true },
	} {
		now := c.Machine
		change(&now)
		if got := c.Unfit(now); got != what {
			t.Errorf("%q, want %q", got, what)
		}
	}
}

// FuzzParse: whatever lies there, it is read as it would be written, or refused with
// its place.
func FuzzParse(f *testing.F) {
	whole := encoded(f)
	f.Add([]byte(whole))
	f.Add([]byte(strings.Replace(whole, `"of-65536-ns": 900`, `"of-65536-ns": 1`, 1)))
	f.Add([]byte(`{"schema": "sluice-calibration/2"}`))
	f.Add([]byte(`{"warnings": [{"a": 1}, {"a": 1}], "schema": "sluice-calibration/1", "costs": {}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("c.json", data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "c.json:") {
				t.Fatalf("no place: %v", err)
			}
			return
		}
		if constant, err := c.Costs.Check(); err != nil {
			t.Fatalf("%s: %v", constant.Name, err)
		}
		again, err := c.encode()
		if err != nil {
			t.Fatal(err)
		}
		if d, err := Parse("c.json", again); err != nil || d.Costs != c.Costs || !d.Measured.Equal(c.Measured) {
			t.Fatalf("written again it is %+v, %v\nwas %+v", d, err, c)
		}
	})
}
