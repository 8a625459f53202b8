package doctor_test

import (
	"fmt"
	"strings"

	"sluice/internal/lab/testnet"
)

// ipset makes a set with elements, and a rule of iptables that asks it.
func (b *broken) ipset(tool string, family int, options, element string, elements int) {
	b.t.Helper()
	testnet.Require(b.t, testnet.Program("ipset"))
	if family == 6 {
		options += " family inet6"
	}
	text := "create bad " + options + "\n"
	for i := range elements {
		text += "add bad " + fmt.Sprintf(element, i) + "\n"
	}
	if out, err := b.host.RunInput(text, "ipset", "restore"); err != nil {
		b.t.Fatalf("%v: %s", err, out)
	}
	b.tables(tool, family, "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -m set --match-set bad src -j DROP\nCOMMIT\n")
}

// nftSet makes a set of nftables with elements, and a rule that asks it.
func (b *broken) nftSet(family int, flags, element string, elements int) {
	b.t.Helper()
	var all []string
	for i := range elements {
		all = append(all, fmt.Sprintf(element, i/256, i%256))
	}
	b.host.Nft(nftOf(family, fmt.Sprintf("table FAMILY banned { set bad { type ipv%d_addr; %s elements = { %s }; }; chain c { type filter hook input priority 0; ADDRESS saddr @bad drop; }; }", family, flags, strings.Join(all, ", "))))
}

// setIllnesses are those of sets, of ipset and of nftables.
func setIllnesses() (all []illness) {
	for _, family := range []int{4, 6} {
		single, length := "203.0.113.%d", func(i int) string { return fmt.Sprintf("%d.0.0.0/%d", 11+i, 8+i) }
		inTwo := "10.0.%d.%d"
		if family == 6 {
			single, inTwo = "2001:db8::%x", "2001:db8::%x:%x"
			length = func(i int) string { return fmt.Sprintf("2001:db8:%x::/%d", i+1, 48+i) }
		}
		lengths := func(b *broken, tool string, n int) {
			b.ipset(tool, family, "hash:net", "", 0)
			for i := range n {
				b.host.MustRun("ipset", "add", "bad", length(i))
			}
		}
		for _, tool := range tools {
			all = append(all, illness{
				"set-full",
				func(b *broken) { b.ipset(tool, family, "hash:ip maxelem 64", single, 64) },
				func(b *broken) { b.ipset(tool, family, "hash:ip maxelem 64", single, 63) },
			}, illness{
				"set-kind",
				func(b *broken) { lengths(b, tool, 24) },
				func(b *broken) { lengths(b, tool, 23) },
			})
		}
		all = append(all, illness{
			"set-full",
			func(b *broken) { b.nftSet(family, "size 64; flags dynamic,timeout; timeout 1h;", inTwo, 64) },
			func(b *broken) { b.nftSet(family, "size 64;", inTwo, 64) }, // nobody adds to it
		}, illness{
			"set-kind",
			func(b *broken) { b.nftSet(family, "flags interval;", inTwo, 1100) },
			func(b *broken) { b.nftSet(family, "", inTwo, 1100) },
		}, illness{
			"set-kind",
			func(b *broken) { b.nftSet(family, "flags interval;", inTwo, 1100) },
			func(b *broken) { // one range among them
				b.nftSet(family, "flags interval;", inTwo, 1100)
				b.host.Nft(nftOf(family, "add element FAMILY banned bad { "+length(3)+" }"))
			},
		})
	}
	return all
}
