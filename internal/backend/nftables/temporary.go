package nftables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"sluice/internal/backend"
	"sluice/internal/system/kernel/nft"
)

// Temporary is the backend for the table of another owner.
func (n nftables) Temporary(owner string) backend.Temporary {
	n.table = name(owner)
	return n
}

// There says whether the kernel has the table, of any family.
func (n nftables) There() (bool, error) {
	tables, err := nft.Tables()
	return slices.ContainsFunc(tables, func(t nft.Named) bool { return t.Name == n.table }), err
}

// Clear deletes the table.
func (n nftables) Clear(ctx context.Context) error {
	err := nft.Run(ctx, "delete table inet "+n.table+"\n")
	if errors.Is(err, nft.ErrNotThere) {
		return nil
	}
	return err
}

// Guard starts what deletes the table.
func (n nftables) Guard(life time.Duration) (backend.Guard, error) {
	return nft.NewGuard(n.table, life)
}

// inTime is a set whose elements the kernel removes; the digits say so to whoever reads
// the table back.
const inTime = "in_time_00000001"

// Expire accepts every packet once the set inTime has nothing in it.
func (n nftables) Expire(chains []string, life time.Duration) backend.Step {
	end := fmt.Sprintf("timeout %ds", int64((life+time.Second-1)/time.Second)) // nft reads no more than eight digits
	var b strings.Builder
	fmt.Fprintf(&b, "add set inet %s %s { type nf_proto; flags timeout; elements = { ipv4 %s, ipv6 %s } }\n", n.table, inTime, end, end)
	for _, chain := range chains {
		fmt.Fprintf(&b, "insert rule inet %s %s meta nfproto != @%s accept comment \"its time is over\"\n", n.table, name(chain), inTime)
	}
	return backend.Step{Purpose: backend.Edit, Name: "end of its time", Transaction: Script(b.String())}
}

// Tracked asks the ruleset of all tables, and of legacy iptables whether it has a
// table nat, which tracks; its rules are not listed.
func (nftables) Tracked(ctx context.Context) (bool, error) {
	text, err := nft.ListText(ctx, "ruleset")
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(text)) {
		if statement, _, _ := strings.Cut(line, ` comment "`); asksTracking(statement) {
			return true, nil
		}
	}
	names, err := os.ReadFile("/proc/thread-self/net/ip_tables_names")
	return err == nil && strings.Contains(string(names), "nat"), nil
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

var _ backend.Temporaries = nftables{}
