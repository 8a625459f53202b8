package resolve

import (
	"net/netip"
	"strings"
	"testing"

	"sluice/internal/language/policy"
	"sluice/internal/system/host"
)

// A guest takes from its host neither an address nor the interface by which it reaches others,
// whatever range the fleet has signed.
func TestGuestsOfHost(t *testing.T) {
	t.Parallel()
	facts := host.Facts{Known: true, DefaultRoute: []string{"eth0"}, Interfaces: []host.Interface{
		{Name: "lo", Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}},
		{Name: "eth0", Addresses: []netip.Prefix{netip.MustParsePrefix("203.0.113.1/24"), netip.MustParsePrefix("2001:db8:30::1/64")}},
		{Name: "tap0", Addresses: []netip.Prefix{netip.MustParsePrefix("10.30.0.1/32")}},
	}}
	for guest, want := range map[string]string{
		`{interface: tap0, addresses: [10.30.0.5, "2001:db8:30::/64"], public: 203.0.113.9}`: "",
		"{interface: tap0, addresses: 10.30.0.5, public: 203.0.113.1}":                       "hv-1.yaml:5:57: guest vm-1: 203.0.113.1 is an address of this host",
		"{interface: tap0, addresses: 10.30.0.1}":                                            "hv-1.yaml:5:38: guest vm-1: 10.30.0.1 is an address of this host",
		"{interface: eth0, addresses: 10.30.0.5}":                                            "hv-1.yaml:5:21: guest vm-1: eth0 cannot be the interface of a guest",
		"{interface: lo, addresses: 10.30.0.5}":                                              "hv-1.yaml:5:21: guest vm-1: lo cannot be the interface of a guest",
	} {
		p, err := policy.LoadTexts("hv-1.yaml", map[string][]byte{
			"hv-1.yaml":  []byte("version: 1\nfleet: fleet.yaml\nhost: hv-1\nguests:\n  vm-1: " + guest + "\n"),
			"fleet.yaml": []byte("version: 1\nfleet: example.net\nparts: base.yaml\nsets: {vms: {guests: app, within: [10.30.0.0/16, \"2001:db8:30::/48\"]}}\nguests: {public: 203.0.113.0/24}\n"),
			"base.yaml":  []byte("version: 1\nguests: {enforce: forward, public: map}\nforward: {default: drop}\n"),
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = Resolve(p, Options{Facts: facts})
		if err == nil != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", guest, err, want)
		}
	}
}
