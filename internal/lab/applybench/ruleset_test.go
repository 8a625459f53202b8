package applybench

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const sample = `table inet t {
	set visitors4 { type ipv4_addr; flags interval; elements = { 192.0.2.0/25, 198.18.0.1,
		203.0.113.0/24 }; }
	set seen { type ipv4_addr; size 8; flags dynamic; }
	map ways {
		type inet_service : verdict
		elements = { 80 : jump web }
	}
	chain web {
		ip saddr @visitors4 accept
	}
	chain input {
		type filter hook input priority 0; policy drop;
		tcp dport vmap @ways
		ct state new add @seen { ip saddr } log prefix "{in} "
	}
}
`

func TestParse(t *testing.T) {
	r, err := parse("# a comment\n\n" + sample)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample, r.text(func(object) (string, bool) { return "", false })); diff != "" {
		t.Error(diff)
	}
	var got []string
	for _, o := range r[0].objects {
		got = append(got, o.kind+" "+o.name)
	}
	if diff := cmp.Diff([]string{"set visitors4", "set seen", "map ways", "chain web", "chain input"}, got); diff != "" {
		t.Error(diff)
	}
	if !strings.HasPrefix(r.refill(), "table inet t\ndelete table inet t\ntable inet t {\n") {
		t.Errorf("refilled: %s", r.refill())
	}
	for _, bad := range []string{"", "table inet t {\n\tset s {\n", "chain c { }\n"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// The steps load one after the other, and what packets fill keeps its name.
func TestSteps(t *testing.T) {
	r, err := parse(sample)
	if err != nil {
		t.Fatal(err)
	}
	steps, drops := r.steps("_v2", "delete set inet t visitors4_v1\n")
	want := []string{`table inet t {
	set visitors4_v2 { type ipv4_addr; flags interval; elements = { 192.0.2.0/25, 198.18.0.1,
		203.0.113.0/24 }; }
	set seen { type ipv4_addr; size 8; flags dynamic; }
	map ways_v2 {
		type inet_service : verdict
		elements = { 80 : jump web }
	}
	chain web { }
}
`, `add chain inet t web
flush chain inet t web
add chain inet t input { type filter hook input priority 0; policy drop; }
flush chain inet t input
table inet t {
	chain web {
		ip saddr @visitors4_v2 accept
	}
	chain input {
		type filter hook input priority 0; policy drop;
		tcp dport vmap @ways_v2
		ct state new add @seen { ip saddr } log prefix "{in} "
	}
}
`, "delete set inet t visitors4_v1\n"}
	if diff := cmp.Diff(want, steps); diff != "" {
		t.Error(diff)
	}
	if want := "delete set inet t visitors4_v2\ndelete map inet t ways_v2\n"; drops != want {
		t.Errorf("drops are %q, want %q", drops, want)
	}
	table, set, found := r.holder(netip.MustParseAddr("198.18.0.1"))
	if table != "inet t" || set != "visitors4" || !found {
		t.Errorf("198.18.0.1 is held by %q of %q, %v", set, table, found)
	}
	if _, _, found := r.holder(netip.MustParseAddr("198.18.0.11")); found {
		t.Error("198.18.0.11 is not in it")
	}
}

func TestParts(t *testing.T) {
	got := parts("# ipset restore\ncreate a hash:ip\nadd a 192.0.2.1\n# iptables-restore\n*filter\nCOMMIT\n")
	want := map[string]string{"ipset restore": "create a hash:ip\nadd a 192.0.2.1\n", "iptables-restore": "*filter\nCOMMIT\n"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSwap(t *testing.T) {
	sets := ipsets("create a hash:ip family inet\nadd a 192.0.2.1\ncreate b hash:net family inet6\nadd b 2001:db8::/32\nadd a 192.0.2.2\n")
	want := `create sluice-bench-new hash:ip family inet
add sluice-bench-new 192.0.2.1
add sluice-bench-new 192.0.2.2
swap sluice-bench-new a
destroy sluice-bench-new
`
	if len(sets) != 2 || sets[0].swap() != want {
		t.Errorf("got %d sets and\n%s", len(sets), sets[0].swap())
	}
}
