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

This page is made from the tables of the parser (` + "`make generate`" + `); a JSON Schema
of the same content is printed by ` + "`sluice schema`" + `.

A policy is a YAML file, ` + "`/etc/sluice/policy.yaml`" + ` where no other is named. Anchors,
aliases, merge keys and tags of YAML are refused: a rule says what it says where
it stands. Where a list is wanted, a single value may stand alone.

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
	b.WriteString("or the same as a mapping, `{allow: web, from: office}`. Both mean the same, and `sluice fmt` writes the line.\n\n")
	b.WriteString("ACTION is `allow`, `drop`, `reject` (TCP is answered with a reset, the rest with ICMP port unreachable) or, in forward, `clamp mss`. SERVICE is a name, `tcp/80`, `udp/6000-6100`, `icmp echo-request`, `proto/112`, a list `[smtp, imaps]`, or `any`, which may be left out. WHO is a set, a zone, an address, a prefix, a range, a list of these, or `not` and one of these. Clauses may be in any order, each at most once; `published`, the service and the family come right after the action. Rules are evaluated in order; the first that matches decides.\n\n")
	b.WriteString("YAML sees a key where a colon and a blank follow each other, and a comment where a blank and `#` do: put a rule that has them into single quotes, `- 'drop any log \"in: \"'`.\n\n")
	b.WriteString("| words | meaning | example |\n|---|---|---|\n")
	for _, c := range clauses {
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", source.EscapeCell(c.usage), source.EscapeCell(c.doc), source.EscapeCell("`"+strings.Join(c.examples, "`<br>`")+"`"))
	}
	b.WriteString("\nWords that cannot be used in a section are errors there:\n\n| word | section | why | instead |\n|---|---|---|---|\n")
	for _, hook := range []Hook{Input, Output, Forward} {
		for _, word := range []string{"in", "out", "by", "published", "clamp", "per source"} {
			if why, wayOut := noSense(word, hook); why != "" {
				fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", word, hook, why, wayOut)
			}
		}
	}
	b.WriteString("| `from ZONE` | output | packets from this host come in by no interface | write from ADDRESS or out ZONE |\n| `to ZONE` | input | packets to this host leave by no interface | write to ADDRESS or in ZONE |\n\n")
}

func writeNAT(b *strings.Builder) {
	b.WriteString("## NAT\n\nA line of `nat` is one of these, or the same as a mapping:\n\n```\n")
	for _, k := range []NATKind{Masquerade, Redirect, Map} {
		b.WriteString(natUsage[k] + "\n")
	}
	b.WriteString("```\n\n")
	b.WriteString("- `masquerade` gives packets that leave by ZONE the address of the interface, or the one behind `as`. Without `ipv4` or `as` it covers IPv6 too.\n")
	b.WriteString("- `redirect` leads connections elsewhere: TARGET is `ADDRESS:PORT`, `[ADDRESS]:PORT`, `ADDRESS` (the port stays) or `:PORT` (this host). `in ZONE` without `on` means the zone's own addresses, asked from any side; `on` means these addresses.\n")
	b.WriteString("- `map` rewrites a prefix to another of the same length, bit for bit, in both directions; `stateless` does it without connection state.\n\n")
	b.WriteString("All addresses of a line are of one family. NAT permits nothing: forward rules see the inner addresses.\n\n")
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
	b.WriteString("or the same as a mapping, `{deny: ssh, from: not office}`. The words mean what they mean in rules. VERDICT is `allow`, `drop`, `reject`, or `deny` for either of the last two. It says that *every* packet that fits the words gets this verdict, which `sluice test` proves for all of them, and `sluice apply` before it loads anything.\n\n")
	b.WriteString("- Packets that open a flow are meant: those that connection tracking calls new and, where the policy bypasses it, all but TCP without a bare SYN. `state` names others. Left out is what holds whatever a policy says: loopback, the ICMP that IP cannot work without, answers to the host's own DHCP.\n")
	b.WriteString("- Addresses, ports and interfaces are those with which a packet arrives, before any rewriting. Where a redirect leads it on, the verdict is that of its whole way. `published` means packets to this host that a DNAT leads on, by a line of `nat` or by another tool such as Docker, by the port and address before that; they are judged where they are led. Where nobody is known to publish the port, nothing is judged, and a note says so.\n")
	b.WriteString("- Packets to this host are meant, unless the line says that they go on: by `out`, by a zone behind `to`, or by addresses behind `to` of which none is this host's. Packets that this host sends are meant with `by user`. `on` says it where these words do not.\n")
	b.WriteString("- Limits and bounds of connections count as not reached, so `allow` holds of a rule with a limit.\n")
	b.WriteString("- An expectation that no packet can fit is an error, unless it is for want of members of a set by `hosts` or `guests`.\n\n")
	b.WriteString("| words | meaning | example |\n|---|---|---|\n")
	for _, c := range expectClauses {
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", source.EscapeCell(c.usage), source.EscapeCell(c.doc), source.EscapeCell("`"+strings.Join(c.examples, "`<br>`")+"`"))
	}
	b.WriteString("\nIn a file of its own, for `sluice test --expect`, the list stands beside `version: 1` alone; its names are those of the policy.\n\n")
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
	b.WriteString("## ICMP types\n\n`icmp NAME` covers both families where both have it.\n\n| name | ICMP | ICMPv6 |\n|---|---|---|\n")
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
