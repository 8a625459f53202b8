package hostwatch

import (
	"testing"

	"sluice/internal/lab/testnet"
)

// TestCountersThatFail: counters that cannot be read any more stay what they were, as
// otherwise they would seem to have started again, with 4,294,967,289 packets.
func TestCountersThatFail(t *testing.T) {
	host := testnet.New(t).Namespace("host")
	host.Nft("add table inet t { chain c { type filter hook input priority 0; ct state new accept; }; }")
	s, err := open(Namespace{Path: "/run/netns/" + host.Name()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	var warnings []string
	warn := func(text string, _ ...any) { warnings = append(warnings, text) }
	if s.sample(warn); !s.last.tracked || len(warnings) > 0 {
		t.Fatalf("before: %+v, warnings %v", s.last, warnings)
	}
	s.last.table = map[string]uint32{"drop": 7}
	if err := s.table.Close(); err != nil {
		t.Fatal(err)
	}
	if now := s.sample(warn); now.table["drop"] != 7 || len(warnings) != 1 {
		t.Errorf("after: %v, warnings %v", now.table, warnings)
	}
}
