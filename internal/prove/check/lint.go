package check

import (
	"io"
	"slices"
	"strings"

	"sluice/internal/base/nearest"
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/system/host"
)

// Options is what Lint needs beside the policy and the host.
type Options struct {
	// Open reads a set file, for its entries that say nothing new. Nil: files
	// are not read again.
	Open func(name string) (io.ReadCloser, error)
}

// Report is what Lint finds.
type Report struct {
	Findings []Finding
	Silenced []Silenced // that a comment of the policy allows
}

// Silenced is a finding that a comment allows.
type Silenced struct {
	Finding Finding
	Reason  string
	Comment policy.Pos
}

// Lint returns what Run finds and, beside it, advice: what is hardly an error
// and still worth a look. The facts should have been told of servers and routers
// (host.Facts.ReadServers).
//
// A comment "# lint: allow CODE REASON" on the line of a finding, or alone above
// it, takes the finding out; errors stay.
func Lint(r *resolve.Resolved, facts host.Facts, options Options) Report {
	c := newChecker(r, facts)
	c.options = options
	return c.lint()
}

func (c *checker) lint() Report {
	whole := c.effort.left
	for _, find := range passes {
		find(c)
	}
	c.effort.left = whole * adviceEffort
	for _, find := range advice {
		find(c)
	}
	silenced := c.allowed()
	return Report{order(c.policy, c.found), silenced}
}

// adviceEffort is how many times as much as check advice may take. Check itself
// takes no more here than elsewhere, so that lint finds the same errors.
const adviceEffort = 3

// advice is what lint looks for beyond check.
var advice = []func(*checker){
	(*checker).hiddenParts,
	(*checker).redundantRules,
	(*checker).redundantElements,
	(*checker).unusedNames,
	(*checker).banNetworks,
	(*checker).banServers,
	(*checker).banCountries,
	(*checker).forgedBans,
	(*checker).requestsCut,
	(*checker).bypassUnused,
	(*checker).openManagement,
	(*checker).openSections,
	(*checker).openFamilies,
	(*checker).publishedClosed,
	(*checker).redirectsClosed,
	(*checker).inputPublished,
	(*checker).otherFirewalls,
	(*checker).noClamp,
}

// shows adds a packet to a finding: one that rules with limits or bounds above a
// rule do not decide either, since they may or may not. For a rule of nil they
// are those of the whole section.
func (c *checker) shows(f *Finding, hook policy.Hook, packets []box, below *policy.Rule) {
	c.showsState(f, hook, packets, below, packet.New)
}

func (c *checker) showsState(f *Finding, hook policy.Hook, packets []box, below *policy.Rule, state packet.State) {
	packets, ok := realPackets(packets), true
	if s := c.section(hook); s != nil {
		for _, st := range c.standings(s) {
			if st.rule == below || !ok {
				break
			}
			if !ends(st.rule) && st.rule.Action != policy.ClampMSS {
				packets, ok = c.effort.minus(packets, st.packets)
			}
		}
	}
	if packets = realPackets(packets); ok && len(packets) > 0 {
		f.Witness = &Witness{hook, *c.witness(hook, packets[0], state)}
	}
}

// realPackets is the boxes of which there are packets: one that met a DNAT keeps
// its protocol.
func realPackets(boxes []box) (out []box) {
	for _, b := range boxes {
		if n := b.numbers[original].intersect(one(notRewritten)); len(n) > 0 {
			b.numbers[original] = n
			out = append(out, b)
			continue
		}
		for protocol := range 256 {
			whole := numbers{wholeProtocol(uint8(protocol))}
			after, before := b.numbers[service].intersect(whole), b.numbers[original].intersect(whole)
			if protocol == packet.ICMP || protocol == packet.ICMPv6 { // and its type
				after = after.intersect(before)
				before = after
			}
			if len(after) > 0 && len(before) > 0 {
				b.numbers[service], b.numbers[original] = after, before
				out = append(out, b)
				break
			}
		}
	}
	return out
}

// allowWords begin a comment that allows a finding.
const allowWords = "lint: allow"

// allowed takes out the findings that comments allow, and reports comments that
// allow nothing.
func (c *checker) allowed() []Silenced {
	var silenced []Silenced
	for _, comment := range c.policy.Comments() {
		if !strings.HasPrefix(comment.Text, "lint:") {
			continue
		}
		rest, ok := strings.CutPrefix(comment.Text, allowWords)
		words := strings.Fields(rest)
		if !ok || len(words) == 0 {
			c.report(LintComment, Error, comment.Pos, "write # "+allowWords+" CODE REASON", "this is not a valid lint comment")
			continue
		}
		code, reason := Code(words[0]), strings.Join(words[1:], " ")
		if explanationOf(code) == nil {
			c.unknownCode(comment.Pos, words[0])
			continue
		}
		if reason == "" {
			c.report(LintComment, Error, comment.Pos, "write # "+allowWords+" "+words[0]+" REASON", "the reason why %s is allowed is missing", code)
			continue
		}
		silenced = append(silenced, c.silence(comment, code, reason)...)
	}
	return silenced
}

func (c *checker) unknownCode(pos policy.Pos, word string) {
	var codes []string
	for _, e := range explanations {
		codes = append(codes, string(e.Code))
	}
	f := c.report(LintComment, Error, pos, "", "%q is not a code of lint", word)
	if n := nearest.Of(word, codes); n != "" {
		f.Hint = "did you mean " + n + "?"
	} else {
		f.Remedy = policy.SeeFindingCodes
	}
}

func (c *checker) silence(comment policy.Comment, code Code, reason string) []Silenced {
	var silenced []Silenced
	errors := 0
	c.found = slices.DeleteFunc(c.found, func(f Finding) bool {
		if f.Code != code || f.Pos.File != comment.Pos.File || f.Pos.Line != comment.About {
			return false
		}
		if f.Severity == Error {
			errors++
			return false
		}
		silenced = append(silenced, Silenced{f, reason, comment.Pos})
		return true
	})
	switch {
	case errors > 0:
		c.report(LintComment, Error, comment.Pos, "", "%s is an error here, and no comment can allow an error", code)
	case len(silenced) == 0:
		c.report(LintComment, Remark, comment.Pos, "remove it", "this comment allows %s, but there is no such finding here", code)
	}
	return silenced
}
