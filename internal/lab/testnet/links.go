package testnet

import "os/exec"

// Links that not every kernel makes.
var (
	WireGuard = linkFeature("WireGuard", "wireguard")
	VRF       = linkFeature("VRF", "vrf", "table", "77")
)

func linkFeature(name string, kind ...string) Feature {
	return Feature{Name: name, probe: func() error {
		return runQuiet(exec.Command("ip", append([]string{"link", "add", "probe0", "type"}, kind...)...), "")
	}}
}
