package shadow

import (
	"context"
	"os"
	"strings"

	"sluice/internal/system/kernel/nft"
	"sluice/internal/system/kernel/sysctl"
)

// UntrackedError says that the shadow would start connection tracking.
type UntrackedError struct{}

func (UntrackedError) Error() string {
	return "nothing tracks connections here, and the policy asks for their state: the shadow would start tracking, which costs every packet and drops some when its table is full"
}

// Tracking is an UntrackedError where nothing in the network namespace of the process tracks
// connections, so that a shadow that asks for their state would be the first.
func Tracking(ctx context.Context) error {
	if count, err := sysctl.Read("net.netfilter.nf_conntrack_count"); err == nil && strings.TrimSpace(count) != "0" {
		return nil
	}
	text, err := nft.ListText(ctx, "ruleset")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if statement, _, _ := strings.Cut(line, ` comment "`); asksTracking(statement) {
			return nil
		}
	}
	// Rules of legacy iptables are not listed; their table nat tracks.
	if names, err := os.ReadFile("/proc/thread-self/net/ip_tables_names"); err == nil && strings.Contains(string(names), "nat") {
		return nil
	}
	return UntrackedError{}
}

// asksTracking says whether a line of a ruleset needs connection tracking: a condition
// or statement of ct, also as iptables-nft prints them, or a NAT chain.
func asksTracking(line string) bool {
	for _, word := range []string{"type nat ", "flow add "} {
		if strings.Contains(line, word) {
			return true
		}
	}
	fields := strings.Fields(line)
	for i, f := range fields {
		if f == "ct" || f == "notrack" || i > 0 && (f == `"conntrack"` || f == `"state"`) {
			return f != "notrack"
		}
	}
	return false
}
