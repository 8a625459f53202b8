package stories

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
)

func TestQueryTime(t *testing.T) {
	ms, err := queryTime(`pgbench (15.14 (Debian 15.14-0+deb12u1))
transaction type: <builtin: select only>
scaling factor: 1
query mode: prepared
number of clients: 1
number of threads: 1
maximum number of tries: 1
number of transactions per client: 5000
number of transactions actually processed: 5000/5000
number of failed transactions: 0 (0.000%)
latency average = 0.118 ms
initial connection time = 3.420 ms
tps = 8474.576271 (without initial connection time)
`)
	if err != nil || math.Abs(ms-0.118) > 1e-9 {
		t.Errorf("%v ms, %v", ms, err)
	}
	for _, odd := range []string{"", "latency average = 0.118 ms", "tps = 0.000000 (without initial connection time)", "tps = 1.2.3 (without initial connection time)"} {
		if ms, err := queryTime(odd); err == nil {
			t.Errorf("%q gives %v ms", odd, ms)
		}
	}
}

// The rules by hand and the policy are about ten machines, and differ from those with
// a flowtable in nothing else.
func TestTenMachines(t *testing.T) {
	classic, fast := machineRules(false), machineRules(true)
	for i := 1; i <= machines; i++ {
		for what, rules := range map[string]string{"rules": classic, "policy": machinesPolicy(true)} {
			if named := fmt.Sprintf("vm%d", i); !regexp.MustCompile(`\b`+named+`\b`).MatchString(rules) || !strings.Contains(rules, machine(i).String()) {
				t.Errorf("the %s do not know %s", what, named)
			}
		}
	}
	cut := func(text, from, to string) string {
		before, rest, _ := strings.Cut(text, from)
		_, after, ok := strings.Cut(rest, to)
		if !ok {
			t.Fatalf("no %q in:\n%s", from, text)
		}
		return before + after
	}
	without := cut(cut(fast, "\tflowtable fast {", "\n\t}\n"), "\t\tmeta l4proto", "\n")
	if without != classic {
		t.Errorf("without its flowtable it is\n%s\nwant\n%s", without, classic)
	}
	if a, b := machinesPolicy(true), machinesPolicy(false); strings.Replace(a, "accelerate: true", "accelerate: false", 1) != b {
		t.Errorf("the policies differ in more than accelerate:\n%s\n%s", a, b)
	}
	if p := clientPackets(); len(p.Flows) != 1 || p.Flows[0].From.Addr() != machine(2) || p.Flows[0].To.Addr() != machine(1) {
		t.Errorf("packets %+v", p)
	}
}
