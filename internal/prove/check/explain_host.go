package check

var explainAnswers = []Explanation{
	{
		Code: RepliesCut, Severities: []Severity{Warning, Remark},
		What: "rules decide the answers to the host's own requests",
		Why: "Such answers arrive as if nobody had asked for them: a rule that blocks their country, or the default, drops them, and every request waits for its timeout. " +
			"Other answers are allowed by the state of their connection, before any rule, whichever addresses the rules block. There are three exceptions. " +
			"A program that sends from the port of a service which bypasses tracking (ntpd from 123, WireGuard, IPsec, SIP) makes no entry in the connection table. " +
			"A stateless map rewrites everything that comes in for its outer addresses, even if they are the host's own. And the host cannot reach what is behind such a map by its outer address. " +
			"Reported are the peers that programs use from such a port now, those of WireGuard and, by lint, the configured servers, if their answers would be refused; if the peers are not known, that they might be. " +
			"Bans have codes of their own.",
		Fix:    "Remove the service from bypass, or allow the servers in input. Give a map addresses that are not the host's.",
		Before: "sets:\n  lan: [10.20.0.0/16]\ntracking:\n  bypass: [ntp]\ninput:\n  default: drop\n  rules:\n    - allow ntp from lan\n",
		After:  "sets:\n  lan: [10.20.0.0/16]\ninput:\n  default: drop\n  rules:\n    - allow ntp from lan\n",
	},
	{
		Code: RequestsCut, Severities: []Severity{Warning}, Advice: true,
		What: "output refuses requests of the host itself",
		Why: "The host cannot resolve names, gets no updates or its clock drifts, and programs wait for timeouts. `drop any to not europe` in output is the classic case. " +
			"Checked are the name servers from resolv.conf (also those behind systemd-resolved), the package mirrors from the configuration of apt, dnf, zypper, pacman and apk, and the time servers of chrony, systemd-timesyncd, ntpd and OpenNTPD. " +
			"Reported if no user's request to one of them would be allowed.",
		Fix:    "Allow it in output, above the rule that refuses it.",
		Before: "output:\n  default: drop\n  rules:\n    - allow [dns, ntp, dhcp]\n",
		After:  "output:\n  default: drop\n  rules:\n    - allow [dns, ntp, dhcp]\n    - allow https to 192.0.2.80\n",
	},
	{
		Code: ForgedBan, Severities: []Severity{Warning}, Advice: true,
		What: "by forging source addresses, others can ban servers that the host needs",
		Why: "Packets that are not TCP, bypass tracking or are refused complete no handshake, so the first packet counts, and anybody can send it with a forged source address. " +
			"A few packets in the name of the host's package mirror, and the host starts no flow to it until the ban ends. Name servers, routers and whoever is logged in are exempt.",
		Fix:    "Add the servers that the host uses to `never-ban`.",
		Before: "input:\n  default: drop\n  rules:\n    - allow udp/5060 limit 6/30s per source then ban 10m\n",
		After:  "never-ban: [192.0.2.80, 192.0.2.123]\ninput:\n  default: drop\n  rules:\n    - allow udp/5060 limit 6/30s per source then ban 10m\n",
	},
}

var explainBans = []Explanation{
	{
		Code: UnprovenBan, Severities: []Severity{Remark},
		What: "a limit bans by packets whose source is not proved",
		Why: "UDP, ICMP, packets that bypass tracking and packets that are refused complete no handshake: the first packet counts, and whoever can forge source addresses chooses who is banned, a customer or a whole /64. " +
			"If a rule allows TCP, a limit per source counts completed handshakes, so there the source is real. Existing flows go on, and whoever is logged in, routers and name servers are exempt. " +
			"Without `then ban`, a forged packet only uses up the limit of the source that it names.",
		Fix:    "Remove `then ban`, or add those who must not be banned to `never-ban`.",
		Before: "input:\n  default: drop\n  rules:\n    - allow udp/5060 limit 6/30s per source then ban 10m\n",
		After:  "input:\n  default: drop\n  rules:\n    - allow udp/5060 limit 6/30s per source\n",
	},
	{
		Code: UnprovenPlaces, Severities: []Severity{Remark},
		What: "connections are counted for a source that may not have opened them",
		Why: "Whoever forges a source address can use up the connections of that source. A TCP connection counts for its source once its handshake is completed, so the source is real. " +
			"Other protocols have no handshake, and for more than 64 connections per source completed handshakes are not recorded: there the entries of the connection table are counted, and forged packets make such entries too.",
		Fix:    "Count connections in a rule for TCP only, at most 64. Limit other protocols by `limit … per source`, which recovers sooner.",
		Before: "input:\n  default: drop\n  rules:\n    - allow dns max 20 connections per source\n",
		After:  "input:\n  default: drop\n  rules:\n    - allow tcp/53 max 20 connections per source\n    - allow udp/53 limit 50/second per source\n",
	},
	{
		Code: BanManagement, Severities: []Severity{Warning},
		What:   "a ban covers somebody who is logged in over ssh",
		Why:    "Bans apply to existing flows too.",
		Fix:    "Add the address to `never-ban`.",
		Before: "ban: [203.0.113.0/24]\ninput:\n  default: drop\n",
		After:  "ban: [203.0.113.0/24]\nnever-ban: [203.0.113.9]\ninput:\n  default: drop\n",
	},
	{
		Code: BanResolver, Severities: []Severity{Warning},
		What:   "a ban covers a name server that the host uses",
		Why:    "A ban drops packets from and to its addresses, answers included: every look-up would wait for its timeout.",
		Fix:    "Add it to `never-ban`, or use another name server.",
		Before: "ban: [192.0.2.0/26]\ninput:\n  default: drop\n",
		After:  "ban: [192.0.2.0/26]\nnever-ban: [192.0.2.53]\ninput:\n  default: drop\n",
	},
	{
		Code: BanServer, Severities: []Severity{Warning}, Advice: true,
		What:   "a ban covers a package mirror or time server that the host uses",
		Why:    "The host gets no updates, or its clock drifts, and nothing shows why.",
		Fix:    "Add it to `never-ban`, or use another server.",
		Before: "ban: [192.0.2.64/26]\ninput:\n  default: drop\n",
		After:  "ban: [192.0.2.64/26]\nnever-ban: [192.0.2.80, 192.0.2.123]\ninput:\n  default: drop\n",
	},
	{
		Code: BanRouter, Severities: []Severity{Warning}, Advice: true,
		What:   "a ban covers the router of the default route",
		Why:    "The router's forwarded packets still arrive, but the ICMP errors that it sends itself are dropped, and path MTU discovery needs them. Nothing else in a policy drops an ICMP error about a known connection.",
		Fix:    "Add it to `never-ban`.",
		Before: "ban: [198.51.100.128/25]\ninput:\n  default: drop\n",
		After:  "ban: [198.51.100.128/25]\nnever-ban: [198.51.100.254]\ninput:\n  default: drop\n",
	},
	{
		Code: BanNetwork, Severities: []Severity{Warning}, Advice: true,
		What:   "a ban contains a whole network of the host or of a zone",
		Why:    "Lists of networks that should not appear on the internet contain the private ones, and so the host's own. Banning single neighbours is fine.",
		Fix:    "Remove it from the list, or add the network to `never-ban`.",
		Before: "ban: [10.0.0.0/8]\ninput:\n  default: drop\n",
		After:  "ban: [10.0.0.0/8]\nnever-ban: [10.20.0.0/16, 10.30.0.0/24]\ninput:\n  default: drop\n",
	},
	{
		Code: BanCountries, Severities: []Severity{Remark}, Advice: true,
		What: "countries are banned instead of refused by a rule",
		Why: "A ban applies to every packet: to answers from those countries to the host's own requests, and to ICMP errors of routers there, which path MTU discovery needs even on the way to other countries. " +
			"Rules of input are evaluated for new flows only.",
		Fix:    "Write a rule: `drop any from SET` in input, above the others.",
		Before: "sets:\n  far: { countries: [AQ] }\nban: [far]\ninput:\n  default: drop\n  rules:\n    - allow http\n",
		After:  "sets:\n  far: { countries: [AQ] }\ninput:\n  default: drop\n  rules:\n    - drop any from far\n    - allow http\n",
	},
	{
		Code: BanOwn, Severities: []Severity{Warning},
		What:   "a ban covers an address of the host itself",
		Why:    "The host's own addresses are never banned, so the list has an effect that it does not show, or is the wrong list.",
		Fix:    "Remove it from the list.",
		Before: "ban: [198.51.100.0/30]\ninput:\n  default: drop\n",
		After:  "ban: [198.51.100.2/31]\ninput:\n  default: drop\n",
	},
	{
		Code: NeverBanned, Severities: []Severity{Warning, Remark},
		What:   "never-ban cancels a ban",
		Why:    "The policy reads as if these addresses were banned. It is a warning if never-ban covers all of the ban, a remark if it covers a part.",
		Fix:    "Remove the address from one of the two.",
		Before: "ban: [203.0.113.64/26]\nnever-ban: [203.0.113.0/24]\ninput:\n  default: drop\n",
		After:  "never-ban: [203.0.113.0/24]\ninput:\n  default: drop\n",
	},
}

var explainHost = []Explanation{
	{
		Code: BridgePort, Severities: []Severity{Error, Warning},
		What:   "a zone names a port of a bridge",
		Why:    "Routing, and so every rule, sees the bridge and never its ports. It is a warning for a wildcard that matches ports.",
		Fix:    "Name the bridge.",
		Before: "zones:\n  vms: { interfaces: [tap0] }\ninput:\n  default: drop\n  rules:\n    - allow dns from vms\n",
		After:  "zones:\n  vms: { interfaces: [br0] }\ninput:\n  default: drop\n  rules:\n    - allow dns from vms\n",
	},
	{
		Code: UnknownInterface, Severities: []Severity{Warning},
		What:   "a zone names an interface that the host does not have now",
		Why:    "Rules with this zone match nothing until there is an interface of that name.",
		Fix:    "Correct the name.",
		Before: "zones:\n  vms: { interfaces: [br1] }\ninput:\n  default: drop\n  rules:\n    - allow dns from vms\n",
		After:  "zones:\n  vms: { interfaces: [br0] }\ninput:\n  default: drop\n  rules:\n    - allow dns from vms\n",
	},
	{
		Code: ForeignAddress, Severities: []Severity{Error, Warning},
		What:   "an address is not the host's, in a place where only the host's addresses occur",
		Why:    "A rule with such an address matches nothing. This concerns `to` in input, `from` in output and the address of a bypass. It is a warning if programs may bind to other addresses (`net.ipv4.ip_nonlocal_bind`).",
		Fix:    "Move the rule to forward, or use an address of the host.",
		Before: "input:\n  default: drop\n  rules:\n    - allow http to 192.0.2.7\n",
		After:  "input:\n  default: drop\n  rules:\n    - allow http to 198.51.100.1\n",
	},
	{
		Code: HostNeeds, Severities: []Severity{Remark},
		What:   "output refuses packets that a host sends by itself",
		Why:    "A host that cannot renew its lease loses its address hours later, when nobody thinks of the firewall. Reported if output refuses by default and no rule covers renewals by DHCP (udp from 68 to 67), DHCPv6 (udp from 546 to 547) or IGMP.",
		Fix:    "Add the rules that the hint shows, or refuse the packets by a rule if the host does not need them.",
		Before: "output:\n  default: drop\n  rules:\n    - allow [dns, ntp, https]\n",
		After:  "output:\n  default: drop\n  rules:\n    - allow [dns, ntp, https]\n    - allow [dhcp, dhcpv6, proto/2]\n",
	},
	{
		Code: MasqueradeIPv6, Severities: []Severity{Remark},
		What:   "a masquerade covers IPv6 too",
		Why:    "If IPv6 is routed, hiding it behind one address is rarely intended.",
		Fix:    "Add `ipv4` at its end.",
		Before: "zones:\n  wan: { interfaces: [default-route] }\nnat:\n  - masquerade out wan\n",
		After:  "zones:\n  wan: { interfaces: [default-route] }\nnat:\n  - masquerade out wan ipv4\n",
	},
	{
		Code: NoClamp, Severities: []Severity{Remark}, Advice: true,
		What: "TCP is forwarded into a link with a smaller MTU, and its MSS is not clamped",
		Why: "Many networks drop the ICMP errors of path MTU discovery, and then large transfers hang. Sluice itself allows them in every section. " +
			"Reported if forward allows TCP between two interfaces of different MTU, for example a tunnel, without `clamp mss`. " +
			"Also reported for stateless maps: they do not rewrite the addresses inside ICMP errors, so senders do not recognise them.",
		Fix:    "Add `clamp mss out ZONE` to forward.",
		Before: "zones:\n  lan: { interfaces: [br0] }\n  tunnel: { interfaces: [wg0] }\nforward:\n  default: drop\n  rules:\n    - allow any from lan to tunnel\n",
		After:  "zones:\n  lan: { interfaces: [br0] }\n  tunnel: { interfaces: [wg0] }\nforward:\n  default: drop\n  rules:\n    - clamp mss from lan to tunnel\n    - allow any from lan to tunnel\n",
	},
}

var explainOpen = []Explanation{
	{
		Code: OpenManagement, Severities: []Severity{Warning}, Advice: true,
		What: "a management port is open to the whole internet",
		Why: "Scanners find such ports within hours, and some of these services need no password. " +
			"They are ssh, remote desktops, databases, the API of Docker, kubelets and more; docs/reference/lint.md has the table. " +
			"Reported if at least half of the internet's addresses of one family may open a new flow to the port by the interface of the default route, after all rules above. " +
			"For a published rule it is also reported if a redirect, or another tool, sends the port to a management port. " +
			"For services that always require a password, a limit per source or a bound on connections is enough.",
		Fix:    "Add `from WHO`, or a limit per source.",
		Before: "input:\n  default: drop\n  rules:\n    - allow [http, ssh, redis]\n",
		After:  "sets:\n  office: [203.0.113.0/24]\ninput:\n  default: drop\n  rules:\n    - allow http\n    - allow redis from office\n    - allow ssh limit 6/30s per source\n",
	},
	{
		Code: DefaultAllow, Severities: []Severity{Warning, Remark}, Advice: true,
		What:   "a section allows everything that no rule refuses",
		Why:    "In input, any program that starts listening is open; in forward, every machine behind the router is. For output, `allow` is usual. For forward it is a remark if nothing is known about the host.",
		Fix:    "Use `default: drop`, and add a rule for each service.",
		Before: "input:\n  default: allow\n  rules:\n    - drop tcp/3306\n",
		After:  "input:\n  default: drop\n  rules:\n    - allow [http, https]\n",
	},
	{
		Code: NotPoliced, Severities: []Severity{Warning, Remark}, Advice: true,
		What: "a section is missing, and its packets are allowed",
		Why: "Without its section, a hook is not filtered. It is a warning for forward on a host that forwards packets: machines and containers behind it are open, and so are ports that other tools publish. " +
			"It is a warning for input if the policy has no sections at all, only bans, and a remark if it has another one.",
		Fix:    "Add the section with `default: drop`.",
		Before: "input:\n  default: drop\n  rules:\n    - allow http\n",
		After:  "input:\n  default: drop\n  rules:\n    - allow http\nforward:\n  default: drop\n",
	},
	{
		Code: PublishedClosed, Severities: []Severity{Remark}, Advice: true,
		What:   "another tool publishes a port that no rule allows",
		Why:    "Docker and other tools rewrite the destination of packets to such a port. Forward then refuses them, since NAT allows nothing. Reported if nobody can reach the port.",
		Fix:    "Add `allow published PORT from WHO` to forward, or publish it on loopback only.",
		Before: "zones:\n  wan: { interfaces: [default-route] }\n  lan: { interfaces: [br0] }\nforward:\n  default: drop\n  rules:\n    - allow any from lan to wan\n",
		After:  "zones:\n  wan: { interfaces: [default-route] }\n  lan: { interfaces: [br0] }\nforward:\n  default: drop\n  rules:\n    - allow any from lan to wan\n    - allow published tcp/8080\n",
	},
	{
		Code: RedirectClosed, Severities: []Severity{Warning}, Advice: true,
		What:   "no rule allows the packets of a redirect",
		Why:    "NAT allows nothing. Packets that a redirect sends to another machine are decided by forward, those that it sends to this host by input, both by their rewritten addresses. Reported if nobody can use the redirect.",
		Fix:    "Add `allow published PORT from WHO` to that section.",
		Before: "zones:\n  wan: { interfaces: [default-route] }\nforward:\n  default: drop\nnat:\n  - redirect tcp/8443 in wan to 10.20.0.5:443\n",
		After:  "zones:\n  wan: { interfaces: [default-route] }\nforward:\n  default: drop\n  rules:\n    - allow published tcp/8443\nnat:\n  - redirect tcp/8443 in wan to 10.20.0.5:443\n",
	},
	{
		Code: InputPublished, Severities: []Severity{Warning}, Advice: true,
		What: "an input rule names a port that Docker or another tool has published",
		Why: "The tool rewrites the destination before any section is evaluated, so such packets are forwarded and never reach input: the rule neither opens nor closes anything. " +
			"If the port is published for one family only, the rule still decides the other.",
		Fix:    "Write the rule in forward, with `published`.",
		Before: "input:\n  default: drop\n  rules:\n    - drop tcp/8080\n    - allow http\n",
		After:  "input:\n  default: drop\n  rules:\n    - allow http\nforward:\n  default: drop\n  rules:\n    - drop published tcp/8080\n",
	},
	{
		Code: OtherFirewall, Severities: []Severity{Warning}, Advice: true,
		What: "another firewall starts with the host",
		Why: "Both firewalls decide: what either drops is dropped. And nftables.service, as distributions ship it, flushes all rules when it starts and stops, including those of other tools. " +
			"Reported are ufw, firewalld, nftables, iptables and others that systemd starts at boot.",
		Fix:    "Disable it by the command in the finding; or, if both should run, allow the finding.",
		Before: "input:\n  default: drop\n",
		After:  "input: # lint: allow other-firewall its rules are loaded beside on purpose\n  default: drop\n",
	},
	{
		Code: IPv6Open, Severities: []Severity{Remark}, Advice: true,
		What:   "a rule refuses something over IPv4 only, and it stays open over IPv6",
		Why:    "The rule has the word `ipv4`, and rules below or the default allow the same over IPv6. A rule whose sets have no IPv6 addresses may have the word for clarity, and is not reported.",
		Fix:    "Remove `ipv4`.",
		Before: "output:\n  default: allow\n  rules:\n    - reject smtp ipv4\n",
		After:  "output:\n  default: allow\n  rules:\n    - reject smtp\n",
	},
	{
		Code: EveryIPv4, Severities: []Severity{Warning, Remark}, Advice: true,
		What:   "0.0.0.0/0 or ::/0 is meant as everybody, but is only one family",
		Why:    "A rule without `from` applies to everybody. It is a warning if the rule refuses and the other family stays open; a remark if the rule allows.",
		Fix:    "Remove the addresses.",
		Before: "input:\n  default: drop\n  rules:\n    - allow http from 0.0.0.0/0\n",
		After:  "input:\n  default: drop\n  rules:\n    - allow http\n",
	},
}
