package check

var explainRules = []Explanation{
	{
		Code: HiddenRule, Severities: []Severity{Error, Warning},
		What: "rules above a rule decide all of its packets",
		Why: "The first rule that matches decides, so this rule never takes effect, although the policy reads as if it did. " +
			"Rules with `limit` or `max` hide nothing, because packets over the limit go on to the next rule. " +
			"It is a warning if a downloaded list is involved (lists change), in a file that is included with `only` (other files may hide it), and if another part of a fleet hides it.",
		Fix:    "Remove the rule, or move it above those that hide it.",
		Before: "input:\n  default: drop\n  rules:\n    - allow ssh\n    - drop ssh from 192.0.2.0/24\n",
		After:  "input:\n  default: drop\n  rules:\n    - drop ssh from 192.0.2.0/24\n    - allow ssh\n",
	},
	{
		Code: HiddenPart, Severities: []Severity{Warning, Remark}, Advice: true,
		What: "rules above, or bans, decide some of the packets that a rule names",
		Why: "One word of the rule, one of its services or one of its addresses has no effect. " +
			"It is a warning if the rule above has the opposite action, because the rule then claims something that is not so; otherwise a remark. " +
			"It is also a remark if a rule with the opposite action cuts into the range of this one without being an exception within it; the text shows what is left. " +
			"Exceptions above a wider rule are not reported, nor are rules for every service of some addresses: both are common style. " +
			"ICMP errors that a rule names without effect are harmless: they are decided before any rule.",
		Fix:    "Remove the word, or move the rule up.",
		Before: "input:\n  default: drop\n  rules:\n    - drop telnet\n    - allow [ssh, telnet] from 203.0.113.0/24\n",
		After:  "input:\n  default: drop\n  rules:\n    - allow [ssh, telnet] from 203.0.113.0/24\n    - drop telnet\n",
	},
	{
		Code: NeverMatches, Severities: []Severity{Error},
		What:   "no packet matches all words of a rule",
		Why:    "`in` and `from` name sides that no packet comes from at the same time, or the sets of the rule have no address family in common.",
		Fix:    "Remove one of the words, or name the side that you mean.",
		Before: "zones:\n  wan: { interfaces: [eth0] }\n  lan: { interfaces: [br0] }\ninput:\n  default: drop\n  rules:\n    - allow ssh from lan in wan\n",
		After:  "zones:\n  wan: { interfaces: [eth0] }\n  lan: { interfaces: [br0] }\ninput:\n  default: drop\n  rules:\n    - allow ssh from lan\n",
	},
	{
		Code: EndedRule, Severities: []Severity{Warning},
		What:   "a rule has expired",
		Why:    "A rule with `until` matches only before that time. After it the rule has no effect.",
		Fix:    "Remove it, or set a later time.",
		Before: "input:\n  default: drop\n  rules:\n    - allow ssh from 203.0.113.7 until 2020-01-31T18:00:00Z\n",
		After:  "input:\n  default: drop\n  rules:\n    - allow ssh from 203.0.113.7 until 2100-01-31T18:00:00Z\n",
	},
	{
		Code: AlwaysPasses, Severities: []Severity{Error, Warning},
		What: "a rule matches ICMP errors, which are decided before any rule",
		Why: "Without ICMP errors path MTU discovery breaks, and connections hang as soon as packets are large (RFC 4890). " +
			"So errors about known connections are always allowed, others are dropped, and no rule is evaluated for them; `drop icmp` is harmless. `tracking: { icmp-errors: all }` allows all of them.",
		Fix:    "Remove the rule.",
		Before: "input:\n  default: drop\n  rules:\n    - drop icmp time-exceeded\n    - allow ssh from 203.0.113.0/24\n",
		After:  "input:\n  default: drop\n  rules:\n    - allow ssh from 203.0.113.0/24\n",
	},
	{
		Code: BannedRule, Severities: []Severity{Error, Warning},
		What:   "all packets that a rule could match are banned",
		Why:    "Bans are evaluated before any rule. It is a warning in a file that is included with `only`, since the ban is in another file.",
		Fix:    "Remove the addresses from the ban, or add them to `never-ban`.",
		Before: "ban: [192.0.2.0/24]\ninput:\n  default: drop\n  rules:\n    - allow ssh from 192.0.2.7\n",
		After:  "ban: [192.0.2.0/24]\nnever-ban: [192.0.2.7]\ninput:\n  default: drop\n  rules:\n    - allow ssh from 192.0.2.7\n",
	},
	{
		Code: RedundantRule, Severities: []Severity{Remark}, Advice: true,
		What: "without this rule every packet is decided in the same way",
		Why: "A shorter policy is easier to read, and rules below this one, or the default, do the same to its packets. Rules with a limit, a bound or a log do more than decide and are never reported. " +
			"Neither are rules whose packets only a downloaded list or country data decides below, since these change, nor rules that also allow the answers of an untracked service.",
		Fix:    "Remove it. Its packets are then counted by the rule below that decides them.",
		Before: "input:\n  default: drop\n  rules:\n    - allow http from 203.0.113.0/24\n    - allow http\n",
		After:  "input:\n  default: drop\n  rules:\n    - allow http\n",
	},
	{
		Code: LintComment, Severities: []Severity{Error, Remark}, Advice: true,
		What: "a lint comment is invalid or has no effect",
		Why: "An invalid comment allows nothing, and one without effect would hide the next finding. " +
			"It is an error if the code is unknown, if the reason is missing, or if the finding there is an error, which no comment can allow; a remark if the comment allows nothing.",
		Fix:    "Write `# lint: allow CODE REASON`, or remove it.",
		Before: "input:\n  default: drop\n  rules:\n    - allow ssh # lint: allow open-managements we know\n",
		After:  "input:\n  default: drop\n  rules:\n    - allow ssh # lint: allow open-management we know\n",
	},
}

var explainSets = []Explanation{
	{
		Code: EmptySet, Severities: []Severity{Error, Warning, Remark},
		What:   "a set has no addresses",
		Why:    "A rule that uses it matches nothing. It is a warning if its exceptions remove all addresses, or if a rule uses an empty file or list; a remark if only a ban uses it.",
		Fix:    "Give it addresses, or remove it.",
		Before: "sets:\n  office: []\ninput:\n  default: drop\n  rules:\n    - allow ssh from office\n",
		After:  "sets:\n  office: [203.0.113.0/24]\ninput:\n  default: drop\n  rules:\n    - allow ssh from office\n",
	},
	{
		Code: OneFamily, Severities: []Severity{Warning},
		What:   "a set with addresses of only one family leaves the other family open",
		Why:    "A rule refuses packets from a set that has no IPv6 addresses, and a rule below it or the default allows the same over IPv6; or `not SET` allows all addresses of the other family.",
		Fix:    "Add addresses of the other family, or write the family into the rule.",
		Before: "sets:\n  scanners: [192.0.2.0/24]\ninput:\n  default: drop\n  rules:\n    - drop http from scanners\n    - allow http\n",
		After:  "sets:\n  scanners: [192.0.2.0/24, \"2001:db8:bad::/48\"]\ninput:\n  default: drop\n  rules:\n    - drop http from scanners\n    - allow http\n",
	},
	{
		Code: RedundantElement, Severities: []Severity{Remark}, Advice: true,
		What: "an entry of a list has no effect",
		Why: "A shorter list is easier to read. The entry is a duplicate, or is covered by another entry, set or service of the same list; or an exception removes nothing; or the exceptions remove all of an entry. " +
			"For set files, one finding sums up all entries. Downloaded lists and country data do not count, since they change: an office that happens to be in Europe today is not redundant.",
		Fix:    "Remove it.",
		Before: "sets:\n  office: [203.0.113.0/24, 203.0.113.7]\ninput:\n  default: drop\n  rules:\n    - allow ssh from office\n",
		After:  "sets:\n  office: [203.0.113.0/24]\ninput:\n  default: drop\n  rules:\n    - allow ssh from office\n",
	},
	{
		Code: UnusedName, Severities: []Severity{Remark}, Advice: true,
		What:   "a set, zone or service is not used",
		Why:    "It is left over, or a rule that should name it is missing. A set that only unused sets contain is unused too.",
		Fix:    "Remove it, or use it.",
		Before: "sets:\n  office: [203.0.113.0/24]\n  old-office: [192.0.2.0/24]\ninput:\n  default: drop\n  rules:\n    - allow ssh from office\n",
		After:  "sets:\n  office: [203.0.113.0/24]\ninput:\n  default: drop\n  rules:\n    - allow ssh from office\n",
	},
}

var explainTracking = []Explanation{
	{
		Code: BypassNAT, Severities: []Severity{Error, Remark},
		What: "packets that bypass tracking would need NAT",
		Why: "Untracked packets are not rewritten: a redirect, a stateful map or a published container port would no longer be reached. " +
			"It is a remark if another tool masquerades: it may give a client a port that bypasses tracking here, and then the answers do not get back to the client.",
		Fix:    "Remove the service from bypass, or give the bypass an address of its own: `SERVICE to ADDRESS`.",
		Before: "zones:\n  wan: { interfaces: [default-route] }\ntracking:\n  bypass: [http]\ninput:\n  default: drop\n  rules:\n    - allow http\nnat:\n  - redirect http in wan to 10.20.0.5\n",
		After:  "zones:\n  wan: { interfaces: [default-route] }\ninput:\n  default: drop\n  rules:\n    - allow http\nnat:\n  - redirect http in wan to 10.20.0.5\n",
	},
	{
		Code: BypassEphemeral, Severities: []Severity{Error, Warning},
		What:   "a bypass covers ports that the host uses for its own connections",
		Why:    "The answers to those connections would come in untracked, belong to no connection, and be decided by rules. It is a warning if the host's port range is not known.",
		Fix:    "Narrow the service's ports, or move `net.ipv4.ip_local_port_range` away from them.",
		Before: "services:\n  game: udp/30000-40000\ntracking:\n  bypass: [game]\ninput:\n  default: drop\n  rules:\n    - allow game\n",
		After:  "services:\n  game: udp/30000-30100\ntracking:\n  bypass: [game]\ninput:\n  default: drop\n  rules:\n    - allow game\n",
	},
	{
		Code: BypassConnections, Severities: []Severity{Error},
		What:   "a rule counts connections that are not tracked",
		Why:    "The kernel knows none of these connections, so `max N connections` limits nothing.",
		Fix:    "Remove the service from bypass, or use a limit instead.",
		Before: "tracking:\n  bypass: [http]\ninput:\n  default: drop\n  rules:\n    - allow http max 20 connections per source\n",
		After:  "tracking:\n  bypass: [http]\ninput:\n  default: drop\n  rules:\n    - allow http\n",
	},
	{
		Code: BypassLimit, Severities: []Severity{Warning},
		What:   "a limit counts packets instead of flows",
		Why:    "The service bypasses tracking, so every packet is new.",
		Fix:    "Choose the limit for packets, or remove the service from bypass.",
		Before: "tracking:\n  bypass: [http]\ninput:\n  default: drop\n  rules:\n    - allow http limit 100/second per source\n",
		After:  "input:\n  default: drop\n  rules:\n    - allow http limit 100/second per source\n",
	},
	{
		Code: BypassUnused, Severities: []Severity{Remark}, Advice: true,
		What:   "a service bypasses tracking, but input refuses all of it",
		Why:    "The bypass only makes rules evaluate stray packets and resets of that port. Often the rule was forgotten, or names another service.",
		Fix:    "Remove the bypass, or allow the service in input.",
		Before: "tracking:\n  bypass: [https]\ninput:\n  default: drop\n  rules:\n    - allow http\n",
		After:  "tracking:\n  bypass: [http]\ninput:\n  default: drop\n  rules:\n    - allow http\n",
	},
	{
		Code: NoWayBack, Severities: []Severity{Warning},
		What: "no rule allows the answers of untracked traffic",
		Why: "Untracked traffic has no replies, so each direction needs a rule. A rule with ports is mirrored. " +
			"A rule without ports, like this one, is not, because nothing distinguishes its answers from other traffic. The traffic bypasses tracking, or a stateless map rewrites it.",
		Fix:    "Name the ports in the rule, or add the rule for the answers that the hint shows.",
		Before: "tracking:\n  bypass: [http]\ninput:\n  default: drop\n  rules:\n    - allow any from 203.0.113.0/24\noutput:\n  default: drop\n  rules:\n    - allow [dns, ntp, https, dhcp]\n",
		After:  "tracking:\n  bypass: [http]\ninput:\n  default: drop\n  rules:\n    - allow http from 203.0.113.0/24\noutput:\n  default: drop\n  rules:\n    - allow [dns, ntp, https, dhcp]\n",
	},
}
