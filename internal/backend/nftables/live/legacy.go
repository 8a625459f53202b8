package live

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"sluice/internal/backend/trace"
)

// legacyHit is a rule of legacy iptables that has counted the packet, or a policy.
type legacyHit struct {
	family, table, chain string
	rule                 string // as iptables-save writes it, behind the chain
	target               string
	policy               bool
}

var (
	countedRule   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\[(\d+):\d+\] -A (\S+) ?(.*)$`) })
	countedPolicy = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^:(\S+) (ACCEPT|DROP) \[(\d+):\d+\]$`) })
	quoted        = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`"(?:[^"\\]|\\.)*"`) })
	targetWord    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?:^| )-[jg] (\S+)`) })
)

// legacyHits are the rules whose counters differ between two saves, in their order.
func legacyHits(before, after [2]string) (hits []legacyHit) {
	for i, family := range []string{"ip", "ip6"} {
		old, now := strings.Split(before[i], "\n"), strings.Split(after[i], "\n")
		old = slices.DeleteFunc(old, isRemark)
		now = slices.DeleteFunc(now, isRemark)
		table := ""
		for n, line := range now {
			if name, is := strings.CutPrefix(line, "*"); is {
				table = name
			}
			if n >= len(old) || old[n] == line {
				continue
			}
			if m := countedRule().FindStringSubmatch(line); m != nil {
				h := legacyHit{family: family, table: table, chain: m[2], rule: m[3]}
				if t := targetWord().FindStringSubmatch(quoted().ReplaceAllString(m[3], "")); t != nil {
					h.target = t[1]
				}
				hits = append(hits, h)
			} else if m := countedPolicy().FindStringSubmatch(line); m != nil {
				hits = append(hits, legacyHit{family: family, table: table, chain: m[1], rule: "policy", target: m[2], policy: true})
			}
		}
	}
	return hits
}

func isRemark(line string) bool { return strings.HasPrefix(line, "#") }

// verdict is a target in the words of nf_tables.
func (h legacyHit) verdict() string {
	switch h.target {
	case "ACCEPT", "DROP", "RETURN", "REJECT", "QUEUE":
		return strings.ToLower(h.target)
	case "NFQUEUE":
		return "queue"
	case "":
		return "continue"
	}
	return h.target
}

// Priorities of the tables of legacy iptables, NF_IP_PRI_*; nat has another one for
// sources.
var legacyPriorities = map[string]int32{"raw": -300, "mangle": -150, "nat": -100, "filter": 0, "security": 50}

var builtIn = map[string]string{
	"PREROUTING": "prerouting", "INPUT": "input", "FORWARD": "forward", "OUTPUT": "output", "POSTROUTING": "postrouting",
}

// legacySteps are the hits as steps. A rule of another than a built-in chain is given the
// hook of the last built-in one of its table that led somewhere.
func legacySteps(hits []legacyHit) (steps []trace.Step) {
	hook := map[string]string{}
	for _, h := range hits {
		if name, is := builtIn[h.chain]; is && !h.policy {
			hook[h.family+h.table] = name
		}
	}
	for _, h := range hits {
		s := trace.Step{
			Hook: builtIn[h.chain], Priority: legacyPriorities[h.table], Family: h.family, Table: h.table, Chain: h.chain,
			Rule: h.rule, Verdict: h.verdict(), Foreign: true, Legacy: true,
		}
		if s.Hook == "" {
			s.Hook = hook[h.family+h.table]
		}
		if h.table == "nat" && (s.Hook == "postrouting" || s.Hook == "input") {
			s.Priority = 100
		}
		steps = append(steps, s)
	}
	return steps
}
