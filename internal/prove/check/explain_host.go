package check

var explainAnswers = []Explanation{
	{
		Code: RepliesCut, Severities: []Severity{Warning, Remark},
		What: "rules decide on answers to the host's own requests",
		Why: "Such answers come in as if nobody had asked: a rule that blocks their country, or the default, drops them, and every request waits for its time-out. " +
			"Other answers pass by the state of the connection, before any rule, whichever addresses the rules block. Three things take that away. " +
			"A program that asks from the port of a service which bypasses tracking (ntpd from 123, WireGuard, IPsec, SIP) makes no entry in the connection table. " +
			"A map without state rewrites whatever comes in for its outer addresses, the host's own among them. And in front of such a map the host does not reach what is behind it. " +
			"Found are the peers whom programs ask now from such a port, those of WireGuard, and with lint the configured servers, as far as their answers would be refused; where the peers are not known, that they might be. Bans have codes of their own.",
		Fix:    "Take the service out of bypass, or allow the servers in input; give a map addresses that are not the host's.",
		Before: "sets:\n  lan: [10.20.0.0/16]\ntracking:\n  bypass: [ntp]\ninput:\n  default: drop\n  rules:\n    - allow ntp from lan\n",
		After:  "sets:\n  lan: [10.20.0.0/16]\ninput:\n  default: drop\n  rules:\n    - allow ntp from lan\n",
	},
	{
		Code: RequestsCut, Severities: []Severity{Warning}, Advice: true,
		What: "output refuses what the host asks by itself",
		Why: "The host finds no names, gets no updates or has a clock that drifts, and what asks waits for its time-out. " +
			"`drop any to not europe` in output is the classic one. Asked are name servers from resolv.conf (those behind systemd-resolved too), " +
			"package mirrors from the configuration of apt, dnf, zypper, pacman and apk, and time servers from that of chrony, systemd-timesyncd, ntpd and OpenNTPD. " +
			"Found where no user's request to one of them would pass.",
		Fix:    "Allow it in output, above what refuses it.",
		Before: "output:\n  default: drop\n  rules:\n    - allow [dns, ntp, dhcp]\n",
		After:  "output:\n  default: drop\n  rules:\n    - allow [dns, ntp, dhcp]\n    - allow https to 192.0.2.80\n",
	},
	{
		Code: ForgedBan, Severities: []Severity{Warning}, Advice: true,
		What: "a limit bans whom others name as the source",
		Why: "What is no TCP, bypasses tracking or is refused completes no handshake, so its first packet counts, which anybody can send with a forged source address: a few of them in the name of the host's package mirror, " +
			"and the host begins no flow to it until the ban ends. Name servers, routers and whoever is logged in are exempt.",
		Fix:    "Add what the host asks to `never-ban`.",
		Before: "input:\n  default: drop\n  rules:\n    - allow udp/5060 limit 6/30s per source then ban 10m\n",
		After:  "never-ban: [192.0.2.80, 192.0.2.123]\ninput:\n  default: drop\n  rules:\n    - allow udp/5060 limit 6/30s per source then ban 10m\n",
	},
}

var explainBans = []Explanation{
	{
		Code: UnprovenBan, Severities: []Severity{Remark},
		What: "a limit bans by packets whose source nothing proves",
		Why: "Where a rule allows TCP, a limit per source counts handshakes that were completed, so the source is real. UDP, ICMP, what bypasses tracking and what is refused complete none: " +
			"their first packet counts, and whoever can forge source addresses chooses who is banned, a customer or the whole /64 of one. " +
			"Flows that live go on, and whoever is logged in, routers and name servers are exempt. Without `then ban`, what is forged uses up the limit of the source that it names, no more.",
		Fix:    "Leave `then ban` out, or add to `never-ban` who must not be banned.",
		Before: "input:\n  default: drop\n  rules:\n    - allow udp/5060 limit 6/30s per source then ban 10m\n",
		After:  "input:\n  default: drop\n  rules:\n    - allow udp/5060 limit 6/30s per source\n",
	},
	{
		Code: UnprovenPlaces, Severities: []Severity{Remark},
		What: "connections of a source are counted that it need not have begun",
		Why: "Of TCP a connection takes a place of its source when its handshake is completed, so the source is real. Other protocols complete none, and more than 64 places of a source are not kept: " +
			"there the entries of the connection table are counted, and whoever forges the source address makes such.",
		Fix:    "Let a rule with TCP alone count connections, 64 at the most, and bound other protocols by `limit … per source`, which forgets sooner.",
		Before: "input:\n  default: drop\n  rules:\n    - allow dns max 20 connections per source\n",
		After:  "input:\n  default: drop\n  rules:\n    - allow tcp/53 max 20 connections per source\n    - allow udp/53 limit 50/second per source\n",
	},
	{
		Code: BanManagement, Severities: []Severity{Warning},
		What:   "a ban covers somebody who is logged in over ssh",
		Why:    "Bans hold for flows that exist.",
		Fix:    "Add the address to `never-ban`.",
		Before: "ban: [203.0.113.0/24]\ninput:\n  default: drop\n",
		After:  "ban: [203.0.113.0/24]\nnever-ban: [203.0.113.9]\ninput:\n  default: drop\n",
	},
	{
		Code: BanResolver, Severities: []Severity{Warning},
		What:   "a ban covers a name server that the host asks",
		Why:    "A ban holds for packets from and to its addresses, answers included: every look-up would wait for its time-out.",
		Fix:    "Add it to `never-ban`, or ask another name server.",
		Before: "ban: [192.0.2.0/26]\ninput:\n  default: drop\n",
		After:  "ban: [192.0.2.0/26]\nnever-ban: [192.0.2.53]\ninput:\n  default: drop\n",
	},
	{
		Code: BanServer, Severities: []Severity{Warning}, Advice: true,
		What:   "a ban covers a package mirror or time server that the host asks",
		Why:    "The host gets no updates, or its clock drifts, and nothing says why.",
		Fix:    "Add it to `never-ban`, or ask another one.",
		Before: "ban: [192.0.2.64/26]\ninput:\n  default: drop\n",
		After:  "ban: [192.0.2.64/26]\nnever-ban: [192.0.2.80, 192.0.2.123]\ninput:\n  default: drop\n",
	},
	{
		Code: BanRouter, Severities: []Severity{Warning}, Advice: true,
		What:   "a ban covers the router of the default route",
		Why:    "What it forwards still passes, but the ICMP errors that it sends itself are dropped, and path MTU discovery needs them: nothing else in a policy drops an ICMP error about a known connection.",
		Fix:    "Add it to `never-ban`.",
		Before: "ban: [198.51.100.128/25]\ninput:\n  default: drop\n",
		After:  "ban: [198.51.100.128/25]\nnever-ban: [198.51.100.254]\ninput:\n  default: drop\n",
	},
	{
		Code: BanNetwork, Severities: []Severity{Warning}, Advice: true,
		What:   "a ban holds a whole network that the host is in, or that a zone is",
		Why:    "Lists of networks that should not appear on the internet hold the private ones, and so the host's own. Single neighbours may be banned.",
		Fix:    "Take it out of the list, or add the network to `never-ban`.",
		Before: "ban: [10.0.0.0/8]\ninput:\n  default: drop\n",
		After:  "ban: [10.0.0.0/8]\nnever-ban: [10.20.0.0/16, 10.30.0.0/24]\ninput:\n  default: drop\n",
	},
	{
		Code: BanCountries, Severities: []Severity{Remark}, Advice: true,
		What:   "countries are banned, and not refused by a rule",
		Why:    "A ban holds for every packet: for answers to what the host asks in those countries, and for the ICMP errors of routers there, which path MTU discovery needs on the way to somebody else. A rule of input is asked for new flows alone.",
		Fix:    "Write a rule: `drop any from SET` in input, above the others.",
		Before: "sets:\n  far: { countries: [AQ] }\nban: [far]\ninput:\n  default: drop\n  rules:\n    - allow http\n",
		After:  "sets:\n  far: { countries: [AQ] }\ninput:\n  default: drop\n  rules:\n    - drop any from far\n    - allow http\n",
	},
	{
		Code: BanOwn, Severities: []Severity{Warning},
		What:   "a ban covers an address of the host",
		Why:    "Those are never banned, so the list says what is not so, or is not what it should be.",
		Fix:    "Take it out of the list.",
		Before: "ban: [198.51.100.0/30]\ninput:\n  default: drop\n",
		After:  "ban: [198.51.100.2/31]\ninput:\n  default: drop\n",
	},
	{
		Code: NeverBanned, Severities: []Severity{Warning, Remark},
		What:   "never-ban undoes a ban",
		Why:    "A warning where it spares all of a ban, a remark where it spares a part.",
		Fix:    "Take the address out of one of the two.",
		Before: "ban: [203.0.113.64/26]\nnever-ban: [203.0.113.0/24]\ninput:\n  default: drop\n",
		After:  "never-ban: [203.0.113.0/24]\ninput:\n  default: drop\n",
	},
}

var explainHost = []Explanation{
	{
		Code: BridgePort, Severities: []Severity{Error, Warning},
		What:   "a zone names a port of a bridge",
		Why:    "Routing, and with it every rule, sees the bridge and never its ports. A warning for a wildcard that fits ports.",
		Fix:    "Name the bridge.",
		Before: "zones:\n  vms: { interfaces: [tap0] }\ninput:\n  default: drop\n  rules:\n    - allow dns from vms\n",
		After:  "zones:\n  vms: { interfaces: [br0] }\ninput:\n  default: drop\n  rules:\n    - allow dns from vms\n",
	},
	{
		Code: UnknownInterface, Severities: []Severity{Warning},
		What:   "a zone names an interface that the host does not have now",
		Why:    "Rules with the zone match nothing until there is one of that name.",
		Fix:    "Write the name that was meant.",
		Before: "zones:\n  vms: { interfaces: [br1] }\ninput:\n  default: drop\n  rules:\n    - allow dns from vms\n",
		After:  "zones:\n  vms: { interfaces: [br0] }\ninput:\n  default: drop\n  rules:\n    - allow dns from vms\n",
	},
	{
		Code: ForeignAddress, Severities: []Severity{Error, Warning},
		What:   "an address is not this host's where only those occur",
		Why:    "`to` in input, `from` in output or the address of a bypass. A warning where programs may bind to foreign addresses (`net.ipv4.ip_nonlocal_bind`).",
		Fix:    "Put the rule under forward, or write the host's address.",
		Before: "input:\n  default: drop\n  rules:\n    - allow http to 192.0.2.7\n",
		After:  "input:\n  default: drop\n  rules:\n    - allow http to 198.51.100.1\n",
	},
	{
		Code: HostNeeds, Severities: []Severity{Remark},
		What:   "output refuses what a host sends without being asked",
		Why:    "A host that cannot renew its lease loses its address hours later, when nobody thinks of the firewall any more. Output refuses by default and no rule is about renewals by DHCP (udp from 68 to 67), DHCPv6 (udp from 546 to 547) or IGMP.",
		Fix:    "Add the rules that the hint writes, or refuse what is not used by a rule of its own.",
		Before: "output:\n  default: drop\n  rules:\n    - allow [dns, ntp, https]\n",
		After:  "output:\n  default: drop\n  rules:\n    - allow [dns, ntp, https]\n    - allow [dhcp, dhcpv6, proto/2]\n",
	},
	{
		Code: MasqueradeIPv6, Severities: []Severity{Remark},
		What:   "a masquerade covers IPv6 too",
		Why:    "Where IPv6 is routed, hiding it behind one address is seldom meant.",
		Fix:    "Write `ipv4` at its end.",
		Before: "zones:\n  wan: { interfaces: [default-route] }\nnat:\n  - masquerade out wan\n",
		After:  "zones:\n  wan: { interfaces: [default-route] }\nnat:\n  - masquerade out wan ipv4\n",
	},
	{
		Code: NoClamp, Severities: []Severity{Remark}, Advice: true,
		What: "TCP passes into a link with smaller packets, and nothing lowers its segment size",
		Why: "The ICMP errors of path MTU discovery pass Sluice, in every section. Networks on the way that drop them are common, and then large transfers hang. " +
			"Found where forward allows TCP between two interfaces of different packet size, one of them a tunnel for example, and no `clamp mss` is about it. " +
			"Of maps without state as well: they leave the addresses within ICMP errors as they are, so that senders do not recognise them.",
		Fix:    "Add `clamp mss out ZONE` to forward.",
		Before: "zones:\n  lan: { interfaces: [br0] }\n  tunnel: { interfaces: [wg0] }\nforward:\n  default: drop\n  rules:\n    - allow any from lan to tunnel\n",
		After:  "zones:\n  lan: { interfaces: [br0] }\n  tunnel: { interfaces: [wg0] }\nforward:\n  default: drop\n  rules:\n    - clamp mss from lan to tunnel\n    - allow any from lan to tunnel\n",
	},
}

var explainOpen = []Explanation{
	{
		Code: OpenManagement, Severities: []Severity{Warning}, Advice: true,
		What: "a port of management is open to everybody on the internet",
		Why: "Scanners try such ports within hours, and behind some of them nobody asks for a password. They are ssh, remote desktops, databases, the API of Docker, kubelets and more; docs/reference/lint.md has the table. Found where at least half of the internet's addresses of a family may open a new flow to it, " +
			"by the interface of the default route, counted after all rules above. Of a published rule it is also found where a redirect, or another tool, leads the port to one of management. Where everybody is asked for a password, a limit or a bound per source is enough.",
		Fix:    "Say from whom, or add a limit per source.",
		Before: "input:\n  default: drop\n  rules:\n    - allow [http, ssh, redis]\n",
		After:  "sets:\n  office: [203.0.113.0/24]\ninput:\n  default: drop\n  rules:\n    - allow http\n    - allow redis from office\n    - allow ssh limit 6/30s per source\n",
	},
	{
		Code: DefaultAllow, Severities: []Severity{Warning, Remark}, Advice: true,
		What:   "a section lets through whatever no rule refuses",
		Why:    "Of input, every program that listens tomorrow is open; of forward, every machine behind a router. For output, `allow` is usual. Of forward a remark where nothing is known of the host.",
		Fix:    "Write `default: drop`, and a rule for each service.",
		Before: "input:\n  default: allow\n  rules:\n    - drop tcp/3306\n",
		After:  "input:\n  default: drop\n  rules:\n    - allow [http, https]\n",
	},
	{
		Code: NotPoliced, Severities: []Severity{Warning, Remark}, Advice: true,
		What: "a section is left out, and packets pass there",
		Why: "A section that is left out is not policed. A warning for forward on a host that forwards packets: machines and containers behind it are open, and ports that other tools publish too. " +
			"A warning for input where no section is there at all, which leaves bans alone, and a remark where another one is policed.",
		Fix:    "Add the section with `default: drop`.",
		Before: "input:\n  default: drop\n  rules:\n    - allow http\n",
		After:  "input:\n  default: drop\n  rules:\n    - allow http\nforward:\n  default: drop\n",
	},
	{
		Code: PublishedClosed, Severities: []Severity{Remark}, Advice: true,
		What:   "another tool publishes a port that no rule lets through",
		Why:    "Docker and others rewrite the destination of what comes in for such a port; forward then refuses it, since NAT permits nothing. Found where nobody at all gets through.",
		Fix:    "Add `allow published PORT from WHO` to forward, or publish it on loopback alone.",
		Before: "zones:\n  wan: { interfaces: [default-route] }\n  lan: { interfaces: [br0] }\nforward:\n  default: drop\n  rules:\n    - allow any from lan to wan\n",
		After:  "zones:\n  wan: { interfaces: [default-route] }\n  lan: { interfaces: [br0] }\nforward:\n  default: drop\n  rules:\n    - allow any from lan to wan\n    - allow published tcp/8080\n",
	},
	{
		Code: RedirectClosed, Severities: []Severity{Warning}, Advice: true,
		What:   "a redirect that no rule lets through",
		Why:    "NAT permits nothing: what a redirect leads to another machine is decided by forward, and what it leads to this host by input, by the addresses behind the rewriting. Found where nobody at all gets through.",
		Fix:    "Add `allow published PORT from WHO` to that section.",
		Before: "zones:\n  wan: { interfaces: [default-route] }\nforward:\n  default: drop\nnat:\n  - redirect tcp/8443 in wan to 10.20.0.5:443\n",
		After:  "zones:\n  wan: { interfaces: [default-route] }\nforward:\n  default: drop\n  rules:\n    - allow published tcp/8443\nnat:\n  - redirect tcp/8443 in wan to 10.20.0.5:443\n",
	},
	{
		Code: InputPublished, Severities: []Severity{Warning}, Advice: true,
		What:   "a rule of input for a port that Docker or another tool has published",
		Why:    "The tool rewrites the destination before any section is asked, so such packets are forwarded and never come to input: the rule closes nothing and opens nothing. Published for one family alone, it still decides on the other.",
		Fix:    "Write it in forward with `published`.",
		Before: "input:\n  default: drop\n  rules:\n    - drop tcp/8080\n    - allow http\n",
		After:  "input:\n  default: drop\n  rules:\n    - allow http\nforward:\n  default: drop\n  rules:\n    - drop published tcp/8080\n",
	},
	{
		Code: OtherFirewall, Severities: []Severity{Warning}, Advice: true,
		What:   "another firewall starts with the host",
		Why:    "Two firewalls both decide: what either drops is dropped. And nftables.service, as distributions have it, flushes all rules when it starts and when it stops, those of others too. Found are ufw, firewalld, nftables, iptables and others that systemd starts at boot.",
		Fix:    "Disable it with the command that the finding says; or, where it is meant to run beside, allow it.",
		Before: "input:\n  default: drop\n",
		After:  "input: # lint: allow other-firewall its rules are loaded beside on purpose\n  default: drop\n",
	},
	{
		Code: IPv6Open, Severities: []Severity{Remark}, Advice: true,
		What:   "a rule closes something for IPv4, and over IPv6 it stays open",
		Why:    "It says `ipv4` where it refuses, and rules below or the default let the same through over IPv6. A rule whose sets hold no IPv6 address may say it to be clear, and is not found.",
		Fix:    "Leave `ipv4` out.",
		Before: "output:\n  default: allow\n  rules:\n    - reject smtp ipv4\n",
		After:  "output:\n  default: allow\n  rules:\n    - reject smtp\n",
	},
	{
		Code: EveryIPv4, Severities: []Severity{Warning, Remark}, Advice: true,
		What:   "0.0.0.0/0 or ::/0 stands for everybody, and is one family alone",
		Why:    "A rule without `from` is about everybody. A warning where it refuses and the other family stays open; a remark where it allows.",
		Fix:    "Leave the addresses out.",
		Before: "input:\n  default: drop\n  rules:\n    - allow http from 0.0.0.0/0\n",
		After:  "input:\n  default: drop\n  rules:\n    - allow http\n",
	},
}
