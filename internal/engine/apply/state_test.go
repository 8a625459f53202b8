package apply

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

func testStore(t *testing.T) store {
	t.Helper()
	s := store{dir: filepath.Join(t.TempDir(), "state")}
	if err := s.make(); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStateIsPrivate(t *testing.T) {
	s := testStore(t)
	if err := s.saveCurrent(&current{Format: format, Next: 1}); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(s.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %o", path, info.Mode().Perm())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestBadState(t *testing.T) {
	tests := []struct {
		name, text string
		newer      bool
	}{
		{"newer", `{"format": 2}`, true},
		{"no format", `{}`, false},
		{"empty", ``, false},
		{"cut off", `{"format": 1, "next"`, false},
		{"other type", `{"format": 1, "next": "two", "what": 7, "number": "x"}`, false},
		{"format is text", `{"format": "1"}`, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := testStore(t)
			for _, file := range []string{currentFile, journalFile, generationName(1)} {
				if err := os.WriteFile(filepath.Join(s.dir, file), []byte(test.text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var c current
			currentErr := s.readJSON(currentFile, &c)
			_, journalErr := s.journal()
			_, generationErr := s.generation(1)
			for _, err := range []error{currentErr, journalErr, generationErr} {
				var newer *NewerError
				var damaged *DamagedError
				if isNewer := errors.As(err, &newer); isNewer != test.newer || !isNewer && !errors.As(err, &damaged) {
					t.Errorf("got %v", err)
				}
			}
		})
	}
}

func TestBlobs(t *testing.T) {
	s := testStore(t)
	data := []byte(strings.Repeat("203.0.113.0-203.0.113.255 ", 10000))
	first, err := s.putBlob(data)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.dir, blobsDir, first+blobSuffix)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > int64(len(data))/10 {
		t.Errorf("%d bytes take %d", len(data), info.Size())
	}
	if got, err := s.blob(first); err != nil || !bytes.Equal(got, data) {
		t.Errorf("read back: %v", err)
	}
	// Damage is seen, and fixed by the next one who has the data.
	other, err := s.putBlob([]byte("other"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(s.dir, blobsDir, other+blobSuffix))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var damaged *DamagedError
	if _, err := s.blob(first); !errors.As(err, &damaged) {
		t.Errorf("another blob's contents: %v", err)
	}
	if again, err := s.putBlob(data); err != nil || again != first {
		t.Errorf("put again: %s, %v", again, err)
	}
	if _, err := s.blob(first); err != nil {
		t.Error(err)
	}
}

func TestProgramSurvivesTheDisk(t *testing.T) {
	address := netip.MustParseAddr("2001:db8::1")
	prefix := netip.MustParsePrefix("10.0.0.0/24")
	rate := program.Rate{Packets: 6, Per: 30000, Burst: 6}
	p := policyOf("a")
	p.Chains = append(p.Chains, program.Chain{Name: "all", Rules: []program.Rule{{
		ID: "r", Match: []program.Condition{{Field: program.Source, Not: true, Addresses: []addrset.Range{{From: address, To: address}}}},
		Actions: []program.Action{
			program.Jump{Chain: "x"},
			program.Goto{Chain: "x"},
			program.NoTrack{},
			program.Count{Counter: "c"},
			program.Log{Prefix: "p", Rate: rate},
			program.Limit{Name: "l", Rate: rate, Per: program.PerSource, Table: "t", Ban: "b", BanTimeout: 5},
			program.ConnectionLimit{Name: "n", Max: 20},
			program.SetAdd{Set: "s", Timeout: 7},
			program.SetMark{Value: 1, Mask: 3},
			program.DNAT{To: address, Port: 80},
			program.DNATPrefix{From: prefix, To: prefix},
			program.SNAT{To: address},
			program.SNATPrefix{From: prefix, To: prefix},
			program.Masquerade{},
			program.Redirect{Port: 8080},
			program.MapSource{From: prefix, To: prefix},
			program.MapDestination{From: prefix, To: prefix},
			program.ClampMSS{},
			program.Offload{Flowtable: "f"},
			program.Accept,
		},
	}}})
	data, err := encodeProgram(p)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeProgram(data)
	if err != nil {
		t.Fatal(err)
	}
	equalAddr := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	equalPrefix := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	if d := cmp.Diff(p, got, equalAddr, equalPrefix, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("changed on disk:\n%s", d)
	}
	if _, err := decodeProgram(data[:len(data)/2]); err == nil {
		t.Error("half a program was read")
	}
}

func TestWithoutDevices(t *testing.T) {
	p := &program.Program{
		Hooks: []program.Hook{
			{Kind: program.Ingress, Phase: program.Early, Devices: []string{"eth0", "vm0"}, Chain: "early"},
			{Kind: program.Ingress, Phase: program.Early, Devices: []string{"vm1"}, Chain: "gone"},
			{Kind: program.Forward, Phase: program.Filter, Chain: "forward"},
		},
		Flowtables: []program.Flowtable{{Name: "one", Devices: []string{"eth0", "vm0"}}, {Name: "two", Devices: []string{"vm1", "vm0"}}},
		Chains: []program.Chain{
			{Name: "early"},
			{Name: "gone", Rules: []program.Rule{{Actions: []program.Action{program.Jump{Chain: "helper"}}}}},
			{Name: "helper"},
			{Name: "forward", Rules: []program.Rule{
				{Comment: "one", Actions: []program.Action{program.Offload{Flowtable: "one"}}},
				{Comment: "two", Actions: []program.Action{program.Offload{Flowtable: "two"}}},
				{Comment: "counted", Actions: []program.Action{program.Count{Counter: "c"}, program.Offload{Flowtable: "two"}}},
			}},
		},
	}
	missing := withoutDevices(p, func(name string) bool { return name == "eth0" })
	if !slices.Equal(missing, []string{"vm0", "vm1"}) {
		t.Errorf("missing: %v", missing)
	}
	if len(p.Hooks) != 2 || !slices.Equal(p.Hooks[0].Devices, []string{"eth0"}) {
		t.Errorf("hooks: %+v", p.Hooks)
	}
	if len(p.Flowtables) != 1 || !slices.Equal(p.Flowtables[0].Devices, []string{"eth0"}) {
		t.Errorf("flowtables: %+v", p.Flowtables)
	}
	var chains, rules []string
	for _, c := range p.Chains {
		chains = append(chains, c.Name)
		for _, r := range c.Rules {
			rules = append(rules, r.Comment)
		}
	}
	if !slices.Equal(chains, []string{"early", "forward"}) || !slices.Equal(rules, []string{"one", "counted"}) {
		t.Errorf("chains %v, rules %v", chains, rules)
	}
	if again := withoutDevices(p, func(name string) bool { return name == "eth0" }); len(again) != 0 {
		t.Errorf("again: %v", again)
	}
}

func TestMark(t *testing.T) {
	mark := newMark(7)
	if !strings.HasPrefix(mark, "generation_7_") || mark == newMark(7) {
		t.Errorf("mark %s", mark)
	}
}

type plainArtifact struct{ need uint64 }

func (plainArtifact) Backend() string         { return "plain" }
func (plainArtifact) Text() string            { return "" }
func (plainArtifact) Encode() ([]byte, error) { return nil, nil }

// What tables may grow to is no reason to refuse.
func (a plainArtifact) Cost() backend.Cost  { return backend.Cost{Memory: a.need, Growth: 1 << 40} }
func (plainArtifact) Notes() []program.Note { return nil }

func TestMemoryBudget(t *testing.T) {
	s := &session{Host: &Host{}}
	tests := []struct {
		need, free uint64
		force, ok  bool
	}{
		{49, 100, false, true}, {50, 100, false, true}, {51, 100, false, false}, {51, 100, true, true}, {51, 0, false, true},
	}
	for _, test := range tests {
		err := s.admit(Input{Program: policyOf("a"), Artifact: plainArtifact{test.need}, Memory: test.free}, &Options{Force: test.force})
		var memory *MemoryError
		if (err == nil) != test.ok || err != nil && !errors.As(err, &memory) {
			t.Errorf("%d of %d, force %v: %v", test.need, test.free, test.force, err)
		}
	}
}

func TestDir(t *testing.T) {
	if dir, err := Dir("/s", ""); err != nil || dir != "/s" {
		t.Errorf("the host's own: %s, %v", dir, err)
	}
	if dir, err := Dir("/s", "vm-1.a"); err != nil || dir != "/s/netns/vm-1.a" {
		t.Errorf("a namespace: %s, %v", dir, err)
	}
	for _, bad := range []string{"..", "a/b", "../x", ".hidden", "a b", "-x", "a\nb", strings.Repeat("x", 300)} {
		if _, err := Dir("/s", bad); err == nil {
			t.Errorf("%q is taken for a name", bad)
		}
	}
}

func TestPendingOutlivesTheJournal(t *testing.T) {
	s := testStore(t)
	p := &Pending{Token: "t1", Generation: 2}
	if err := s.saveJournal(&journal{Format: format, Pending: p}); err != nil {
		t.Fatal(err)
	}
	find := func(token string) *Pending {
		t.Helper()
		got, err := s.pendingOf(token)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if find("t1") == nil || find("t2") != nil {
		t.Error("a change under way")
	}
	if err := s.saveCurrent(&current{Format: format, Next: 3, Pending: p}); err != nil {
		t.Fatal(err)
	}
	if err := s.endJournal(); err != nil {
		t.Fatal(err)
	}
	if find("t1") == nil {
		t.Error("the state has it, and it was not found")
	}
	if err := s.saveCurrent(&current{Format: format, Next: 3}); err != nil {
		t.Fatal(err)
	}
	if find("t1") != nil {
		t.Error("it is over, and it was found")
	}
}

func FuzzReadState(f *testing.F) {
	whole, err := json.Marshal(current{Format: format, Next: 3, Running: 2, Pending: &Pending{Token: "t"}})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range [][]byte{whole, []byte(`{"format":1}`), []byte(`{"format":9}`), []byte(`[]`), nil} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := testStore(t)
		for _, file := range []string{currentFile, journalFile, generationName(1)} {
			if err := os.WriteFile(filepath.Join(s.dir, file), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = s.current()
		_, _ = s.journal()
		_, _ = s.generation(1)
		_, _ = s.pendingOf("t")
	})
}

func TestCounters(t *testing.T) {
	p := policyOf("a")
	origin := program.Origin{File: "a.yaml", Line: 7, Text: "allow ssh limit 6/30s per source"}
	p.Chains[0].Rules = append(p.Chains[0].Rules, program.Rule{Origin: origin, Actions: []program.Action{
		program.Limit{FullCounter: "full"}, program.ConnectionLimit{FullCounter: "free"}, program.Count{Counter: "second"},
	}})
	p.Counters = []program.Counter{
		{Name: "second", Origin: origin},
		{Name: "first", Origin: program.Origin{File: "a.yaml", Line: 3}},
		{Name: "full"},
		{Name: "free"},
		{Name: "missing"},
	}
	rules, full := counters(p, map[string]backend.Count{"first": {Packets: 1}, "second": {Packets: 2, Bytes: 80}, "full": {Packets: 5}, "free": {}})
	if len(rules) != 2 || rules[0].Name != "first" || rules[1].Name != "second" || rules[1].Bytes != 80 {
		t.Errorf("rules: %+v", rules)
	}
	if len(full) != 1 || full[0].Name != "full" || full[0].Origin.Line != 7 {
		t.Errorf("full: %+v", full)
	}
}
