package peers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sluice/internal/lab/testnet"
)

// fromFile says whether a name is that of a ruleset in a file.
func fromFile(name string) bool {
	switch filepath.Ext(name) {
	case ".nft", ".rules", ".v4":
		return true
	}
	return false
}

// file gives the peers of a ruleset of one's own. That it means what the policy means
// is its author's word until packets are measured.
func file(name string) ([]Peer, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read a ruleset to measure: %w", err)
	}
	base := filepath.Base(name)
	if filepath.Ext(name) == ".nft" {
		return []Peer{{
			Name: base, Group: base, About: "nft -f " + base, File: true,
			needs: []testnet.Feature{testnet.Program("nft"), testnet.Nftables},
			load: func(ctx context.Context, n *testnet.Namespace, _ Meaning, run Runner) error {
				// Read where it lies, since it may include others.
				return run(ctx, n, "", "nft", "-f", name)
			},
		}}, nil
	}
	six, err := sixth(name)
	if err != nil {
		return nil, err
	}
	var out []Peer
	for _, flavour := range []string{"legacy", "nft"} {
		p := iptables(base, "iptables-restore < "+base, flavour, iptablesSets{})
		p.load = func(ctx context.Context, n *testnet.Namespace, _ Meaning, run Runner) error {
			return restore(ctx, n, run, flavour, nil, text, six)
		}
		p.File, p.cannot, p.without, p.text = true, nil, nil, nil
		out = append(out, p)
	}
	return out, nil
}

// sixth reads the IPv6 half of a ruleset of iptables, as Debian names it: rules.v6
// beside rules.v4, and FILE6.rules beside FILE.rules, where there is one.
func sixth(name string) ([]byte, error) {
	base, is4 := strings.CutSuffix(name, ".v4")
	other := base + ".v6"
	if !is4 {
		other = strings.TrimSuffix(name, ".rules") + "6.rules"
	}
	text, err := os.ReadFile(other)
	if os.IsNotExist(err) {
		return nil, nil
	}
	return text, err
}
