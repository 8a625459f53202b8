package ruleset

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestParseSaveRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"a chain without a table": ":INPUT ACCEPT [0:0]\n",
		"a rule of no chain":      "*filter\n-A INPUT -j DROP\n",
		"a command":               "*filter\n:INPUT ACCEPT [0:0]\n-F INPUT\n",
		"an open quote":           "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -m comment --comment \"x -j DROP\n",
	} {
		if got, err := ParseSave(strings.NewReader(text), "ip"); err == nil {
			t.Errorf("%s is taken as %+v", name, got)
		}
	}
}

func TestParseSave(t *testing.T) {
	got, err := ParseSave(strings.NewReader(`# a comment
*mangle
:OUTPUT ACCEPT [0:0]
COMMIT
*filter
:INPUT DROP [1:2]
:own - [0:0]
[3:4] -A INPUT -m comment --comment "-j REJECT" -j own
-A own ! -p tcp -d 192.0.2.0/24 -j RETURN
-A own -p udp -d 192.0.2.7/32 --dport 5:6 -j REJECT --reject-with icmp-port-unreachable
COMMIT
`), "ip")
	if err != nil {
		t.Fatal(err)
	}
	want := []Table{
		{Family: "ip", Name: "mangle", Chains: []*Chain{{Name: "OUTPUT", Type: "route", Hook: "output", Priority: -150, Policy: "accept"}}},
		{Family: "ip", Name: "filter", Chains: []*Chain{
			{Name: "INPUT", Type: "filter", Hook: "input", Policy: "drop", Rules: []Rule{{Jumps: []Jump{{Chain: "own"}}}}},
			{Name: "own", Rules: []Rule{
				{},
				{Match: []Match{{Protocol: "udp", From: 5, To: 6, Destination: netip.MustParseAddr("192.0.2.7")}}, Drops: true},
			}},
		}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", text(got), text(want))
	}
}

func text(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

func TestSaveProgram(t *testing.T) {
	for name, c := range map[string]struct {
		programs map[string]string // name → what --version prints
		want     string
	}{
		"its own name":            {map[string]string{"sluicetables-legacy-save": "x", "sluicetables-save": "iptables-save v1.8.9 (legacy)"}, "sluicetables-legacy-save"},
		"the plain name is it":    {map[string]string{"sluicetables-save": "iptables-save v1.8.9 (legacy)"}, "sluicetables-save"},
		"before there were two":   {map[string]string{"sluicetables-save": "iptables-save v1.6.1"}, "sluicetables-save"},
		"the plain name is not":   {map[string]string{"sluicetables-save": "iptables-save v1.8.9 (nf_tables)"}, "sluicetables-legacy-save"},
		"none, so one is missing": {nil, "sluicetables-legacy-save"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for program, says := range c.programs {
				if err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\necho '"+says+"'\n"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", dir)
			if got := saveProgram(t.Context(), "sluicetables", "legacy"); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			nft := "sluicetables-nft-save"
			if name == "the plain name is not" {
				nft = "sluicetables-save"
			}
			if got := saveProgram(t.Context(), "sluicetables", "nft"); got != nft {
				t.Errorf("of nft got %s, want %s", got, nft)
			}
		})
	}
}

func TestAnd(t *testing.T) {
	tcp := Match{Protocol: "tcp"}
	low, mid := Match{From: 1, To: 100}, Match{Protocol: "tcp", From: 50, To: 200}
	if got, ok := low.And(mid); !ok || got != (Match{Protocol: "tcp", From: 50, To: 100}) {
		t.Errorf("got %v %v", got, ok)
	}
	for _, other := range []Match{{Protocol: "udp"}, {Protocol: "udp", From: 1, To: 2}} {
		if got, ok := tcp.And(other); ok {
			t.Errorf("%v and %v hold together: %v", tcp, other, got)
		}
	}
	if got, ok := low.And(Match{From: 101, To: 102}); ok {
		t.Errorf("ports that do not meet: %v", got)
	}
}

func FuzzParseSave(f *testing.F) {
	f.Add("*nat\n:PREROUTING ACCEPT [0:0]\n:D - [0:0]\n-A PREROUTING -j D\n-A D ! -i d0 -p tcp --dport 1:2 -j DNAT --to-destination [2001:db8::1]:80\nCOMMIT\n")
	f.Add("*filter\n:INPUT DROP [0:0]\n-A INPUT -m comment --comment \"a \\\" b\" -m multiport --dports 1,2:3 -j REJECT\n")
	f.Fuzz(func(t *testing.T, text string) {
		tables, err := ParseSave(strings.NewReader(text), "ip")
		if err != nil {
			return
		}
		for _, table := range tables {
			for _, c := range table.Chains {
				for _, r := range c.Rules {
					for _, m := range r.Match {
						if m.From > m.To {
							t.Fatalf("ports %d-%d of %q", m.From, m.To, text)
						}
					}
				}
			}
		}
	})
}

func FuzzNFT(f *testing.F) {
	f.Add([]byte(`{"nftables":[{"chain":{"family":"ip","table":"t","name":"c","type":"nat","hook":"prerouting","prio":-100,"policy":"accept"}},{"rule":{"family":"ip","table":"t","chain":"c","expr":[{"match":{"op":"==","left":{"concat":[{"payload":{"protocol":"ip","field":"daddr"}},{"payload":{"protocol":"tcp","field":"dport"}}]},"right":{"set":[{"concat":["192.0.2.1",80]}]}}},{"dnat":{"addr":{"map":{"key":{"payload":{"protocol":"tcp","field":"dport"}},"data":{"set":[[700,{"concat":["10.0.0.7",7000]}]]}}}}}]}}]}`))
	f.Add([]byte(`{"nftables":[{"chain":{"family":"ip","table":"t","name":"c"}},{"rule":{"family":"ip","table":"t","chain":"c","expr":[{"vmap":{"key":{"payload":{"protocol":"udp","field":"dport"}},"data":"@m"}},{"xt":null},{"match":{"op":"in","left":{"meta":{"key":"l4proto"}},"right":{"set":["tcp",17,{"range":[1,2]}]}}}]}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, err := decode(data)
		if err != nil {
			return
		}
		table, err := fromJSON("ip", "t", objects, func(string, string) []any {
			return []any{[]any{1.0, map[string]any{"drop": nil}}, 5.0}
		})
		if err != nil {
			return
		}
		for _, c := range table.Chains {
			for _, r := range c.Rules {
				for _, m := range r.Match {
					if m.From > m.To {
						t.Fatalf("ports %d-%d of %s", m.From, m.To, data)
					}
				}
			}
		}
	})
}
