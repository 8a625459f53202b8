package compile

import (
	"net/netip"
	"slices"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/system/host"
)

// The sets of bans are without the host's addresses where these are known, and rules say
// so; else each banned packet is asked whether it is of the host.
func TestBansSpareTheHost(t *testing.T) {
	own := netip.MustParseAddr("198.51.100.1")
	facts := host.Facts{Known: true, Interfaces: []host.Interface{{Name: "eth0", Addresses: []netip.Prefix{netip.PrefixFrom(own, 24)}}}}
	for _, f := range []host.Facts{facts, {}} {
		p, err := policy.Parse("policy.yaml", []byte("version: 1\nsets: { bad: [198.51.100.0/24] }\nban: [bad]\ninput: { default: drop }\n"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := resolve.Resolve(p, resolve.Options{Facts: f})
		if err != nil {
			t.Fatal(err)
		}
		out, err := Compile(r)
		if err != nil {
			t.Fatal(err)
		}
		asked := slices.ContainsFunc(out.Chain(bannedChain).Rules, func(r program.Rule) bool {
			return slices.ContainsFunc(r.Match, func(c program.Condition) bool { return c.Set == "ban.bad" }) &&
				slices.ContainsFunc(r.Match, func(c program.Condition) bool { return c.Field == program.SourceType })
		})
		told := slices.ContainsFunc(out.Rests, func(r program.Rest) bool {
			return r.Unbanned && slices.Equal(r.Spared, []addrset.Range{{From: own, To: own}})
		})
		if holds := out.Set("ban.bad").Addresses.Contains(own); holds == f.Known || asked == f.Known || told != f.Known {
			t.Errorf("facts known: %v; the set holds the host's address: %v, its type is asked: %v, told: %v", f.Known, holds, asked, told)
		}
	}
}
