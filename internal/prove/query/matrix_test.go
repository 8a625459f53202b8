package query

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"sluice/internal/base/testseed"
	"sluice/internal/language/policy"
	"sluice/internal/prove/reach"
	"sluice/internal/system/host"
)

// The matrix of the example says of each of its sources what its rules do.
func TestMatrix(t *testing.T) {
	text, err := os.ReadFile("../../../examples/gateway/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r := resolved(t, "policy.yaml", string(text))
	r.Facts.Interfaces = append(r.Facts.Interfaces, host.Interface{Name: "dmz0", Addresses: []netip.Prefix{netip.MustParsePrefix("10.20.1.1/28"), netip.MustParsePrefix("2001:db8:20:1::1/64")}})
	c := compiled(t, r)
	m, err := MatrixOf(t.Context(), c, Words{})
	if err != nil {
		t.Fatal(err)
	}
	for cell, want := range map[string]string{
		"lan > ssh":                      "allowed by allow ssh from lan",
		"office > ssh":                   "allowed by allow ssh from office",
		"dmz > ssh":                      "blocked by default: drop",
		"wan > ssh":                      "partly by default: drop, allow ssh from office",
		"wan > dns":                      "blocked by default: drop",
		"wan > ping":                     "limited by default: drop, allow ping limit 20/second",
		"office > tcp/5432 to 10.20.1.6": "allowed by allow tcp/5432 from office to 10.20.1.6",
		"dmz > tcp/5432 to 10.20.1.6":    "blocked by default: drop",
		"wan > any to dmz":               "partly",
		"lan > any to dmz":               "allowed by allow any from lan to dmz",
		"dmz > any to wan":               "partly by default: drop, allow [http, https, dns] from dmz to wan",
		"lan > any to wan":               "allowed by allow any from lan to wan",
	} {
		from, to, _ := strings.Cut(cell, " > ")
		if got := m.said(from, to); !strings.HasPrefix(got, want) || strings.Contains(want, " by ") && got != want {
			t.Errorf("%s: %q, want %q", cell, got, want)
		}
	}
	if fmt.Sprint(m.Sources) != "[{wan zone} {lan zone} {dmz zone} {office set} {web-server set}]" || len(m.Cells) != 5 { // the zones have everybody
		t.Errorf("sources are %+v", m.Sources)
	}
	one, err := MatrixOf(t.Context(), c, Words{Service: "tcp/5432"})
	if err != nil {
		t.Fatal(err)
	}
	for cell, want := range map[string]string{
		"office > tcp/5432 to 10.20.1.6": "allowed", "office > tcp/5432 to dmz": "partly", "lan > tcp/5432 to dmz": "allowed", "wan > tcp/5432 to dmz": "partly", "lan > tcp/5432": "blocked",
	} {
		from, to, _ := strings.Cut(cell, " > ")
		if got := one.said(from, to); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", cell, got, want)
		}
	}
	if _, err := MatrixOf(t.Context(), c, Words{Service: "htpp"}); err == nil {
		t.Error("a service that there is not was asked for")
	}
}

// said is what a cell says.
func (m *Matrix) said(from, to string) string {
	row := slices.IndexFunc(m.Sources, func(o Origin) bool { return o.Name == from })
	column := slices.IndexFunc(m.Targets, func(t Target) bool { return t.Name == to })
	if row < 0 || column < 0 {
		return fmt.Sprintf("no such cell in %+v, %+v", m.Sources, m.Targets)
	}
	var rules []string
	for _, l := range m.Cells[row][column].Lines {
		rules = append(rules, l.Rule)
	}
	return string(m.Cells[row][column].State) + " by " + strings.Join(rules, ", ")
}

// A policy of many names has a matrix of a bound size, and says what it leaves out.
func TestLargeMatrix(t *testing.T) {
	m, err := MatrixOf(t.Context(), compiled(t, resolved(t, "policy.yaml", manyNames(100))), Words{})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Sources) != mostOrigins+1 || len(m.Targets) != mostTargets || !slices.Contains(m.Notes, "40 more sources left out") || !slices.Contains(m.Notes, "40 more targets left out") {
		t.Errorf("%d sources, %d targets, %q", len(m.Sources), len(m.Targets), m.Notes)
	}
	for row := range m.Sources {
		for column := range m.Targets {
			want := Blocked
			if row == column && row < mostOrigins {
				want = Allowed
			}
			if row < mostOrigins && m.Cells[row][column].State != want {
				t.Errorf("%s to %s: %+v", m.Sources[row].Name, m.Targets[column].Name, m.Cells[row][column])
			}
		}
	}
}

func manyNames(n int) string {
	var b strings.Builder
	b.WriteString("version: 1\nsets:\n")
	for i := range n {
		fmt.Fprintf(&b, "  s%d: [203.0.%d.0/24]\n", i, i)
	}
	b.WriteString("input:\n  default: drop\n  rules:\n")
	for i := range n {
		fmt.Fprintf(&b, "    - allow tcp/%d from s%d\n", 1000+i, i)
	}
	return b.String()
}

// TestMatrixAgainstReference asks of single addresses, each a set of its own, whether the
// reference lets in what the matrix says.
func TestMatrixAgainstReference(t *testing.T) {
	seed := testseed.Of(t)
	r := rand.New(rand.NewPCG(seed, 4))
	seen := map[State]int{}
	for n := 0; n < 40; {
		random := newRandomPolicy(r)
		random.nat = nil
		var from []netip.Addr
		for range 12 {
			if p, way := randomPacket(r); way != reach.Out {
				from = append(from, p.Source)
			}
		}
		sets := ""
		for i, a := range from {
			sets += fmt.Sprintf("  one%d: [%q]\n", i, a)
		}
		text := strings.Replace(random.text(), "sets:\n", "sets:\n"+sets, 1)
		if _, err := policy.LoadData("policy.yaml", []byte(text)); err != nil {
			continue
		}
		n++
		meant := resolved(t, "policy.yaml", text)
		m, err := MatrixOf(t.Context(), compiled(t, meant), Words{Service: "[ssh, udp/53]"})
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		for column, target := range m.Targets {
			if target.Hook != "input" {
				continue
			}
			for i, source := range from {
				row := slices.IndexFunc(m.Sources, func(o Origin) bool { return o.Name == fmt.Sprintf("one%d", i) })
				want := stateByReference(meant, source, Words{Service: "[ssh, udp/53]"})
				got := m.Cells[row][column].State
				if seen[got]++; got == Limited {
					got = Allowed // the reference takes limits as not reached
				}
				if got != want {
					t.Fatalf("ssh from %s is %s, want %s\n%s", source, m.Cells[row][column].State, want, text)
				}
			}
		}
	}
	if len(seen) < 3 {
		t.Errorf("only these were met: %v", seen)
	}
}

func BenchmarkMatrix(b *testing.B) {
	c := compiled(b, resolved(b, "policy.yaml", manyNames(60)))
	for b.Loop() {
		if _, err := MatrixOf(b.Context(), c, Words{}); err != nil {
			b.Fatal(err)
		}
	}
}
