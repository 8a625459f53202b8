package check_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"sluice/internal/base/packet"
	"sluice/internal/prove/check"
)

func TestFindingText(t *testing.T) {
	found := run(t, testCase{policy: `
input:
  default: drop
  rules:
    - allow any from 203.0.113.0/24
    - drop tcp/25 from 203.0.113.7
    - allow icmp time-exceeded
`})
	if len(found) != 2 {
		t.Fatalf("%d findings, want 2: %v", len(found), found)
	}
	text := found[0].String()
	for _, part := range []string{"policy.yaml:6:7: this rule can never match: ", "\n        - drop tcp/25 from 203.0.113.7\n", "\n          ^\n", "\nhint: remove it"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q lacks %q", text, part)
		}
	}
	if text := found[1].String(); !strings.Contains(text, "policy.yaml:7:7: warning: ") {
		t.Errorf("a warning is not called one: %q", text)
	}
	var flat map[string]any
	data, err := json.Marshal(found[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &flat); err != nil {
		t.Fatal(err)
	}
	related, _ := flat["related"].([]any)
	if flat["line"] != 6.0 || flat["column"] != 7.0 || flat["severity"] != "error" || flat["code"] != "hidden-rule" || len(related) != 1 {
		t.Errorf("JSON is %s", data)
	}
	if err := check.Errors(found); err == nil || strings.Contains(err.Error(), "warning") {
		t.Errorf("errors are %v", err)
	}
	if err := check.Errors(found[1:]); err != nil {
		t.Errorf("a warning is an error: %v", err)
	}
}

// TestWitnessText: a witness has what its protocol has.
func TestWitnessText(t *testing.T) {
	for protocol, want := range map[uint8]string{
		packet.TCP:  "tcp from 203.0.113.7 port 40000 to 198.51.100.1 port 22",
		packet.ICMP: "icmp from 203.0.113.7 to 198.51.100.1, icmp echo-request",
		50:          "protocol 50 from 203.0.113.7 to 198.51.100.1",
	} {
		w := check.Witness{Packet: packet.Packet{
			Source: netip.MustParseAddr("203.0.113.7"), Destination: netip.MustParseAddr("198.51.100.1"),
			Protocol: protocol, SourcePort: 40000, Port: 22, ICMPType: 8,
		}}
		if got := w.Text(); got != want {
			t.Errorf("protocol %d: %q, want %q", protocol, got, want)
		}
	}
}
