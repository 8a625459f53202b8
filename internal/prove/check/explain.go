package check

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/base/english"
	"sluice/internal/base/nearest"
	"sluice/internal/language/policy"
)

// Explanation is what there is to say of a code.
type Explanation struct {
	Code       Code
	Severities []Severity // that its findings have, the worst first
	Advice     bool       // found by lint alone, not by check
	What       string     // a sentence without a full stop
	Why        string     // why it matters, and when it is found
	Fix        string     // what to do
	Before     string     // a policy that has it, on the host of the examples
	After      string     // the same, fixed
}

// explanations are in the order of the page; the texts are in files of their own.
var explanations = slices.Concat(explainRules, explainSets, explainTracking, explainAnswers, explainBans, explainHost, explainOpen)

// Explanations returns all codes in the order of the manual.
func Explanations() []Explanation { return slices.Clone(explanations) }

func explanationOf(code Code) *Explanation {
	for i := range explanations {
		if explanations[i].Code == code {
			return &explanations[i]
		}
	}
	return nil
}

// Explain returns the explanation of a code, and where there is none the code
// that was likely meant, "" when none is near.
func Explain(code string) (e *Explanation, near string) {
	if e = explanationOf(Code(code)); e != nil {
		return e, ""
	}
	var codes []string
	for _, e := range explanations {
		codes = append(codes, string(e.Code))
	}
	return nil, nearest.Of(code, codes)
}

// Found says by which commands a code is found.
func (e *Explanation) Found() string {
	if e.Advice {
		return "lint"
	}
	return "check and lint"
}

// Text is the explanation for a terminal.
func (e *Explanation) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s, found by %s)\n\n%s.\n\n%s\n\n%s\n", e.Code, severities(e.Severities), e.Found(),
		english.Sentence(e.What), english.Wrapped("Why: "+e.Why), english.Wrapped("Fix: "+e.Fix))
	if e.Before != "" {
		fmt.Fprintf(&b, "\nBefore:\n%s\nAfter:\n%s", indented(e.Before), indented(e.After))
	}
	return b.String()
}

func severities(all []Severity) string {
	var words []string
	for _, s := range all {
		words = append(words, string(s))
	}
	return strings.Join(words, ", ")
}

func indented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("    " + line)
	}
	return b.String()
}

// exampleHost is what the examples of the page are about.
const exampleHost = `The examples are for a host that forwards packets. It has ` + "`eth0`" + ` with 198.51.100.1/24
and 2001:db8::1/64, and a default route by it to 198.51.100.254; the bridge
` + "`br0`" + ` with 10.20.0.1/16 and its port ` + "`tap0`" + `; the tunnel ` + "`wg0`" + ` with 10.30.0.1/24 and MTU
1420; and ` + "`docker0`" + ` with 172.17.0.1/16. It uses the name server 192.0.2.53, the
package mirror 192.0.2.80 (tcp/443) and the time server 192.0.2.123, the last from port
123, as ntpd does. 203.0.113.9 is logged in over ssh. Another tool publishes
tcp/8080 to 172.17.0.2:80.`

// Reference returns the page of all codes as Markdown.
func Reference() []byte {
	var b strings.Builder
	b.WriteString(referenceHead)
	b.WriteString("\n| code | severity | found by | what |\n|---|---|---|---|\n")
	for _, e := range explanations {
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s | %s | %s |\n", e.Code, e.Code, severities(e.Severities), e.Found(), e.What)
	}
	b.WriteString("\n" + exampleHost + "\n")
	for _, e := range explanations {
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n%s\n\n**Fix:** %s\n", e.Code, english.Sentence(e.What), e.Why, e.Fix)
		if e.Before != "" {
			fmt.Fprintf(&b, "\nBefore:\n\n```yaml\n%s```\n\nAfter:\n\n```yaml\n%s```\n", e.Before, e.After)
		}
	}
	b.WriteString("\n" + managementHead + "\n\n| port | name (IANA) | what | enough with a limit per source |\n|---|---|---|---|\n")
	for _, m := range management {
		name, limit := "", "no"
		if m.iana != "" {
			name = "`" + m.iana + "`"
		}
		if m.withLimit {
			limit = "yes"
		}
		fmt.Fprintf(&b, "| %s/%s | %s | %s | %s |\n", protocolNames[m.protocol], policy.PortRange{From: m.from, To: m.to}, name, m.what, limit)
	}
	return []byte(b.String())
}

const managementHead = `## Management ports

The ports that ` + "`open-management`" + ` checks. A name is the one in IANA's Service Name and
Transport Protocol Port Number Registry; if it is empty, the port is registered for
something else or not at all, but known for this use. A limit per source is enough for
services that always require a password.`

const referenceHead = `# What lint finds

This page is generated from the code by ` + "`make generate`" + `.

` + "`sluice check`" + ` finds errors, which prevent a policy from being applied, and what is certainly
wrong. ` + "`sluice lint`" + ` also gives advice. Every finding has a code, a place, a message and
a fix, and an example packet if that helps.
` + "`sluice lint --explain CODE`" + ` prints the text of this page, ` + "`sluice lint --list`" + ` lists the codes.

To allow a finding, write a comment on its line, or alone on the line above:

` + "```yaml" + `
input:
  default: drop
  rules:
    # lint: allow open-management the jump host has to be reached from hotels
    - allow ssh
` + "```" + `

It needs a reason. Allowed findings are counted in the summary and listed by
` + "`--json`" + `. A comment with an unknown code is an error, one that allows nothing is a
remark, and errors cannot be allowed. Besides the codes of this page, errors in the text
of a policy have the code ` + "`policy`" + `, and failed expectations ` + "`expectation`" + `.

Nothing here is guessed. Rules are compared as sets of packets: by service, addresses,
interfaces, user, family and their destination before DNAT. If something is not known
about the host, or would take too long to compare, lint reports nothing.
`
