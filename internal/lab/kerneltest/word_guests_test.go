package kerneltest

import (
	"os"
	"path/filepath"
	"testing"

	"sluice/internal/lab/testnet"
)

// A guest is held to its addresses, in flows that are known too; its public address leads
// to it, and is what others see of it.
func TestWordsOfGuests(t *testing.T) {
	c := newTown(t)
	apply(t, c.host, sides+"forward: { default: allow }\n")
	conn := c.open(t, "inside2", "stranger", 80, false, "hello")
	own := c.open(t, "inside", "stranger", 80, false, "hello")

	dir := t.TempDir()
	for name, text := range map[string]string{
		"fleet.yaml": "version: 1\nfleet: example.net\nparts: vms.yaml\nsets: {vms: {guests: app, within: [10.20.0.0/16, \"2001:db8:20::/48\"]}}\nguests: {public: [198.51.100.0/24, \"2001:db8:100::/48\"]}\n",
		"vms.yaml":   sides + "guests: { enforce: forward, public: map }\nforward: { default: drop, rules: [allow any from guests, allow any to guests, allow any from 10.20.0.6] }\n",
		"hv-1.yaml": `version: 1
fleet: fleet.yaml
host: hv-1
guests:
  vm-1: { interface: lan0, addresses: [10.20.0.5, "2001:db8:20::5"], public: [198.51.100.37, "2001:db8:100:f::5"] }
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	artifact := applyFile(t, c.host, filepath.Join(dir, "hv-1.yaml"))
	c.try(t, `
		inside > stranger tcp/80    = answered as mapped
		inside > stranger ping      = answered
		inside > gateway tcp/80     = answered
		stranger > mapped tcp/80    = answered as stranger
		stranger > mapped udp/53    = answered as stranger
		inside2 > stranger tcp/80   = silent
		inside2 > stranger udp/53   = silent
		inside2 > stranger ping     = silent
		inside2 > gateway tcp/80    = silent
		elsewhere > stranger tcp/80 = silent
		stranger > inside tcp/80    = answered
	`, false)
	if got := own.Exchange("more", enough); got.Outcome != testnet.Answered {
		t.Errorf("the guest's own flow: %v", got)
	}
	if got := conn.Exchange("more", short); got.Outcome == testnet.Answered {
		t.Error("a flow of a forged source goes on")
	}
	if t.Failed() {
		t.Log(artifact.Text())
	}
}
