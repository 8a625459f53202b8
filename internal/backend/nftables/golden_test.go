package nftables

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/backend"
	"sluice/internal/base/testgolden"
	"sluice/internal/program"
)

// TestGolden holds the text of programs made by hand to the byte.
func TestGolden(t *testing.T) {
	one, other := twoPolicies(t)
	for name, a := range map[string]*artifact{"constructs": mustLower(t, together(t)), "one": one, "other": other, "accelerated": accelerated(t, backend.Yes)} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", "golden", name+".nft")
			testgolden.File(t, file, []byte(a.Text()))
		})
	}
}

// accelerated is a forwarding program with a flowtable.
func accelerated(t *testing.T, flowtable backend.Answer) *artifact {
	t.Helper()
	can := backend.Capabilities{}
	for f, answer := range everything {
		can[f] = answer
	}
	can[backend.Flowtable] = flowtable
	banned := []program.Rule{{Match: conditions{{Field: program.Source, Addresses: addressRanges("198.51.100.0/24")}}, Actions: actions{program.Drop}}}
	a, err := New().Lower(&program.Program{
		Owner: "sluice",
		Hooks: []program.Hook{
			{Kind: program.Prerouting, Phase: program.Raw, Default: program.Accept, Chain: "prerouting_raw"},
			{Kind: program.Forward, Phase: program.Filter, Default: program.Drop, Chain: "forward"},
		},
		Chains: []program.Chain{{Name: "prerouting_raw", Rules: banned}, {Name: "forward", Comment: "what forward decides", Rules: []program.Rule{
			{Match: conditions{protocolIs(6, 17), namesOf(program.State, "established")}, Actions: actions{program.Offload{Flowtable: "fast"}}},
			{Match: conditions{namesOf(program.State, "established", "related")}, Actions: actions{program.Accept}},
		}}},
		Flowtables: []program.Flowtable{{Name: "fast", Devices: []string{"wan0", "lan0"}}},
	}, can)
	if err != nil {
		t.Fatal(err)
	}
	return a.(*artifact)
}

// TestWithoutFlowtable: where the kernel has none, or cannot be asked, the
// artifact has none, and says so.
func TestWithoutFlowtable(t *testing.T) {
	for _, answer := range []backend.Answer{backend.No, backend.CannotTell, ""} {
		a := accelerated(t, answer)
		if strings.Contains(strings.Split(a.Text(), "table inet")[1], "flow") {
			t.Errorf("%s: there is a flowtable:\n%s", answer, a.Text())
		}
		if len(a.Notes()) != 1 || !strings.Contains(a.Notes()[0].Text, "flowtables") {
			t.Errorf("%s: notes %v", answer, a.Notes())
		}
	}
}

// TestRefusals: what the kernel lacks for certain is refused by rule; what
// cannot be told is tried.
func TestRefusals(t *testing.T) {
	cases := map[backend.Feature]construct{
		backend.ConnectionCount: {actions: actions{program.ConnectionLimit{Name: "c", Max: 2}, program.Accept}},
		backend.FIB:             {match: conditions{namesOf(program.SourceType, "local")}},
		backend.MSSClamp:        {kind: program.Forward, actions: actions{program.ClampMSS{}}},
		backend.TCPReset:        {actions: actions{program.Reject}},
		backend.NATPrefix:       {kind: program.Prerouting, phase: program.NAT, actions: actions{program.DNATPrefix{From: prefix("192.0.2.0/28"), To: prefix("10.20.1.0/28")}}},
		backend.InetNAT:         {kind: program.Postrouting, phase: program.NAT, actions: actions{program.Masquerade{}}},
		backend.InetIngress:     {kind: program.Ingress, phase: program.Early},
	}
	for feature, c := range cases {
		for _, answer := range []backend.Answer{backend.No, backend.Yes, backend.CannotTell} {
			_, err := New().Lower(c.program(), backend.Capabilities{feature: answer})
			var refused *backend.RefusedError
			if answer != backend.No {
				if err != nil {
					t.Errorf("%s, %s: %v", feature, answer, err)
				}
				continue
			}
			if !errors.As(err, &refused) || len(refused.Refusals) != 1 || !strings.Contains(refused.Refusals[0].Why, string(feature)) {
				t.Errorf("%s is lacking, and the answer is %v", feature, err)
			}
		}
	}
}

// TestMistakes: a program that says what nft cannot is refused with the place,
// and never half made.
func TestMistakes(t *testing.T) {
	for want, c := range map[string]construct{
		"a port without a protocol":           {match: conditions{numbersOf(program.Port, exactly(80))}},
		"not the name of an interface":        {match: conditions{namesOf(program.InInterface, "a\"b")}},
		"two conditions on the protocol":      {match: conditions{protocolIs(6), protocolIs(17)}},
		"no set nowhere":                      {match: conditions{setOn(program.Source, "nowhere")}},
		"is not a set that the kernel fills":  {actions: actions{program.SetAdd{Set: "office"}, program.Drop}},
		"a return after a gate":               {actions: actions{program.Limit{Name: "l", Rate: perSecond(1, 1), Per: program.PerSource, Table: "limits"}, program.Return}},
		"an opaque condition cannot be":       {match: conditions{{Field: program.Opaque, Text: "x", Not: true}}},
		"not the same length":                 {kind: program.Prerouting, actions: actions{program.MapDestination{From: prefix("192.0.2.0/28"), To: prefix("10.20.1.0/29")}}},
		"is too slow":                         {actions: actions{program.Limit{Name: "l", Rate: program.Rate{Packets: 1, Per: 30 * 86_400_000, Burst: 1}}, program.Accept}},
		"unknown name":                        {match: conditions{namesOf(program.State, "fresh")}},
		"a redirect to a port without":        {kind: program.Prerouting, phase: program.NAT, actions: actions{program.Redirect{Port: 80}}},
		"nft cannot match the IPv6 extension": {match: conditions{numbersOf(program.Extension, exactly(50))}},
	} {
		_, err := New().Lower(c.program(), everything)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "policy.yaml:7:5") {
			t.Errorf("want %q at policy.yaml:7:5, got %v", want, err)
		}
	}
}

// TestRates: rates are exact where a unit has them.
func TestRates(t *testing.T) {
	for _, c := range []struct {
		in    program.Rate
		want  string
		exact bool
	}{
		{program.Rate{Packets: 20, Per: 1000, Burst: 20}, "20/second burst 20 packets", true},
		{program.Rate{Packets: 6, Per: 30_000, Burst: 6}, "12/minute burst 6 packets", true},
		{program.Rate{Packets: 10, Per: 60_000}, "10/minute burst 10 packets", true},
		{program.Rate{Packets: 1, Per: 7_200_000, Burst: 3}, "12/day burst 3 packets", true},
		{program.Rate{Packets: 1, Per: 86_400_000, Burst: 1}, "1/day burst 1 packets", true},
		{program.Rate{Packets: 7, Per: 33_000, Burst: 7}, "128291/week burst 7 packets", false},
		{program.Rate{Packets: 1, Per: 5 * 86_400_000, Burst: 1}, "1/week burst 1 packets", false},
		{program.Rate{Packets: 1, Per: 30 * 86_400_000, Burst: 1}, "0/week burst 1 packets", false},
		{program.Rate{Packets: 1000, Per: 1, Burst: 1}, "1000000/second burst 1 packets", true},
	} {
		got, exact := unitRate(c.in)
		if got.text() != c.want || exact != c.exact {
			t.Errorf("%+v: %s (exact: %v), want %s (exact: %v)", c.in, got.text(), exact, c.want, c.exact)
		}
	}
}

// TestPasses: every pass says what it promises and why it is there, and
// needs only what comes before.
func TestPasses(t *testing.T) {
	var seen []string
	for _, p := range passes {
		if p.name == "" || p.promises == "" || p.reason == "" {
			t.Errorf("pass %q says too little", p.name)
		}
		for _, n := range p.needs {
			if !slices.Contains(seen, n) {
				t.Errorf("pass %s needs %s, which is not before it", p.name, n)
			}
		}
		seen = append(seen, p.name)
	}
}

// TestSameBytes: the same program gives the same bytes, and leaves itself as it
// was.
func TestSameBytes(t *testing.T) {
	p := together(t)
	first := mustLower(t, p).Text()
	for range 5 {
		if again := mustLower(t, p).Text(); again != first {
			t.Fatalf("another text (-first +again):\n%s", cmp.Diff(first, again))
		}
	}
	if fresh := mustLower(t, together(t)).Text(); fresh != first {
		t.Errorf("lowering changed the program (-first +fresh):\n%s", cmp.Diff(first, fresh))
	}
}
