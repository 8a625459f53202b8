package check_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sluice/internal/base/addrset"
	"sluice/internal/base/testseed"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/program/compile"
	"sluice/internal/program/optimize"
	"sluice/internal/prove/check"
	"sluice/internal/prove/reach"
	"sluice/internal/system/host"
)

// randomPolicy has every section and whatever stands between a packet and a
// rule: bans, bypasses, redirects, published services, limits.
func randomPolicy(r *rand.Rand) string {
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	var b strings.Builder
	b.WriteString("version: 1\nzones:\n  wan: {interfaces: [eth0]}\n  lan: {interfaces: [br0], networks: [10.20.0.0/16]}\n" +
		"sets:\n  office: [203.0.113.0/24, \"2001:db8:77::/48\"]\n  some: [192.0.2.0/24]\n  part: [192.0.2.64/26, 203.0.113.0/28]\n")
	if r.IntN(3) == 0 {
		fmt.Fprintf(&b, "ban: [%s]\n", pick("some", "192.0.2.7", "part"))
	}
	if r.IntN(3) == 0 {
		fmt.Fprintf(&b, "tracking: {bypass: [%s]}\n", pick("http", "dns", "ntp"))
	}
	for _, section := range []string{"input", "forward", "output"} {
		if r.IntN(5) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s:\n  default: %s\n  rules:\n", section, pick("drop", "drop", "reject", "allow"))
		for range 1 + r.IntN(6) {
			action, published := pick("allow", "allow", "drop", "reject"), ""
			if section != "output" && r.IntN(5) == 0 {
				published = " published"
			}
			line := action + published + " " + pick("any", "http", "ssh", "[http, https]", "dns", "tcp/1-1000", "udp", "icmp", "ping", "tcp")
			line += pick("", "", "", "", " ipv4", " ipv6")
			if section != "output" {
				line += pick("", " from office", " from some", " from part", " from [office, 192.0.2.7]", " from not office", " from 203.0.113.7")
				line += pick("", "", " in wan", " in lan")
			} else {
				line += pick("", " to office", " to not some", " to 192.0.2.7")
			}
			if action == "allow" && section != "output" {
				line += pick("", "", "", "", " limit 5/minute per source", " max 9 connections per source")
			}
			fmt.Fprintf(&b, "    - %s\n", line)
		}
	}
	if r.IntN(3) == 0 {
		b.WriteString("nat:\n  - redirect tcp/8080 in wan to 10.20.0.5:80\n")
	}
	return b.String()
}

// compiled leaves out what limits ask of established flows: it is about flows that the
// limit's own rule let in, which the comparison of packets does not know.
func compiled(t *testing.T, text string, f host.Facts) (*program.Program, *resolve.Resolved, error) {
	t.Helper()
	p, err := policy.LoadData("policy.yaml", []byte(text))
	if err != nil {
		return nil, nil, err
	}
	r, err := resolve.Resolve(p, resolve.Options{Facts: f})
	if err != nil {
		return nil, nil, err
	}
	prog, err := compile.Compile(r)
	if err != nil {
		return nil, nil, err
	}
	for i := range prog.Chains {
		prog.Chains[i].Rules = slices.DeleteFunc(prog.Chains[i].Rules, func(r program.Rule) bool { return r.Stage == program.StageProof })
	}
	return prog, r, optimize.Run(prog, optimize.Options{})
}

// Without a rule that check calls hidden, or lint redundant, the compiled
// program is the same for every packet there is: what the box arithmetic of this
// package says of the policy, another arithmetic says of the program. And the
// packets that show a finding do so by the reference.
func TestRemovalsAreProved(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.Of(t), 3))
	f := manualHost()
	own := addrset.FromPrefixes(f.Local...)
	proved := map[check.Code]int{}
	for tried := 0; tried < testseed.Rounds(20, 40); {
		text := randomPolicy(r)
		whole, resolved, err := compiled(t, text, f)
		if err != nil {
			continue
		}
		tried++
		for _, finding := range check.Lint(resolved, f, check.Options{}).Findings {
			judgeWitness(t, resolved, finding)
			if t.Failed() {
				t.Fatalf("%v\n%s", finding, text)
			}
			if finding.Code != check.HiddenRule && finding.Code != check.RedundantRule {
				continue
			}
			lines := strings.SplitAfter(text, "\n")
			without := strings.Join(slices.Delete(lines, finding.Pos.Line-1, finding.Pos.Line), "")
			less, _, err := compiled(t, without, f)
			if err != nil {
				continue // it was the last rule of its section
			}
			proved[finding.Code]++
			u := reach.NewUniverse(reach.Options{Own: own, Settled: true}, whole, less)
			for _, d := range u.Compare(whole, less, false) {
				t.Fatalf("%s, and without line %d %s of %s is another: %+v then %+v\n%s", finding.Message, finding.Pos.Line,
					reach.Describe(d.Witness), d.Way, d.A.Verdict, d.B.Verdict, text)
			}
		}
	}
	if proved[check.HiddenRule] == 0 || proved[check.RedundantRule] == 0 {
		t.Errorf("proved %v: the test shows nothing of one of them", proved)
	}
}
