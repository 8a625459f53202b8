package diagnose_test

import (
	"strings"
	"testing"

	"sluice/internal/lab/diagnose"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/testnet"
)

// TestMeasure: each base chain of each tool is measured by both packets, whatever it does to
// them, and what cannot be is named.
func TestMeasure(t *testing.T) {
	measure.Require(t)
	testnet.Require(t, testnet.IPTablesLegacy("filter"))
	host := testnet.New(t).Unnamed("host")
	host.MustRun("iptables-legacy", "-A", "INPUT", "-p", "tcp", "-j", "DROP")
	host.MustRun("iptables-nft", "-t", "raw", "-A", "PREROUTING", "-p", "udp", "-j", "DROP")
	host.MustRun("ip6tables-nft", "-A", "FORWARD", "-p", "tcp", "--dport", "22", "-j", "ACCEPT")
	host.Nft(`table inet t {
		chain in { type filter hook input priority 0; policy drop; ct state established accept; }
		chain some { type filter hook prerouting priority -300; limit rate 1/day burst 5 packets accept; drop; }
		chain out { type filter hook output priority 0; tcp dport 22 drop; }
	}`)
	var chains []diagnose.Measured
	if err := host.Do(func() (err error) {
		chains, err = diagnose.Measure(t.Context(), diagnose.MeasureOptions{Rounds: 3})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range chains {
		got = append(got, c.Text()+map[bool]string{true: ", known"}[c.KnownNS != nil]+map[bool]string{true: ", new"}[c.NewNS != nil]+map[bool]string{true: ": " + c.Left}[c.Left != ""])
	}
	want := map[string]bool{
		"iptables-legacy, chain filter/INPUT, hook input, known, new":                                              true,
		"iptables-nft, chain raw/PREROUTING, hook prerouting, known, new":                                          true,
		"ip6tables-nft, chain filter/FORWARD, hook forward, known, new":                                            true,
		"nft table inet t, chain in, hook input, known, new":                                                       true,
		"nft table inet t, chain some, hook prerouting: it lets some packets pass and others not, as a limit does": true,
		"nft table inet t, chain out, hook output: packets of the host's own are not sent":                         true,
	}
	for _, c := range got {
		if !want[c] {
			t.Errorf("%s", c)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d chains, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
}
