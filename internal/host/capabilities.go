package host

import (
	"context"
	"errors"
	"io/fs"
	"runtime"

	"golang.org/x/sys/unix"

	"sluice/internal/backend"
	"sluice/internal/kernel/nft"
)

// probes are the smallest rulesets that need a feature. Each is loaded into a
// table of its own of a network namespace that nobody else sees: "nft -c" asks
// the kernel less than a real load does.
var probes = []struct {
	feature backend.Feature
	ruleset string
}{
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
	{backend.MSSClamp, `
		chain c { type filter hook forward priority 0; tcp flags syn tcp option maxseg size set rt mtu; }`},
}

// baseline is what every policy needs. Where not even this loads, nothing can
// be told of the rest.
const baseline = `chain c { type filter hook input priority 0; ct state established accept; }`

// Capabilities asks the kernel for every feature that a backend may want, in a
// network namespace made for it and gone afterwards. Where the caller may not
// make one, or nft is missing, the answer is that it cannot be told.
func Capabilities(ctx context.Context) backend.Capabilities {
	answers := make(chan backend.Capabilities)
	go func() {
		// The thread is in another namespace afterwards. It is never unlocked, so
		// it ends with this goroutine.
		runtime.LockOSThread()
		answers <- capabilities(ctx)
	}()
	return <-answers
}

func capabilities(ctx context.Context) backend.Capabilities {
	can := backend.Capabilities{}
	for _, p := range probes {
		can[p.feature] = backend.CannotTell
	}
	if unix.Unshare(unix.CLONE_NEWNET) != nil || probe(ctx, baseline) != backend.Yes {
		return can
	}
	for _, p := range probes {
		can[p.feature] = probe(ctx, p.ruleset)
	}
	return can
}

// probe loads a ruleset and takes it away again.
func probe(ctx context.Context, ruleset string) backend.Answer {
	const table = "inet sluice_probe"
	err := nft.Run(ctx, "table "+table+" {\n"+ruleset+"\n}\n")
	var refused *nft.Error
	switch {
	case err == nil:
		if nft.Run(ctx, "delete table "+table+"\n") != nil {
			return backend.CannotTell
		}
		return backend.Yes
	case errors.Is(err, fs.ErrPermission), errors.Is(err, nft.ErrChanged), !errors.As(err, &refused):
		return backend.CannotTell
	}
	// Refused by the kernel, or not known to nft: either way it cannot be had.
	return backend.No
}
