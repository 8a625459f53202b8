package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/language/geo"
)

// BenchmarkApply times whole commands on all countries but Europe's, both
// families: nft with the text of one interval set each; an apply from nothing,
// with a cold cache and with a warm one; the same again; one ban more in the
// policy's file. "make bench" sets them side by side, with bounds.
func BenchmarkApply(b *testing.B) {
	testnet.Require(b, testnet.Namespaces, testnet.Nftables)
	dir := b.TempDir()
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		b.Fatal(err)
	}
	continents := []string{"AF", "AN", "AS", "NA", "OC", "SA"}
	policy, banned := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "banned.txt")
	write := func(name, text string) {
		b.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	write(policy, "version: 1\nsets:\n  banned: { file: banned.txt }\n  world: { continents: ["+strings.Join(continents, ", ")+
		"] }\nban: [banned]\ninput:\n  default: allow\n  rules:\n    - drop any from world\n")
	data, err := geo.Open(state)
	if err != nil {
		b.Fatal(err)
	}
	world, err := data.Continents(continents...)
	if err != nil {
		b.Fatal(err)
	}
	var text strings.Builder
	text.WriteString("table inet t {\n")
	for family, set := range map[int]string{4: world.Only4().String(), 6: world.Only6().String()} {
		fmt.Fprintf(&text, "set s%d { type ipv%d_addr; flags interval; elements = { %s }; }\n", family, family, set)
	}
	single := filepath.Join(dir, "single.nft")
	write(single, text.String()+"chain c { type filter hook input priority 0; ip saddr @s4 drop; ip6 saddr @s6 drop; }\n}\n")

	host := testnet.New(b).Unnamed("host")
	run := func(name string, args ...string) {
		b.Helper()
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "SLUICE_STATE_DIR="+state)
		var err error
		var out []byte
		if doErr := host.Do(func() error { out, err = cmd.CombinedOutput(); return nil }); doErr != nil || err != nil {
			b.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
	}
	apply := func() { run("sluice", "apply", policy, "--no-confirm", "--no-verify") }
	empty := func(keep string) {
		b.StopTimer()
		defer b.StartTimer()
		run("nft", "flush", "ruleset")
		entries, err := os.ReadDir(state)
		if err != nil {
			b.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() != keep {
				if err := os.RemoveAll(filepath.Join(state, e.Name())); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	write(banned, "192.0.2.1\n")
	b.Run("nft", func(b *testing.B) {
		for b.Loop() {
			empty("")
			run("nft", "-f", single)
		}
	})
	b.Run("from-nothing-cold", func(b *testing.B) {
		for b.Loop() {
			empty("")
			apply()
		}
	})
	b.Run("from-nothing", func(b *testing.B) {
		for b.Loop() {
			empty("cache")
			apply()
		}
	})
	b.Run("unchanged", func(b *testing.B) {
		apply()
		for b.Loop() {
			apply()
		}
	})
	bans := 1
	b.Run("one-ban-more", func(b *testing.B) {
		apply()
		for b.Loop() {
			b.StopTimer()
			bans++
			var lines strings.Builder
			for i := range bans {
				fmt.Fprintf(&lines, "198.18.%d.%d\n", i>>7, i&127*2)
			}
			write(banned, lines.String())
			b.StartTimer()
			apply()
		}
	})
}
