package kerneltest

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/lab/testnet"
)

const limited = `
input:
  default: drop
  rules:
    - allow ssh limit 2/minute per source
    - allow tcp/9000 max 2 connections per source
    - allow tcp/8080 limit 2/minute per source then ban 10m
    - allow icmp echo-request limit 2/minute per source
forward: { default: drop }
`

// readWhole is everything that a host's kernel holds.
func readWhole(t *testing.T, s *testnet.Namespace) (have backend.State) {
	t.Helper()
	err := s.Do(func() (err error) {
		have, err = nftables.New().(backend.Lifter).ReadWhole(context.Background(), nil)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return have
}

// Elements put by hand into the sets of limits, counts and bans by limits are found by
// the proof and by the comparison, each in both families; those that packets put there
// are no difference. The next apply takes the former out, and the limit holds again.
func TestElementsOfLimits(t *testing.T) {
	c := newTown(t)
	artifact := apply(t, c.host, limited)
	resolved, err := resolveFile(policyFile(t, limited), factsOf(t, c.host))
	if err != nil {
		t.Fatal(err)
	}
	use := func(silent string) {
		t.Helper()
		c.try(t, strings.ReplaceAll(`
			office > host tcp/22 x3   = answered*2, LAST
			office > host tcp/9000 x3 = answered
			villain > host tcp/8080 x3 = answered*2, silent
			office > host ping x3 = answered*2, silent
		`, "LAST", silent), false)
	}
	check := func(strange int, put string) string {
		t.Helper()
		var have backend.State
		var differences []backend.Difference
		// The kernel takes out, each second, what counts connections and has none.
		for tries := 10; tries > 0 && (have == nil || put != "" && len(differences) < strange); tries-- {
			c.host.Nft(put)
			have = readWhole(t, c.host)
			if differences, err = nftables.New().Compare(artifact, have); err != nil {
				t.Fatal(err)
			}
		}
		_, expected := both(t, resolved)
		proof := provenAs(t, expected, have)
		var texts []string
		for _, e := range proof.Strange {
			texts = append(texts, e.Kernel+" instead of "+e.Expected)
		}
		text := strings.Join(texts, "\n")
		if len(proof.Strange) != strange || len(differences) != strange || proof.Proved != (strange == 0) {
			t.Errorf("%d strange elements are found by the proof (proved: %v), %d by the comparison, %d were put there:\n%s\n%v\n%s",
				len(proof.Strange), proof.Proved, len(differences), strange, text, differences, whyNot(proof))
		}
		return text
	}
	check(0, "")
	use("silent")
	check(0, "")

	sets := regexp.MustCompile(`set (\S+) \{`)
	listed, err := c.host.Run("nft", "-t", "list", "sets", "inet")
	if err != nil {
		t.Fatal(err)
	}
	var add strings.Builder
	put := 0
	for _, m := range sets.FindAllStringSubmatch(listed, -1) {
		name := m[1]
		addresses := []string{"203.0.113.8", "203.0.113.9", "203.0.113.10"}
		if strings.Contains(name, "_v6_") {
			addresses = []string{"2001:db8:77:1::", "2001:db8:77:2::", "2001:db8:77:3::"}
		}
		var is []string
		switch {
		case strings.HasPrefix(name, "limit.never"):
			continue
		case strings.HasPrefix(name, "limit.banned"):
			is = []string{"timeout 3650d"}
		case strings.HasPrefix(name, "limit."), strings.Contains(name, ".place"):
			is = []string{"limit rate 1000000/second", "limit rate 2/minute burst 2 packets timeout 30d", "limit rate over 2/minute burst 2 packets"}
		case strings.HasPrefix(name, "connections."):
			is = []string{"ct count 100000", "ct count over 2"}
		default:
			continue
		}
		for i, how := range is {
			add.WriteString("add element inet sluice " + name + " { " + addresses[i] + " " + how + " }\n")
			put++
		}
	}
	if put == 0 {
		t.Fatal("no set of a limit in\n" + listed)
	}
	found := check(put, add.String())
	for _, want := range []string{
		"203.0.113.8: limit rate 1000000/second burst 5 packets, for", "2001:db8:77:1::: limit rate 1000000/second",
		"203.0.113.8: ct count 100000", "203.0.113.9: ct count over 2",
		"203.0.113.9: limit rate 2/minute burst 2 packets, for 720h0m0s", "203.0.113.10: limit rate over 2/minute", "203.0.113.8: no limit, for 87600h0m0s",
		"instead of limit rate 2/minute burst 2 packets, for", "instead of ct count 2",
	} {
		if !strings.Contains(found, want) {
			t.Errorf("%q is not said in\n%s", want, found)
		}
	}
	apply(t, c.host, limited)
	check(0, "")
	c.try(t, "office2 > host tcp/22 x3 = answered*2, silent", false)
}
