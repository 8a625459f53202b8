package policy

import "slices"

// shape is one kind of value of the language: which YAML it may be written as.
// The parser takes the known keys from here, Schema and Reference are made of
// nothing else, so the three cannot disagree. A shape may have several forms
// at once: a set is an address, a list of addresses or a mapping.
type shape struct {
	name     string // in $defs and in other shapes
	what     string // in messages: "a zone"
	doc      string // sentences for the reference and the schema
	text     *textForm
	list     string // the shape of the elements
	keys     []key
	values   string   // free names as keys: the shape of what they stand for
	null     bool     // may be left empty
	oneOf    []string // exactly one of these keys stands in a mapping
	examples []string
}

// textForm is what a single YAML scalar may be.
type textForm struct {
	json    string // JSON type: string, integer, boolean
	pattern string
	enum    []string
}

// key is one known key of a mapping.
type key struct {
	name     string
	shape    string
	doc      string
	required bool
}

func (s *shape) key(name string) *key {
	for i := range s.keys {
		if s.keys[i].name == name {
			return &s.keys[i]
		}
	}
	return nil
}

func (s *shape) keyNames() []string {
	out := make([]string, len(s.keys))
	for i, k := range s.keys {
		out[i] = k.name
	}
	return out
}

// shapeOf returns a shape of the table; a name that is not in it is a mistake
// of the program.
func shapeOf(name string) *shape {
	i := slices.IndexFunc(shapes, func(s *shape) bool { return s.name == name })
	if i < 0 {
		panic("policy: the language has no shape " + name)
	}
	return shapes[i]
}

func anyText() *textForm { return &textForm{json: "string"} }

func matching(pattern string) *textForm { return &textForm{json: "string", pattern: pattern} }

func oneOf(words ...string) *textForm { return &textForm{json: "string", enum: words} }

func boolean() *textForm { return &textForm{json: "boolean"} }

func number() *textForm { return &textForm{json: "integer"} }

const (
	namePattern     = `^[A-Za-z][A-Za-z0-9_-]{0,47}$`
	durationPattern = `^([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$`
)

// shapes is the whole language but for the words inside rules, see clauses.
// The order is that of the reference.
var shapes = []*shape{
	{
		name: "policy", what: "the policy",
		doc: "A policy file is one YAML mapping. Every key but `version` may be left out. A section (`input`, `output`, `forward`) that is left out is not policed: only bans are asked there.",
		keys: []key{
			{"version", "version", "The version of the language.", true},
			{"include", "includes", "Other files of the same language, relative to this one. They are read after this file, those of one pattern in the order of their names; their rules follow the rules of this file.", false},
			{"zones", "zones", "The sides of the host.", false},
			{"sets", "sets", "Named groups of addresses.", false},
			{"services", "services", "Named services beside the built-in ones.", false},
			{"ban", "bans", "Whose packets are dropped, from and to them, before any rule; flows that exist with them end when the ban comes.", false},
			{"never-ban", "bans", "What no ban may hit, also not one made by a limit.", false},
			{"tracking", "tracking", "What keeps connection state, and how large its table is.", false},
			{"layout", "layout", "What large sets may take in the kernel, so that asking them is cheap.", false},
			{"counters", "flag", "`false`: packets are not counted by line, and none pays for it. Sets with `counters`, bans by command and by limits, and full tables of limits are counted all the same. `true` when left out.", false},
			{"input", "section", "Rules for packets to this host.", false},
			{"output", "section", "Rules for packets from this host.", false},
			{"forward", "forward", "Rules for packets through this host.", false},
			{"nat", "nats", "Rewriting of addresses. It permits nothing: forward rules see the inner addresses.", false},
			{"expect", "expectations", "What must hold of the policy, proved by `sluice test` for all packets, and by `sluice apply` before it loads anything.", false},
		},
		examples: []string{"version: 1\ninput:\n  default: drop\n  rules:\n    - allow ssh"},
	},
	{
		name: "version", what: "version", doc: "Always 1.",
		text: &textForm{json: "integer", enum: []string{"1"}}, examples: []string{"1"},
	},
	{
		name: "includes", what: "include", doc: "Files or patterns with `*`, `?` and `[…]`. A file that is named and missing is an error; a pattern may match nothing, and leaves hidden files alone.",
		text: anyText(), list: "path", null: true, examples: []string{"[vms/*.yaml]"},
	},
	{name: "path", what: "a file name", doc: "A file name, relative to the file that it stands in.", text: anyText(), examples: []string{"banned.txt"}},
	{
		name: "zones", what: "zones", doc: "Zones by name. A zone and a set may not share a name.",
		values: "zone", null: true, examples: []string{"wan: {interfaces: [default-route]}"},
	},
	{
		name: "zone", what: "a zone",
		doc: "A side of the host, by interface, by network, or by both at once: then a packet must fit both. `from ZONE` looks at the incoming interface and the source, `to ZONE` at the outgoing interface and the destination, `in ZONE` and `out ZONE` at the interface alone.",
		keys: []key{
			{"interfaces", "interfaces", "The zone's interfaces, as routing sees them: a bridge, not its ports.", false},
			{"networks", "addresses", "The zone's networks.", false},
		},
		examples: []string{"{interfaces: [virbr0, \"wg*\"], networks: [10.20.0.0/16, \"fd00:20::/64\"]}"},
	},
	{name: "interfaces", what: "interfaces", doc: "One interface or a list.", text: anyText(), list: "interface", null: true, examples: []string{"[eth0, \"wg*\"]"}},
	{
		name: "interface", what: "an interface", doc: "A name of at most 15 characters, a beginning of names with `*` behind it, or `default-route`: the interfaces that the default routes leave by.",
		text: matching(`^[!-~]{1,15}$`), examples: []string{"eth0", "\"wg*\"", "default-route"},
	},
	{name: "addresses", what: "addresses", doc: "One address or a list.", text: anyText(), list: "address", null: true, examples: []string{"[203.0.113.0/24, \"2001:db8::/32\"]"}},
	{
		name: "address", what: "an address", doc: "An IPv4 or IPv6 address, a prefix without host bits, or a range `FIRST-LAST`.",
		text: matching(`^[0-9A-Fa-f:./-]+$`), examples: []string{"203.0.113.7", "203.0.113.0/24", "198.51.100.10-198.51.100.20", "\"2001:db8::/32\""},
	},
	{name: "sets", what: "sets", doc: "Sets by name. They hold IPv4 and IPv6 together.", values: "set", null: true, examples: []string{"office: [203.0.113.0/24, \"2001:db8:77::/48\"]"}},
	{
		name: "set", what: "a set",
		doc:  "A list of addresses, or a mapping with exactly one of `addresses`, `file`, `url`, `countries` and `continents` (these two may stand together), `union`, `endpoints`.",
		text: matching(`^[0-9A-Fa-f:./-]+$`), list: "address",
		keys: []key{
			{"addresses", "addresses", "The addresses themselves; for a list that needs `except` or `counters` too.", false},
			{"file", "path", "A file with one address, prefix or range a line; `#` begins a comment. Read as a stream, so it may be long.", false},
			{"url", "url", "A list to download, in the same format as `file`.", false},
			{"refresh", "duration", "Downloaded by `plan`, `apply` and `sluice refresh`, which a timer may run, when the copy of `url` is older than this. Without it, a copy of any age is used.", false},
			{"countries", "countries", "ISO 3166-1 codes of two letters. `NO` is Norway.", false},
			{"continents", "continents", "`AF`, `AN`, `AS`, `EU`, `NA`, `OC`, `SA`.", false},
			{"union", "names", "Other sets, taken together.", false},
			{"endpoints", "endpoints", "Addresses and services together, for `tracking: bypass: … to SET`.", false},
			{"except", "names", "Sets whose addresses are taken out.", false},
			{"counters", "flag", "Count packets and bytes for each element; the counters survive a reload.", false},
		},
		examples: []string{
			"[203.0.113.0/24, \"2001:db8:77::/48\"]", "{file: banned.txt, counters: true}",
			"{url: \"https://lists.example.net/scanners.txt\", refresh: 1h}", "{continents: [EU]}",
			"{countries: [IT, SM, VA]}", "{union: [europe, office], except: [banned]}",
			"{endpoints: [\"198.51.100.1 tcp/80\", \"[2001:db8::1] tcp/443\"]}",
		},
	},
	{name: "url", what: "url", doc: "An http or https address.", text: matching(`^https?://`), examples: []string{"\"https://lists.example.net/scanners.txt\""}},
	{name: "duration", what: "a duration", doc: "Numbers with `w`, `d`, `h`, `m`, `s`, the larger unit first.", text: matching(durationPattern), examples: []string{"30s", "10m", "1h30m", "1d"}},
	{name: "countries", what: "countries", doc: "One country or a list.", text: anyText(), list: "country", null: true, examples: []string{"[IT, SM, VA]", "[NO]"}},
	{name: "country", what: "a country", doc: "An ISO 3166-1 code of two letters.", text: matching(`^[A-Za-z]{2}$`), examples: []string{"IT"}},
	{name: "continents", what: "continents", doc: "One continent or a list.", text: anyText(), list: "continent", null: true, examples: []string{"[EU]"}},
	{name: "continent", what: "a continent", doc: "A code of two letters.", text: matching(`^([Aa][FfNnSs]|[Ee][Uu]|[Nn][Aa]|[Oo][Cc]|[Ss][Aa])$`), examples: []string{"EU"}},
	{name: "names", what: "names of sets", doc: "One name or a list.", text: anyText(), list: "name", null: true, examples: []string{"[europe, office]"}},
	{name: "name", what: "a name", doc: "A letter, then letters, digits, `-` and `_`; at most 48. Words of the rule language are not names.", text: matching(namePattern), examples: []string{"office"}},
	{name: "endpoints", what: "endpoints", doc: "One endpoint or a list.", text: anyText(), list: "endpoint", null: true, examples: []string{"[\"198.51.100.1 tcp/80\"]"}},
	{
		name: "endpoint", what: "an endpoint", doc: "An address or prefix, a blank, and a service of single ports. An IPv6 address may stand in brackets.",
		text: matching(`^\S+\s+\S.*$`), examples: []string{"198.51.100.1 tcp/80", "\"[2001:db8::1] tcp/443\""},
	},
	{name: "services", what: "services", doc: "Services by name. A name of the built-in list may be used; the policy's own then holds, and inside its own definition the name means the built-in one.", values: "service", null: true, examples: []string{"web: [tcp/80, tcp/443, udp/443]"}},
	{name: "service", what: "a service", doc: "What a service is on the wire: one word or a list of them.", text: anyText(), list: "service-word", examples: []string{"proto/112", "[tcp/80, tcp/443, udp/443]"}},
	{
		name: "service-word", what: "a service", doc: "`tcp`, `udp` or `sctp` with a port or a range of ports behind a slash or without, `icmp` or `icmp NAME`, `proto/NUMBER`, or the name of another service.",
		text: anyText(), examples: []string{"tcp/80", "udp/6000-6100", "icmp echo-request", "proto/112", "ssh"},
	},
	{name: "bans", what: "bans", doc: "Names of sets, or addresses.", text: anyText(), list: "ban", null: true, examples: []string{"[banned, 192.0.2.0/24]"}},
	{name: "ban", what: "a ban", doc: "The name of a set, an address, a prefix or a range.", text: matching(`^([A-Za-z][A-Za-z0-9_-]{0,47}|[0-9A-Fa-f:./-]+)$`), examples: []string{"banned", "192.0.2.0/24"}},
	{
		name: "tracking", what: "tracking", doc: "Connection tracking.",
		keys: []key{
			{"bypass", "bypasses", "Services that keep no connection state, in either direction, where the local end is the service's port.", false},
			{"table", "table", "The size of the connection table and its time-outs.", false},
			{"invalid", "invalid", "What becomes of packets that belong to no connection and open none: `drop` (also when left out) or `allow`.", false},
			{"icmp-errors", "icmp-errors", "Which errors of ICMP pass: `related` (also when left out) or `all`.", false},
			{"grace", "grace", "How long TCP connections through this host have to send a packet when tracking begins: those that ran before nobody knows, and what is not known by then is refused. `3s` when left out, 24h at most; `none` refuses them at once. Connections of the host itself are known without it.", false},
		},
		null: true, examples: []string{"{bypass: [web], table: auto, invalid: drop}"},
	},
	{name: "grace", what: "grace", doc: "A duration, or `none`.", text: matching(`^(none|([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?)$`), examples: []string{"3s", "10m", "none"}},
	{
		name: "bypasses", what: "bypass", doc: "One bypass or a list.", text: anyText(), list: "bypass", null: true, examples: []string{"[web]", "web to listeners"},
		keys: bypassKeys,
	},
	{name: "bypass", what: "a bypass", doc: "`SERVICE` or `SERVICE to WHO`, where WHO is a set, a set of endpoints or an address of this host; or the same as a mapping.", text: anyText(), keys: bypassKeys, examples: []string{"web", "web to listeners", "{service: web, to: listeners}"}},
	{
		name: "table", what: "table", doc: "`auto` sizes the table by the memory of the machine.",
		text: oneOf("auto"),
		keys: []key{
			{"max", "number", "Entries at most (net.netfilter.nf_conntrack_max).", false},
			{"buckets", "number", "Hash buckets (nf_conntrack_buckets).", false},
			{"timeouts", "timeouts", "Time-outs by the kernel's names, with `-` for `_`.", false},
		},
		examples: []string{"auto", "{max: 262144, buckets: 262144, timeouts: {tcp-time-wait: 30s}}"},
	},
	{name: "timeouts", what: "timeouts", doc: "Each is net.netfilter.nf_conntrack_PROTOCOL_timeout_STATE of the kernel.", keys: timeoutKeys(), null: true, examples: []string{"{tcp-time-wait: 30s, udp-stream: 2m}"}},
	{name: "invalid", what: "invalid", doc: "`drop` or `allow`.", text: oneOf("drop", "allow"), examples: []string{"drop"}},
	{
		name: "icmp-errors", what: "icmp-errors",
		doc:  "`related`: those about a connection that this host knows, and those about what keeps no state. `all`: every one, for hosts that see only one direction of what they forward.",
		text: oneOf("related", "all"), examples: []string{"related"},
	},
	{
		name: "layout", what: "layout",
		doc: "Large sets, such as those of countries, are laid out so that a packet is decided by as little as possible. The more memory and time it may take, the less a packet costs. What is left out is sensible by default: 64 MiB, and a quarter more time than plain sets take.",
		keys: []key{
			{"memory", "size", "Kernel memory that large sets take together.", false},
			{"load", "load-time", "Time that loading them takes together.", false},
		},
		null: true, examples: []string{"{memory: 64MiB, load: 1s}"},
	},
	{name: "size", what: "memory", doc: "A number with `KiB`, `MiB` or `GiB`.", text: matching(`^[0-9]+[KMG]iB$`), examples: []string{"64MiB"}},
	{name: "load-time", what: "load", doc: "A duration, which may be in milliseconds.", text: matching(`^([0-9]+ms|([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?)$`), examples: []string{"1s", "500ms"}},
	{
		name: "section", what: "a section", doc: "Rules are tried in order, the first that matches decides; `default` decides the rest.",
		keys:     sectionKeys,
		examples: []string{"default: drop log \"in\"\nrules:\n  - allow ssh"},
	},
	{
		name: "forward", what: "forward", doc: "As `section`, and `accelerate`.",
		keys: append(slices.Clone(sectionKeys),
			key{"accelerate", "flag", "Hand established flows to a flowtable, where the kernel has it.", false}),
		examples: []string{"default: drop\naccelerate: true\nrules:\n  - allow any from 10.20.0.0/16"},
	},
	{
		name: "default", what: "default", doc: "`allow`, `drop` or `reject`, and `log \"PREFIX\"` behind it where wanted; the log is limited. Or the same as a mapping.",
		text: matching(`^\s*(allow|drop|reject)(\s|$)`), keys: []key{
			{"action", "verdict", "What becomes of a packet that no rule matches.", true},
			{"log", "log", "A prefix for the kernel log.", false},
		},
		examples: []string{"drop", "'drop log \"in\"'", "{action: drop, log: in}"},
	},
	{name: "verdict", what: "an action", doc: "`allow`, `drop` or `reject`.", text: oneOf("allow", "drop", "reject"), examples: []string{"drop"}},
	{name: "rules", what: "rules", doc: "A list of rules.", list: "rule", null: true, examples: []string{"- allow ssh\n- {allow: web, from: 203.0.113.0/24}"}},
	{
		name: "rule", what: "a rule", doc: "One line of words, or the same as a mapping; both mean the same. See \"Rules\".",
		text: matching(`^\s*(allow|drop|reject|clamp)(\s|$)`),
		keys: []key{
			{"allow", "words", "Allow this service (a name, a list, or `any`).", false},
			{"drop", "words", "Drop this service.", false},
			{"reject", "words", "Reject this service.", false},
			{"clamp", "mss", "`mss`: lower the TCP maximum segment size to what the route carries; forward only.", false},
			{"published", "flag", "The port and address are those before a DNAT.", false},
			{"family", "family", "`ipv4` or `ipv6`; both when left out.", false},
			{"from", "words", "Source: WHO.", false},
			{"to", "words", "Destination: WHO.", false},
			{"in", "words", "Incoming interface: a zone.", false},
			{"out", "words", "Outgoing interface: a zone.", false},
			{"user", "users", "Who sends it: a user of this host, or a list; output only.", false},
			{"limit", "limit", "A rate of new flows.", false},
			{"max", "max", "A number of connections at one time.", false},
			{"log", "log", "A prefix for the kernel log.", false},
		},
		oneOf:    []string{"allow", "drop", "reject", "clamp"},
		examples: []string{"allow web from 203.0.113.0/24", "{allow: web, from: 203.0.113.0/24}"},
	},
	{name: "words", what: "words", doc: "Words as in the line form, or a list of them.", text: anyText(), list: "word", examples: []string{"not 203.0.113.0/24", "[smtp, imaps]"}},
	{name: "word", what: "a word", doc: "One word of a list.", text: anyText(), examples: []string{"icmp echo-request"}},
	{name: "users", what: "user", doc: "A user, a number, or a list of them.", text: &textForm{json: "string|integer"}, list: "user", examples: []string{"postfix", "[postfix, 1000]"}},
	{name: "user", what: "a user", doc: "A user of this host by name or number.", text: &textForm{json: "string|integer"}, examples: []string{"postfix", "1000"}},
	{name: "mss", what: "clamp", doc: "`mss`.", text: oneOf("mss"), examples: []string{"mss"}},
	{name: "family", what: "family", doc: "`ipv4` or `ipv6`.", text: oneOf("ipv4", "ipv6"), examples: []string{"ipv6"}},
	{
		name: "limit", what: "limit", doc: "As in the line form, or a mapping.", text: matching(`^\s*[0-9]+/`),
		keys: []key{
			{"rate", "rate", "How many, and in what time.", true},
			{"per", "per", "`source`: each source has a rate of its own; of IPv6, each /64.", false},
			{"burst", "number", "How many at once; the count of the rate when left out.", false},
			{"ban", "duration", "Ban a source over the limit for this long; with `per: source` only.", false},
		},
		examples: []string{"10/minute per source", "{rate: 6/30s, per: source, ban: 10m}"},
	},
	{name: "rate", what: "a rate", doc: "A count, a slash, and `second`, `minute`, `hour`, `day` or a duration.", text: matching(`^\s*[0-9]+/`), examples: []string{"10/minute", "6/30s"}},
	{name: "per", what: "per", doc: "`source`.", text: oneOf("source"), examples: []string{"source"}},
	{
		name: "max", what: "max", doc: "As in the line form, a number, or a mapping.", text: &textForm{json: "string|integer"},
		keys: []key{
			{"connections", "number", "How many.", true},
			{"per", "per", "`source`: each source has a number of its own; of IPv6, each /64.", false},
		},
		examples: []string{"20", "20 connections per source", "{connections: 20, per: source}"},
	},
	{name: "log", what: "log", doc: "The prefix of the line in the kernel log; printable ASCII without `\"`, `\\` and `$`, at most 118 bytes.", text: &textForm{json: "string", pattern: `^[^"\\$]{0,118}$`}, examples: []string{"smtp"}},
	{name: "number", what: "a number", doc: "A whole number above zero.", text: number(), examples: []string{"262144"}},
	{name: "flag", what: "a flag", doc: "`true` or `false`.", text: boolean(), examples: []string{"true"}},
	{name: "nats", what: "nat", doc: "A list of rewritings.", list: "nat", null: true, examples: []string{"- masquerade out wan\n- redirect tcp/8080 in wan to 10.20.0.5:80"}},
	{
		name: "nat", what: "a line of nat", doc: "One line of words, or the same as a mapping. See \"NAT\".",
		text: matching(`^\s*(masquerade|redirect|map)(\s|$)`),
		keys: []key{
			{"masquerade", "masquerade", "`ipv4`, `ipv6`, or `any` for both.", false},
			{"redirect", "words", "The service to redirect, with ports.", false},
			{"map", "address", "The prefix as the outside sees it.", false},
			{"from", "words", "masquerade: whose packets, WHO.", false},
			{"out", "words", "masquerade: the zone that they leave by.", false},
			{"as", "address", "masquerade: this source address instead of the interface's.", false},
			{"family", "family", "redirect: `ipv4` or `ipv6`.", false},
			{"in", "words", "redirect: the zone whose addresses are meant.", false},
			{"on", "addresses", "redirect: these addresses instead.", false},
			{"to", "words", "redirect: `ADDRESS:PORT`, `ADDRESS` or `:PORT`; map: the prefix inside.", false},
			{"stateless", "flag", "map: rewrite without connection state, in headers only.", false},
		},
		oneOf: []string{"masquerade", "redirect", "map"},
		examples: []string{
			"masquerade from 10.20.0.0/16 out wan ipv4", "{masquerade: ipv4, from: 10.20.0.0/16, out: wan}",
			"{redirect: tcp/8080, in: wan, to: \"10.20.0.5:80\"}", "{map: 198.51.100.16/28, to: 10.20.1.0/28, stateless: true}",
		},
	},
	{name: "expectations", what: "expect", doc: "A list of expectations, in the policy or, with `version: 1` alone beside it, in a file of its own.", list: "expectation", null: true, examples: []string{"- allow tcp/443 from 203.0.113.7\n- deny ssh from not 203.0.113.0/24"}},
	{
		name: "expectation", what: "an expectation", doc: "One line of words, or the same as a mapping. See \"Expectations\".",
		text: matching(`^\s*(allow|drop|reject|deny)(\s|$)`),
		keys: []key{
			{"allow", "words", "These packets pass: a service, a list, or `any`.", false},
			{"drop", "words", "These packets are dropped.", false},
			{"reject", "words", "These packets are rejected.", false},
			{"deny", "words", "These packets are dropped or rejected.", false},
			{"published", "flag", "The port and address are those before a DNAT of another tool.", false},
			{"family", "family", "`ipv4` or `ipv6`; both when left out.", false},
			{"from", "words", "Source: WHO.", false},
			{"to", "words", "Destination: WHO.", false},
			{"in", "words", "Incoming interface: a zone.", false},
			{"out", "words", "Outgoing interface: a zone.", false},
			{"user", "users", "Who sends it: a user of this host, or a list.", false},
			{"on", "hook", "The way of the packets, where the other words do not say it.", false},
			{"state", "states", "What connection tracking says of the packets; `new` when left out.", false},
		},
		oneOf:    []string{"allow", "drop", "reject", "deny"},
		examples: []string{"deny ssh from not 203.0.113.0/24", "{deny: ssh, from: not 203.0.113.0/24}", "reject smtp on output"},
	},
	{name: "hook", what: "on", doc: "`input`, `output` or `forward`.", text: oneOf(hookWords...), examples: []string{"output"}},
	{name: "states", what: "state", doc: "One state or a list.", text: oneOf(stateWords...), list: "state", examples: []string{"established", "[established, related]"}},
	{name: "state", what: "a state", doc: "`new`, `established`, `related` or `invalid`.", text: oneOf(stateWords...), examples: []string{"new"}},
	{name: "masquerade", what: "masquerade", doc: "`ipv4`, `ipv6` or `any`.", text: oneOf("any", "ipv4", "ipv6"), examples: []string{"ipv4"}},
}

var bypassKeys = []key{
	{"service", "words", "The service, with ports.", true},
	{"to", "words", "Only where this is the local address.", false},
}

var sectionKeys = []key{
	{"default", "default", "What becomes of a packet that no rule matches.", false},
	{"rules", "rules", "The rules, in order.", false},
}

func timeoutKeys() []key {
	var out []key
	for _, name := range timeoutNames {
		out = append(out, key{name, "duration", "net.netfilter." + (Timeout{Name: name}).Sysctl(), false})
	}
	return out
}
