package nftables

import (
	"net/netip"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/testnet"
	"sluice/internal/program"
)

// A banned address that goes from the exact addresses of a living set to its
// ranges and back is banned at every moment.
func TestLivingSetIsNeverMissed(t *testing.T) {
	host, from := watched(t)
	k := kernel{host}
	// Many other ranges, so that there is time between the switch and the edit.
	banning := func(addresses ...string) *artifact {
		for i := range 4000 {
			addresses = append(addresses, netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64, byte(i >> 8), byte(i)}), 32).String())
			addresses = append(addresses, netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(80 + i>>12), byte(i >> 4), byte(i << 4)}), 31).String())
		}
		return mustLower(t, &program.Program{
			Owner: "sluice",
			Hooks: []program.Hook{{Kind: program.Input, Phase: program.Filter, Default: program.Accept, Chain: "input"}},
			Chains: []program.Chain{{Name: "input", Rules: []program.Rule{
				{Match: conditions{setOn(program.Source, "banned")}, Actions: actions{program.Drop}},
			}}},
			Sets: []program.Set{{ID: "banned", Key: []program.Field{program.Source}, Life: program.Living, Addresses: addrset.MustParse(addresses...)}},
		})
	}
	exact, wide := banning("192.0.2.2"), banning("192.0.2.2/31")
	k.load(t, New(), exact)
	packet := testnet.UDP(netip.MustParseAddrPort("192.0.2.2:4000"), netip.MustParseAddrPort("192.0.2.1:53"), 'x')
	stop := from.Flood(packet)
	for range 5 {
		k.load(t, New(), wide)
		k.load(t, New(), exact)
	}
	sent, err := stop()
	if err != nil || sent == 0 {
		t.Fatalf("sent %d: %v", sent, err)
	}
	wantPassed(t, k, "packets of a banned address", sent, 0)
}
