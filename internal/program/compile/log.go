package compile

import (
	"strings"

	"sluice/internal/language/policy"
	"sluice/internal/program"
)

// What one line sends to the netlink log group, and what of it one source has: one that
// scans hides nobody else, and ever new sources that are forged are bounded by the line's. Of
// what the host itself sends, the destination stands for the source.
var (
	lineRate   = program.Rate{Packets: 50, Per: 1000, Burst: 100}
	sourceRate = program.Rate{Packets: 30, Per: 60_000, Burst: 10}
)

const (
	logTableSize = 4096
	// noisyTime is for how many milliseconds nothing more is logged of a source that is
	// over its part, and takes nothing of what the line has.
	noisyTime = 10_000
	// mostPrefix is NF_LOG_PREFIXLEN without the byte that ends it.
	mostPrefix = 127
)

// logged gives the actions of a line that is logged and ends with a verdict.
func (c *compiler) logged(id, text string, o program.Origin, then program.Action) []program.Action {
	if !c.policy.LogsNetlink {
		return []program.Action{program.Log{Prefix: text, Rate: logRate}, then}
	}
	chain := "log_" + id
	if c.program.Chain(chain) == nil {
		c.logChains(chain, id, text, o, then)
	}
	return []program.Action{program.Goto{Chain: chain}}
}

// logChains makes the chains of a line that is logged. Each ends with the verdict: what is
// left out of the log meets the same.
func (c *compiler) logChains(chain, id, text string, o program.Origin, then program.Action) {
	noisy := c.dynamicSet("log."+id+".noisy", logTableSize, noisyTime, o)
	field, key, add := program.Source, program.PerSource, program.SetAdd{Set: noisy, Key: program.PerSource, Timeout: noisyTime}
	if strings.HasPrefix(id, string(policy.Output)+"_") {
		field, key, add = program.Destination, program.PerDestination, program.SetAdd{Set: noisy, Fields: []program.Field{program.Destination}, Timeout: noisyTime}
	}
	sources := c.dynamicSet("log."+id, logTableSize, tableTime(sourceRate), o)
	full := "log-" + id + "-full"
	c.counter(full, o, "sources that found the table of the log of "+id+" full")
	rule := func(chain, comment string, m match, actions ...program.Action) {
		c.append(chain, program.Rule{ID: id, Match: m, Actions: actions, Origin: o, Comment: comment})
	}
	each := chain + "_source"
	c.chain(chain, "log: "+o.Text)
	rule(chain, "has had its part of the log", match{inSet(field, noisy)}, then)
	rule(chain, "", nil, program.Limit{Name: "log-" + id, Rate: lineRate}, program.Goto{Chain: each})
	rule(chain, "the line has had its part of the log", nil, then)
	c.chain(each, "log of each source: "+o.Text)
	rule(each, "", nil,
		program.Limit{Name: "log-" + id + "-source", Rate: sourceRate, Per: key, Table: sources, FullCounter: full},
		program.Log{Group: program.LogGroup, Prefix: netlinkPrefix(id, text)}, then)
	rule(each, "", nil, add, then)
	rule(each, "", nil, then)
}

// netlinkPrefix is by what who reads the group knows the line: its id, and what the policy
// says behind it.
func netlinkPrefix(id, text string) string {
	out := strings.TrimSpace(id + " " + text)
	return out[:min(len(out), mostPrefix)]
}
