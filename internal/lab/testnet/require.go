package testnet

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Feature is something that a kernel test needs of the machine: its name, and a
// way to ask for it.
type Feature struct {
	Name string
	// probe runs on a thread in a throwaway network namespace, except that of
	// Namespaces, which runs where it is called.
	probe   func() error
	outside bool
}

// The features that tests ask for. Each one asks the kernel, not its version.
var (
	Namespaces   = Feature{Name: "network namespaces", probe: probeNamespaces, outside: true}
	Nftables     = nftFeature("nftables in inet tables", "add table inet t; add chain inet t c { type filter hook input priority 0; }; add rule inet t c ct state new accept")
	NftNAT       = nftFeature("nftables NAT in inet tables", "add table inet t; add chain inet t c { type nat hook postrouting priority 100; }; add rule inet t c masquerade")
	Flowtable    = nftFeature("nftables flowtables", `add table inet t; add flowtable inet t f { hook ingress priority 0; devices = { lo }; }; add chain inet t c { type filter hook forward priority 0; }; add rule inet t c meta l4proto tcp flow add @f`)
	NetdevIngr   = nftFeature("nftables netdev ingress", `add table netdev t; add chain netdev t c { type filter hook ingress device "lo" priority 0; }`)
	NftConnLimit = nftFeature("nftables connection limits by source", "add table inet t; add set inet t s { type ipv4_addr; flags dynamic; size 8; }; add chain inet t c { type filter hook input priority 0; }; add rule inet t c add @s { ip saddr ct count over 2 } drop")
)

// BridgeNetfilter is the feature that IP hooks can see bridged frames
// (br_netfilter).
var BridgeNetfilter = Feature{Name: "br_netfilter", probe: func() error {
	_, err := os.Stat("/proc/sys/net/bridge/bridge-nf-call-iptables")
	return err
}}

// Program is the feature that a program is installed.
func Program(name string) Feature {
	return Feature{Name: "program " + name, outside: true, probe: func() error {
		_, err := exec.LookPath(name)
		return err
	}}
}

// Sluice is the program sluice for tests, built into a folder. Where there is no Go, as on
// the emulated machine that tries other kernels, it is the one in the path.
func Sluice(dir string) (string, error) {
	if _, err := exec.LookPath("go"); err != nil {
		return exec.LookPath("sluice")
	}
	out := filepath.Join(dir, "sluice")
	if text, err := exec.Command("go", "build", "-o", out, "sluice/cmd/sluice").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build sluice: %w\n%s", err, text)
	}
	return out, nil
}

// Probed is a feature with a probe of the caller's own: nil means that the machine
// has it.
func Probed(name string, probe func() error) Feature {
	return Feature{Name: name, outside: true, probe: probe}
}

// IPTablesLegacy is the feature that the xtables of the kernel (not those over
// nftables) take rules in the given table.
func IPTablesLegacy(table string) Feature {
	return Feature{Name: "iptables-legacy table " + table, probe: func() error {
		return runQuiet(exec.Command("iptables-legacy", "-t", table, "-L", "-n"), "")
	}}
}

// Require calls Lacks when the machine lacks a feature.
func Require(t TB, features ...Feature) {
	t.Helper()
	for _, f := range features {
		if err := f.Ask(); err != nil {
			Lacks(t, f.Name, err)
		}
	}
}

// Lacks skips a test that has found out that the machine lacks something, naming it;
// when CI=true the test fails instead, unless SLUICE_TEST_MAY_LACK (names, separated by
// commas) says that the same test runs on another kernel as well.
func Lacks(t TB, name string, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" && !slices.Contains(strings.Split(os.Getenv("SLUICE_TEST_MAY_LACK"), ","), name) {
		t.Fatalf("this machine lacks %s: %v", name, err)
	}
	t.Skipf("this machine lacks %s: %v", name, err)
}

var answers sync.Map // feature name -> error (nil for yes)

// Ask returns nil when the machine has the feature, else why not. The answer
// is kept for the life of the process.
func (f Feature) Ask() error {
	if answer, ok := answers.Load(f.Name); ok {
		err, _ := answer.(error)
		return err
	}
	var err error
	if f.outside {
		err = f.probe()
	} else {
		err = onOwnThread(func() error {
			h, err := netns.New()
			if err != nil {
				return err
			}
			defer func() { _ = h.Close() }()
			return f.probe()
		})
	}
	answers.Store(f.Name, err)
	return err
}

func probeNamespaces() error {
	if err := prepareRunDir(); err != nil {
		return err
	}
	err := onOwnThread(func() error {
		h, err := netns.New()
		if err != nil {
			return err
		}
		return h.Close()
	})
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w\nhint: run as root, or under unshare -rnm", err)
	}
	return err
}

func nftFeature(name, script string) Feature {
	return Feature{Name: name, probe: func() error {
		return runQuiet(exec.Command("nft", "-f", "-"), script)
	}}
}

func runQuiet(cmd *exec.Cmd, input string) error {
	cmd.Stdin = bytes.NewReader([]byte(input))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
