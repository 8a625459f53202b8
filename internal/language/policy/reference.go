package policy

import (
	"fmt"
	"strings"

	"sluice/internal/language/source"
)

// Schema returns the JSON Schema of a policy file. What needs the meaning of
// words, such as names and sections, only the parser checks.
func Schema() []byte { return grammar.Schema() }

// Reference returns the reference of the language as Markdown, made from the
// tables that the parser uses.
func Reference() []byte {
	var b strings.Builder
	b.WriteString(`# The policy language

This page is generated from the tables of the parser (` + "`make generate`" + `); a JSON Schema
of the same content is printed by ` + "`sluice schema`" + `.

A policy is a YAML file, ` + "`/etc/sluice/policy.yaml`" + ` by default. Anchors,
aliases, merge keys and tags of YAML are refused, so that each rule can be read on
its own. Where a list is expected, a single value needs no brackets.

`)
	writeRules(&b)
	writeNAT(&b)
	writeExpectations(&b)
	grammar.WriteShapes(&b)
	writeServices(&b)
	writeICMP(&b)
	return []byte(b.String())
}

func writeRules(b *strings.Builder) {
	b.WriteString("## Rules\n\nA rule is one line of words,\n\n```\n")
	usage := []string{"ACTION [published] [SERVICE] [ipv4|ipv6]"}
	for _, c := range clauses[3:] {
		usage = append(usage, "["+c.usage+"]")
	}
	line := ""
	for _, u := range usage {
		if len(line)+len(u) > 90 {
			b.WriteString(line + "\n")
			line = "      "
		}
		line += u + " "
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n```\n\n")
	b.WriteString("or a mapping, `{allow: web, from: office}`. Both mean the same, and `sluice fmt` writes the line.\n\n")
	b.WriteString("ACTION is `allow`, `drop`, `reject` (a reset for TCP, ICMP port unreachable for the rest) or, in forward, `clamp mss`. SERVICE is a name, `tcp/80`, `udp/6000-6100`, `icmp echo-request`, `proto/112`, a list `[smtp, imaps]`, or `any`, the default. WHO is a set, a zone, an address, a prefix, a range, a list of these, or `not` and one of these. Clauses may be in any order, each at most once; `published`, the service and the family come right after the action. Rules are evaluated in order; the first that matches decides.\n\n")
	b.WriteString("In YAML a colon and a space make a key, and a space and `#` begin a comment: put a rule that has them into single quotes, `- 'drop any log \"in: \"'`.\n\n")
	b.WriteString("| words | meaning | example |\n|---|---|---|\n")
	for _, c := range clauses {
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", source.EscapeCell(c.usage), source.EscapeCell(c.doc), source.EscapeCell("`"+strings.Join(c.examples, "`<br>`")+"`"))
	}
	b.WriteString("\nThese words are errors in these sections:\n\n| word | section | why | instead |\n|---|---|---|---|\n")
	for _, hook := range []Hook{Input, Output, Forward} {
		for _, word := range []string{"in", "out", "by", "published", "clamp", "per source"} {
			if why, wayOut := noSense(word, hook); why != "" {
				fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", word, hook, why, wayOut)
			}
		}
	}
	b.WriteString("| `from ZONE` | output | packets from this host have no incoming interface | write from ADDRESS or out ZONE |\n| `to ZONE` | input | packets to this host have no outgoing interface | write to ADDRESS or in ZONE |\n\n")
}

func writeNAT(b *strings.Builder) {
	b.WriteString("## NAT\n\nA line of `nat` is one of these, or a mapping of the same:\n\n```\n")
	for _, k := range []NATKind{Masquerade, Redirect, Map} {
		b.WriteString(natUsage[k] + "\n")
	}
	b.WriteString("```\n\n")
	b.WriteString("- `masquerade` gives packets that leave by ZONE the address of the interface, or the address after `as`. Without `ipv4` or `as` it applies to IPv6 too.\n")
	b.WriteString("- `redirect` sends connections to another address or port: TARGET is `ADDRESS:PORT`, `[ADDRESS]:PORT`, `ADDRESS` (the port stays the same) or `:PORT` (this host). It applies to connections to the addresses that this host has in ZONE, from any side, or to the addresses after `on`.\n")
	b.WriteString("- `map` translates a prefix to another of the same length, bit by bit, in both directions; `stateless` does so without connection state.\n\n")
	b.WriteString("All addresses of a line are of one family. NAT allows nothing by itself: the rules of `forward` see the inner addresses.\n\n")
}

func writeExpectations(b *strings.Builder) {
	b.WriteString("## Expectations\n\nAn expectation is one line of words under `expect`,\n\n```\n")
	usage := "VERDICT [published] [SERVICE]"
	for _, word := range []string{"[ipv4|ipv6]", "from", "to", "in", "out", "by"} {
		if c := clauseNamed(word); c != nil {
			word = "[" + c.usage + "]"
		}
		usage += " " + word
	}
	b.WriteString(usage + "\n      ")
	for _, c := range expectClauses {
		b.WriteString(" [" + c.usage + "]")
	}
	b.WriteString("\n```\n\n")
	b.WriteString("or a mapping, `{deny: ssh, from: not office}`. The words mean the same as in rules. VERDICT is `allow`, `drop`, `reject`, or `deny` for either of the last two. An expectation says that *every* packet that matches the words gets this verdict. `sluice test` proves it for all packets, and `sluice apply` does so before it loads anything.\n\n")
	b.WriteString("- An expectation is about packets that begin a connection: those that are new to connection tracking and, where the policy bypasses it, all but TCP without a bare SYN. `state` selects others. Packets that every policy allows are not included: loopback, the ICMP that IP needs to work, replies to the DHCP of the host itself.\n")
	b.WriteString("- Addresses, ports and interfaces are those with which a packet arrives, before any translation. If a redirect sends it on, the verdict is that of its whole path. `published` selects packets to this host that a DNAT sends on, by a line of `nat` or by another tool such as Docker, with the port and address before the DNAT; the verdict is that at their destination. If no DNAT of the port is known, nothing is checked, and a note says so.\n")
	b.WriteString("- An expectation is about packets to this host, unless the line says that they are forwarded: by `out`, by a zone after `to`, or by addresses after `to` of which none belongs to this host. With `by user` it is about packets that this host sends. `on` sets the direction if these words do not.\n")
	b.WriteString("- Limits on rates and connections count as not reached, so `allow` holds for a rule with a limit.\n")
	b.WriteString("- An expectation that no packet can match is an error, unless the reason is that a set by `hosts` or `guests` has no members.\n\n")
	b.WriteString("| words | meaning | example |\n|---|---|---|\n")
	for _, c := range expectClauses {
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", source.EscapeCell(c.usage), source.EscapeCell(c.doc), source.EscapeCell("`"+strings.Join(c.examples, "`<br>`")+"`"))
	}
	b.WriteString("\nA file of expectations for `sluice test --expect` has only `version: 1` and the list; its names are those of the policy.\n\n")
}

func writeServices(b *strings.Builder) {
	b.WriteString("## Built-in services\n\n| name | on the wire |\n|---|---|\n")
	for _, s := range Builtin() {
		words := make([]string, len(s.Matches))
		for i, m := range s.Matches {
			words[i] = "`" + m.String() + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", s.Name, strings.Join(words, ", "))
	}
	b.WriteByte('\n')
}

func writeICMP(b *strings.Builder) {
	b.WriteString("## ICMP types\n\n`icmp NAME` covers both families if both have the type.\n\n| name | ICMP | ICMPv6 |\n|---|---|---|\n")
	number := func(n int) string {
		if n < 0 {
			return ""
		}
		return fmt.Sprint(n)
	}
	for _, t := range icmpTypes {
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", t.Name, number(t.V4), number(t.V6))
	}
}
