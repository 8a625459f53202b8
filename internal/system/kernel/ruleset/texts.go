package ruleset

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	kernel "sluice/internal/system/kernel/nft"
)

// Text is what a tool prints of all that it has loaded.
type Text struct {
	Tool   string // "iptables-legacy", "iptables-nft" with counters; "ipset"
	Family int    // 4 or 6; 0 is both
	Text   []byte
}

// xtablesTables are the tables that iptables over nftables makes.
var xtablesTables = []string{"raw", "mangle", "nat", "filter", "security"}

// Texts gives what iptables, legacy and over nftables, and ipset have loaded in the
// network namespace of the calling thread, as they save it. A tool is run where the kernel
// has something of it and not otherwise. An error names what was not read; the rest is
// there all the same.
func Texts(ctx context.Context) (texts []Text, errs []error) {
	add := func(name string, family int, program string, args ...string) {
		text, err := printed(ctx, program, args...)
		if err != nil {
			errs = append(errs, err)
			return
		}
		texts = append(texts, Text{name, family, text})
	}
	// The kernel tells every namespace whether it has the code at all.
	if _, err := os.Stat("/sys/module/ip_set"); err == nil && installed("ipset") {
		add("ipset", 0, "ipset", "save")
	}
	for i, l := range legacies {
		there, err := legacyTables(l.names)
		if err != nil {
			errs = append(errs, err)
		} else if there {
			add("iptables-legacy", 4+2*i, saveProgram(ctx, l.program, "legacy"), "-c")
		}
	}
	for i, l := range legacies {
		there, err := nftOf([]uint8{unix.NFPROTO_IPV4, unix.NFPROTO_IPV6}[i])
		if err != nil {
			errs = append(errs, err)
		} else if there {
			add("iptables-nft", 4+2*i, saveProgram(ctx, l.program, "nft"), "-c")
		}
	}
	return texts, errs
}

// nftOf says whether nf_tables has a table of a family with a name that iptables uses.
func nftOf(family uint8) (bool, error) {
	for _, name := range xtablesTables {
		if there, _, err := kernel.Table(family, name); there || err != nil {
			return there, err
		}
	}
	return false, nil
}
