package nftables

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/system/kernel/netns"
	"sluice/internal/system/kernel/nft"
)

type feature struct {
	name    backend.Feature
	ruleset string
}

// probes are the smallest rulesets that need a feature. Each is loaded into a
// table of its own of a network namespace that nobody else sees: "nft -c" asks
// the kernel less than a real load does.
var probes = []feature{
	{backend.Flowtable, `
		flowtable f { hook ingress priority 0; devices = { lo }; }
		chain c { type filter hook forward priority 0; meta l4proto tcp flow add @f; }`},
	{backend.InetIngress, `
		chain c { type filter hook ingress device "lo" priority -10; ip saddr 192.0.2.1 drop; }`},
	{backend.InetNAT, `
		chain pre { type nat hook prerouting priority -100; tcp dport 80 dnat ip to 192.0.2.1:8080; tcp dport 81 redirect to :8081; }
		chain post { type nat hook postrouting priority 100; masquerade; }`},
	{backend.ConnectionCount, `
		set s { type ipv4_addr; flags dynamic; size 8; }
		chain c { type filter hook input priority 0; add @s { ip saddr ct count 2 } accept; }`},
	{backend.NATPrefix, `
		chain c { type nat hook prerouting priority -100; dnat ip prefix to ip daddr map { 192.0.2.0/28 : 198.51.100.0/28 }; }`},
	{backend.SetElementCounters, `
		set s { type ipv4_addr; flags interval; counter; elements = { 192.0.2.0/24, 198.51.100.1 } }
		chain c { type filter hook input priority 0; ip saddr @s accept; }`},
	{backend.TCPReset, `
		chain c { type filter hook input priority 0; meta l4proto tcp reject with tcp reset; reject with icmpx type port-unreachable; }`},
	{backend.FIB, `
		chain c { type filter hook prerouting priority -300; fib daddr type local accept; }`},
	{backend.Handshakes, `
		chain c { type filter hook input priority 0; ct label 127 accept; socket mark >= 0 meta cgroup >= 0 ct label set 127; }`},
	{backend.MSSClamp, `
		chain c { type filter hook forward priority 0; tcp flags syn tcp option maxseg size set rt mtu; }`},
}

// baseline is what every policy needs. Where not even this loads, nothing can
// be told of the rest.
const baseline = `table inet sluice_probe {
	chain c { type filter hook input priority 0; ct state established accept; }
}
`

// Capabilities asks the kernel for every feature that a backend may want, in a
// network namespace made for it and gone afterwards. Where the caller may not
// make one, or nft is missing, the answer is that it cannot be told.
func (nftables) Capabilities(ctx context.Context) backend.Capabilities {
	return capabilities(ctx, probes)
}

// Questions are the texts of the probes, which nft puts.
func (nftables) Questions() backend.Questions {
	q := backend.Questions{Files: nft.Installed()}
	for _, f := range probes {
		q.Features = append(q.Features, f.name)
		q.Text += fmt.Sprintf("%s %q\n", f.name, f.ruleset)
	}
	return q
}

// capabilities asks aside, for all that can be had.
func capabilities(ctx context.Context, features []feature) backend.Capabilities {
	can := backend.Capabilities{}
	for _, f := range features {
		can[f.name] = backend.CannotTell
	}
	if aside, err := netns.New(); err == nil {
		defer aside.Close()
		_ = aside.Do(func() error { try(ctx, can, features); return nil })
	}
	return can
}

// try asks for all features in one transaction, and again the rest when some are refused:
// the kernel answers each message of a transaction, so nft names the lines of all that
// it refused.
func try(ctx context.Context, can backend.Capabilities, features []feature) {
	if _, answer := probe(ctx, baseline); answer != backend.Yes {
		return
	}
	for left := features; len(left) > 0; {
		var lines []int // the last line of each feature
		var text strings.Builder
		for _, f := range left {
			text.WriteString(f.table())
			lines = append(lines, strings.Count(text.String(), "\n"))
		}
		problems, answer := probe(ctx, text.String())
		refused := map[int]bool{}
		for _, p := range problems {
			at, _ := slices.BinarySearch(lines, p.Line)
			refused[at] = p.Line > 0 && at < len(left)
		}
		switch {
		case answer == backend.Yes:
			for _, f := range left {
				can[f.name] = backend.Yes
			}
			return
		case answer == backend.No && len(left) == 1:
			can[left[0].name] = backend.No
			return
		case answer == backend.No && len(refused) > 0 && !slices.Contains(slices.Collect(maps.Values(refused)), false):
			var rest []feature
			for i, f := range left {
				if refused[i] {
					can[f.name] = backend.No
				} else {
					rest = append(rest, f)
				}
			}
			left = rest
		default: // refused without a place: one by one
			for _, f := range left {
				_, can[f.name] = probe(ctx, f.table())
			}
			return
		}
	}
}

// table is a table of the feature's own; it goes with the namespace.
func (f feature) table() string {
	return "table inet sluice_probe_" + string(f.name) + " {\n" + f.ruleset + "\n}\n"
}

func probe(ctx context.Context, text string) ([]nft.Problem, backend.Answer) {
	err := nft.Run(ctx, text)
	var refused *nft.Error
	switch {
	case err == nil:
		return nil, backend.Yes
	case errors.Is(err, fs.ErrPermission), errors.Is(err, nft.ErrChanged), !errors.As(err, &refused):
		return nil, backend.CannotTell
	}
	// Refused by the kernel, or not known to nft: either way it cannot be had.
	return refused.Problems, backend.No
}
