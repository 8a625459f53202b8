package check

var explainRules = []Explanation{
	{
		Code: HiddenRule, Severities: []Severity{Error, Warning},
		What: "the rules above decide all packets of a rule",
		Why: "The first rule that matches decides, so this one never does. Somebody who reads the policy believes it. " +
			"Rules with `limit` or `max` hide nothing, since packets over the limit go on. A warning where a downloaded list is involved, since that changes, in a file that is included with `only`, which others may hide, and where another part of a fleet hides it.",
		Fix:    "Remove the rule, or put it above those that hide it.",
		Before: "input:\n  default: drop\n  rules:\n    - allow ssh\n    - drop ssh from 192.0.2.0/24\n",
		After:  "input:\n  default: drop\n  rules:\n    - drop ssh from 192.0.2.0/24\n    - allow ssh\n",
	},
	{
		Code: HiddenPart, Severities: []Severity{Warning, Remark}, Advice: true,
		What: "the rules above, or bans, decide a part of what a rule names",
		Why: "The rule says more than it does. A word of it is without effect, one of its services or one of its addresses: where the action above is another one, " +
			"this is a warning, for the rule says what is not so; else a remark. A remark too is a rule with the opposite action that cuts into the range " +
			"which a rule names, without being an exception within it; the text says which part is left. Exceptions above a wider rule are not found, " +
			"nor are rules about every service of some addresses: both are how such things are written. ICMP errors that a rule names in vain are harmless: they are decided before any rule.",
		Fix:    "Take the word out, or put the rule above.",
		Before: "input:\n  default: drop\n  rules:\n    - drop telnet\n    - allow [ssh, telnet] from 203.0.113.0/24\n",
		After:  "input:\n  default: drop\n  rules:\n    - allow [ssh, telnet] from 203.0.113.0/24\n    - drop telnet\n",
	},
	{
		Code: NeverMatches, Severities: []Severity{Error},
		What:   "no packet fits all words of a rule",
		Why:    "`in` and `from` name sides that no packet comes from at once, or the sets of a rule have no family in common.",
		Fix:    "Take one of the words out, or name the side that is meant.",
		Before: "zones:\n  wan: { interfaces: [eth0] }\n  lan: { interfaces: [br0] }\ninput:\n  default: drop\n  rules:\n    - allow ssh from lan in wan\n",
		After:  "zones:\n  wan: { interfaces: [eth0] }\n  lan: { interfaces: [br0] }\ninput:\n  default: drop\n  rules:\n    - allow ssh from lan\n",
	},
	{
		Code: EndedRule, Severities: []Severity{Warning},
		What:   "the end of a rule is past",
		Why:    "A rule with `until` matches before that moment. From then on it only makes the policy longer.",
		Fix:    "Remove it, or say a later moment.",
		Before: "input:\n  default: drop\n  rules:\n    - allow ssh from 203.0.113.7 until 2020-01-31T18:00:00Z\n",
		After:  "input:\n  default: drop\n  rules:\n    - allow ssh from 203.0.113.7 until 2100-01-31T18:00:00Z\n",
	},
	{
		Code: AlwaysPasses, Severities: []Severity{Error, Warning},
		What:   "a rule is about ICMP errors, which are decided before any rule",
		Why:    "Without them path MTU discovery breaks, and connections hang once packets are large (RFC 4890). So those about known connections pass, the others are dropped, and no rule is asked; `drop icmp` is harmless. `tracking: { icmp-errors: all }` lets all of them pass.",
		Fix:    "Remove the rule.",
		Before: "input:\n  default: drop\n  rules:\n    - drop icmp time-exceeded\n    - allow ssh from 203.0.113.0/24\n",
		After:  "input:\n  default: drop\n  rules:\n    - allow ssh from 203.0.113.0/24\n",
	},
	{
		Code: BannedRule, Severities: []Severity{Error, Warning},
		What:   "all that a rule is about is banned",
		Why:    "Bans are asked before any rule. A warning in a file that is included with `only`, since the ban is not its own.",
		Fix:    "Take the addresses out of the ban, or add them to `never-ban`.",
		Before: "ban: [192.0.2.0/24]\ninput:\n  default: drop\n  rules:\n    - allow ssh from 192.0.2.7\n",
		After:  "ban: [192.0.2.0/24]\nnever-ban: [192.0.2.7]\ninput:\n  default: drop\n  rules:\n    - allow ssh from 192.0.2.7\n",
	},
	{
		Code: RedundantRule, Severities: []Severity{Remark}, Advice: true,
		What: "without a rule every packet has the same fate",
		Why: "What comes to it is decided in the same way by the rules below, or by the default. The longer a policy, the more of it is not read. " +
			"Rules with a limit, a bound or a log do more than decide and are never found; neither are rules that a downloaded list or country data stand in for, which change, " +
			"nor those that also let pass the answers of a service without tracking.",
		Fix:    "Remove it. Its packets are then counted by the rule that stands in for it.",
		Before: "input:\n  default: drop\n  rules:\n    - allow http from 203.0.113.0/24\n    - allow http\n",
		After:  "input:\n  default: drop\n  rules:\n    - allow http\n",
	},
	{
		Code: LintComment, Severities: []Severity{Error, Remark}, Advice: true,
		What:   "a comment allows what it cannot",
		Why:    "The code is unknown, the reason is missing, or what is found there is an error: then this is an error too. A comment that allows nothing is remarked on, since it would hide the next finding.",
		Fix:    "Write `# lint: allow CODE REASON`, or remove it.",
		Before: "input:\n  default: drop\n  rules:\n    - allow ssh # lint: allow open-managements we know\n",
		After:  "input:\n  default: drop\n  rules:\n    - allow ssh # lint: allow open-management we know\n",
	},
}

var explainSets = []Explanation{
	{
		Code: EmptySet, Severities: []Severity{Error, Warning, Remark},
		What: "a set holds no address",
		Why: "A rule with it matches nothing. A warning where its exceptions took all addresses out or a rule uses an empty file or list; " +
			"a remark where only a ban uses it.",
		Fix:    "Give it an address, or remove it.",
		Before: "sets:\n  office: []\ninput:\n  default: drop\n  rules:\n    - allow ssh from office\n",
		After:  "sets:\n  office: [203.0.113.0/24]\ninput:\n  default: drop\n  rules:\n    - allow ssh from office\n",
	},
	{
		Code: OneFamily, Severities: []Severity{Warning},
		What:   "a set of one family leaves the other one open",
		Why:    "A rule closes something for the addresses of a set that has no IPv6 address, and IPv6 stays open below; or `not SET` allows all of the other family.",
		Fix:    "Add addresses of the other family, or write the family into the rule.",
		Before: "sets:\n  scanners: [192.0.2.0/24]\ninput:\n  default: drop\n  rules:\n    - drop http from scanners\n    - allow http\n",
		After:  "sets:\n  scanners: [192.0.2.0/24, \"2001:db8:bad::/48\"]\ninput:\n  default: drop\n  rules:\n    - drop http from scanners\n    - allow http\n",
	},
	{
		Code: RedundantElement, Severities: []Severity{Remark}, Advice: true,
		What: "an entry of a list says nothing new",
		Why: "The shorter a list, the more of it is read. An entry is a double, or within another entry, set or service of the same list; an exception takes nothing out; the exceptions take all of an entry out again. " +
			"Of set files one finding sums up. What a downloaded list or country data hold is not counted, since it changes: an office that happens to be in Europe today is not redundant.",
		Fix:    "Take it out.",
		Before: "sets:\n  office: [203.0.113.0/24, 203.0.113.7]\ninput:\n  default: drop\n  rules:\n    - allow ssh from office\n",
		After:  "sets:\n  office: [203.0.113.0/24]\ninput:\n  default: drop\n  rules:\n    - allow ssh from office\n",
	},
	{
		Code: UnusedName, Severities: []Severity{Remark}, Advice: true,
		What:   "nothing uses a set, a zone or a service",
		Why:    "It is left over, or a rule that should name it is missing. Sets that only unused sets are made of count as unused.",
		Fix:    "Remove it, or use it.",
		Before: "sets:\n  office: [203.0.113.0/24]\n  old-office: [192.0.2.0/24]\ninput:\n  default: drop\n  rules:\n    - allow ssh from office\n",
		After:  "sets:\n  office: [203.0.113.0/24]\ninput:\n  default: drop\n  rules:\n    - allow ssh from office\n",
	},
}

var explainTracking = []Explanation{
	{
		Code: BypassNAT, Severities: []Severity{Error, Remark},
		What: "packets that bypass tracking are to be rewritten",
		Why: "What is not tracked is not rewritten: a redirect, a map with state or a published container port would not be reached any more. " +
			"A remark where another tool masquerades: it may leave a client a port that bypasses tracking here, and the answers stay with this host.",
		Fix:    "Take the service out of bypass, or give the bypass an address of its own: `SERVICE to ADDRESS`.",
		Before: "zones:\n  wan: { interfaces: [default-route] }\ntracking:\n  bypass: [http]\ninput:\n  default: drop\n  rules:\n    - allow http\nnat:\n  - redirect http in wan to 10.20.0.5\n",
		After:  "zones:\n  wan: { interfaces: [default-route] }\ninput:\n  default: drop\n  rules:\n    - allow http\nnat:\n  - redirect http in wan to 10.20.0.5\n",
	},
	{
		Code: BypassEphemeral, Severities: []Severity{Error, Warning},
		What:   "a bypass covers ports that the host asks from",
		Why:    "The host uses these ports for its own connections, whose answers would come in untracked, belong to no connection, and be decided by rules. A warning where the host is not known.",
		Fix:    "Narrow the service's ports, or move `net.ipv4.ip_local_port_range` away from them.",
		Before: "services:\n  game: udp/30000-40000\ntracking:\n  bypass: [game]\ninput:\n  default: drop\n  rules:\n    - allow game\n",
		After:  "services:\n  game: udp/30000-30100\ntracking:\n  bypass: [game]\ninput:\n  default: drop\n  rules:\n    - allow game\n",
	},
	{
		Code: BypassConnections, Severities: []Severity{Error},
		What:   "connections are counted that are not tracked",
		Why:    "The kernel knows none of them, so `max N connections` bounds nothing.",
		Fix:    "Take the service out of bypass, or bound it by a limit.",
		Before: "tracking:\n  bypass: [http]\ninput:\n  default: drop\n  rules:\n    - allow http max 20 connections per source\n",
		After:  "tracking:\n  bypass: [http]\ninput:\n  default: drop\n  rules:\n    - allow http\n",
	},
	{
		Code: BypassLimit, Severities: []Severity{Warning},
		What:   "a limit counts packets and not flows",
		Why:    "The service bypasses tracking, so every packet is new.",
		Fix:    "Choose the limit for packets, or take the service out of bypass.",
		Before: "tracking:\n  bypass: [http]\ninput:\n  default: drop\n  rules:\n    - allow http limit 100/second per source\n",
		After:  "input:\n  default: drop\n  rules:\n    - allow http limit 100/second per source\n",
	},
	{
		Code: BypassUnused, Severities: []Severity{Remark}, Advice: true,
		What:   "a service bypasses tracking, and input refuses all of it",
		Why:    "The bypass does nothing but let resets and strays of that port come to the rules. Often the rule was forgotten, or names another service.",
		Fix:    "Remove the bypass, or allow the service in input.",
		Before: "tracking:\n  bypass: [https]\ninput:\n  default: drop\n  rules:\n    - allow http\n",
		After:  "tracking:\n  bypass: [http]\ninput:\n  default: drop\n  rules:\n    - allow http\n",
	},
	{
		Code: NoWayBack, Severities: []Severity{Warning},
		What: "nothing lets the answers of untracked traffic through",
		Why: "Untracked traffic has no replies, so each way needs a rule. A rule with ports is mirrored; one without, as here, is not, since nothing would tell its answers from other traffic. " +
			"The traffic bypasses tracking or is mapped without state.",
		Fix:    "Name the ports in the rule, or add the rule of the way back that the hint writes.",
		Before: "tracking:\n  bypass: [http]\ninput:\n  default: drop\n  rules:\n    - allow any from 203.0.113.0/24\noutput:\n  default: drop\n  rules:\n    - allow [dns, ntp, https, dhcp]\n",
		After:  "tracking:\n  bypass: [http]\ninput:\n  default: drop\n  rules:\n    - allow http from 203.0.113.0/24\noutput:\n  default: drop\n  rules:\n    - allow [dns, ntp, https, dhcp]\n",
	},
}
