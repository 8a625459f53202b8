package policy

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"sluice/internal/language/source"
)

const (
	namePattern     = `^[A-Za-z][A-Za-z0-9_-]{0,47}$`
	scopePattern    = `^\s*(to|from)\s+\S`
	fleetPattern    = `^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`
	hostPattern     = `^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`
	durationPattern = `^([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$`
)

// Level is that of the language as this program reads it. A fleet's bundle says which it
// needs; what older programs cannot read makes a new one.
const Level = 1

// grammar is the whole language except for the words inside rules, see clauses.
var grammar = &source.Language{
	Title: "Sluice policy", Shapes: slices.Concat(shapes, fleetShapes), Includes: true,
	Others: []source.Other{{Key: "fleet", And: "host", Shape: "host"}, {Key: "fleet", Shape: "fleet"}}, Names: namePattern, Reserved: reserved,
}

// dialect is what a policy's file differs in from other files.
var dialect = &source.Dialect{
	// A million addresses belong in a set file, which is read as a stream.
	MaxSize: 32 << 20,
	TooLong: "put long lists of addresses into a file of their own and name it in a set: {file: NAME}",
	Anchors: "a rule has to be readable on its own, and a few lines of them can expand to millions; name a set, a zone or a service instead",
	Second:  "put it into a file of its own and include that file",
	Instead: insteadOfKey, Language: grammar,
	Fix: func(line string) string {
		switch {
		case strings.Contains(line, "rules: ["):
			return "write each rule on its own line, after -"
		case ruleLine().MatchString(line):
			return "put the whole line of the rule into single quotes, as in - 'drop log \"in: \"'"
		}
		return ""
	},
}

var ruleLine = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\s*(-\s+)?(default:\s+)?(allow|drop|reject|deny|clamp|masquerade|redirect|map)\s`)
})

var shapes = []*source.Shape{
	{
		Name: "policy", What: "the policy",
		Doc: "A policy file is one YAML mapping. Every key but `version` is optional. Without a section (`input`, `output`, `forward`), its packets are not filtered: only bans apply to them.",
		Keys: []source.Key{
			{Name: "version", Shape: "version", Doc: "The version of the language.", Required: true},
			{Name: "hosts", Shape: "selector", Doc: "Only in a part of a fleet: the hosts that the part applies to. Default: every host."},
			{Name: "drift", Shape: "drift", Doc: "Only in a part of a fleet: what a host does when somebody changed its rules. Default: `report`."},
			{Name: "requires", Shape: "names", Doc: "Only in a part of a fleet: zones, sets and services that another part of the same host must define."},
			{Name: "guests", Shape: "guests", Doc: "Only in a part of a fleet: what its hosts do for their guests."},
			{Name: "only", Shape: "only-guests", Doc: "Only in a part of a fleet: the guests that the part applies to; it then says nothing about the host itself."},
			{Name: "include", Shape: "includes", Doc: "Other policy files, relative to this one. They are read after this file, the files of one pattern in order of their names, and their rules come after the rules of this file."},
			{Name: "zones", Shape: "zones", Doc: "The sides of the host."},
			{Name: "sets", Shape: "sets", Doc: "Named groups of addresses."},
			{Name: "services", Shape: "services", Doc: "Named services, in addition to the built-in ones."},
			{Name: "ban", Shape: "bans", Doc: "Addresses whose packets are dropped, in both directions and before any rule. Existing connections with them end when the ban begins."},
			{Name: "never-ban", Shape: "bans", Doc: "Addresses that no ban may affect, including bans made by limits."},
			{Name: "exceptions", Shape: "exceptions", Doc: "The addresses that `sluice allow` may let in, and for how long. Without it, root may let in any address, and other users who may change the firewall may let in none."},
			{Name: "tracking", Shape: "tracking", Doc: "Which packets are tracked, and how large the connection table is."},
			{Name: "layout", Shape: "layout", Doc: "How much memory and time large sets may take in the kernel to make lookups cheap."},
			{Name: "counters", Shape: "flag", Doc: "`false`: packets are not counted for each line, which makes each packet cheaper. Sets with `counters`, bans by command and by limits, and full tables of limits still count. Default: `true`."},
			{Name: "log", Shape: "log-to", Doc: "Where the log goes. Default: `kernel`."},
			{Name: "input", Shape: "section", Doc: "Rules for packets to this host."},
			{Name: "output", Shape: "section", Doc: "Rules for packets from this host."},
			{Name: "forward", Shape: "forward", Doc: "Rules for packets through this host."},
			{Name: "nat", Shape: "nats", Doc: "Address translation. It allows nothing by itself: the rules of `forward` see the inner addresses."},
			{Name: "expect", Shape: "expectations", Doc: "What must hold for the policy. `sluice test` proves it for all packets, and `sluice apply` does so before it loads anything."},
		},
		Examples: []string{"version: 1\ninput:\n  default: drop\n  rules:\n    - allow ssh"},
	},
	{
		Name: "guard", What: "the guard",
		Doc: "`/etc/sluice/guard.yaml` is a file of the host. It says what must hold on this host for every policy, wherever the policy comes from. `check`, `test`, `plan` and `apply` prove it together with the expectations of the policy, and no flag skips it. It does not see the names of the policy: if it uses `office`, it must define `office`. The file of a network namespace is `/etc/netns/NAME/sluice/guard.yaml`.",
		Keys: []source.Key{
			{Name: "version", Shape: "version", Doc: "The version of the language.", Required: true},
			{Name: "zones", Shape: "zones", Doc: "The sides of the host."},
			{Name: "sets", Shape: "sets", Doc: "Named groups of addresses."},
			{Name: "services", Shape: "services", Doc: "Named services, in addition to the built-in ones."},
			{Name: "expect", Shape: "expectations", Doc: "What must hold for every policy.", Required: true},
		},
		Examples: []string{"version: 1\nsets:\n  office: [203.0.113.0/24]\nexpect:\n  - allow ssh from office\n  - deny ssh from not office"},
	},
	source.Version1(),
	{
		Name: "includes", What: "include", Doc: "Files or patterns with `*`, `?` and `[…]`. A named file that does not exist is an error. A pattern may match nothing; it does not match hidden files.",
		Text: source.AnyText(), List: "included", Null: true, Examples: []string{"[vms/*.yaml]", "[lists.yaml, {path: vms/*.yaml, only: to 10.20.0.0/16}]"},
	},
	{
		Name: "included", What: "an included file",
		Doc:  "A file or a pattern, or a mapping with `only`. A file that is included with `only` may decide about these addresses alone. It may have rules in sections that the policy has, each within `only` and without `then ban`; expectations within `only`; and `services` and `sets` (lists only), whose names no other file sees. Its rules come after the rules of all other files. If it has an error, `plan` and `apply` report it and go on with the last version that ran, or without the file if none did. Other commands fail with the error.",
		Text: source.AnyText(),
		Keys: []source.Key{
			{Name: "path", Shape: "path", Doc: "The file or the pattern.", Required: true},
			{Name: "only", Shape: "scopes", Doc: "The addresses that its rules may decide about.", Required: true},
		},
		Examples: []string{"vms/*.yaml", "{path: vms/*.yaml, only: to 10.20.0.0/16}", "{path: vms/web.yaml, only: [to 10.20.0.5, from 10.20.0.5]}"},
	},
	{Name: "scopes", What: "only", Doc: "One scope or a list. A rule must be within one of them.", Text: source.Matching(scopePattern), List: "scope", Examples: []string{"to 10.20.0.0/16", "[to shop, from shop]"}},
	{
		Name: "scope", What: "a scope", Doc: "`to WHO` or `from WHO`, where WHO is addresses, or sets that are lists of addresses. A rule is within the scope if its own `to` or `from` has no other addresses.",
		Text: source.Matching(scopePattern), Examples: []string{"to 10.20.0.0/16", "from [10.20.0.5, \"2001:db8:20::5\"]"},
	},
	{Name: "path", What: "a file name", Doc: "A file name, relative to the file that names it.", Text: source.AnyText(), Examples: []string{"banned.txt"}},
	{
		Name: "zones", What: "zones", Doc: "Zones by name. A zone and a set may not share a name.",
		Values: "zone", Null: true, Examples: []string{"wan: {interfaces: [default-route]}"},
	},
	{
		Name: "zone", What: "a zone",
		Doc: "A side of the host, by interfaces, by networks, or by both: then a packet must match both. `from ZONE` checks the incoming interface and the source, `to ZONE` the outgoing interface and the destination, `in ZONE` and `out ZONE` only the interface.",
		Keys: []source.Key{
			{Name: "interfaces", Shape: "interfaces", Doc: "The interfaces of the zone, as routing sees them: a bridge, not its ports."},
			{Name: "networks", Shape: "addresses", Doc: "The networks of the zone."},
		},
		Examples: []string{"{interfaces: [virbr0, \"wg*\"], networks: [10.20.0.0/16, \"fd00:20::/64\"]}"},
	},
	{Name: "interfaces", What: "interfaces", Doc: "One interface or a list.", Text: source.AnyText(), List: "interface", Null: true, Examples: []string{"[eth0, \"wg*\"]"}},
	{
		Name: "interface", What: "an interface", Doc: "A name of at most 15 characters, a prefix of names followed by `*`, or `default-route`: the interfaces of the default routes.",
		Text: source.Matching(`^[!-~]{1,15}$`), Examples: []string{"eth0", "\"wg*\"", "default-route"},
	},
	{Name: "addresses", What: "addresses", Doc: "One address or a list.", Text: source.AnyText(), List: "address", Null: true, Examples: []string{"[203.0.113.0/24, \"2001:db8::/32\"]"}},
	{
		Name: "address", What: "an address", Doc: "An IPv4 or IPv6 address, a prefix without host bits, or a range `FIRST-LAST`.",
		Text: source.Matching(`^[0-9A-Fa-f:./-]+$`), Examples: []string{"203.0.113.7", "203.0.113.0/24", "198.51.100.10-198.51.100.20", "\"2001:db8::/32\""},
	},
	{Name: "sets", What: "sets", Doc: "Sets by name. A set holds both IPv4 and IPv6.", Values: "set", Null: true, Examples: []string{"office: [203.0.113.0/24, \"2001:db8:77::/48\"]"}},
	{
		Name: "set", What: "a set",
		Doc:  "A list of addresses, or a mapping with exactly one of `addresses`, `file`, `url`, `countries` and `continents` (these two can be combined), `union`, `endpoints`, `hosts`, `guests`.",
		Text: source.Matching(`^[0-9A-Fa-f:./-]+$`), List: "address",
		Keys: []source.Key{
			{Name: "addresses", Shape: "addresses", Doc: "The addresses themselves, for a list that also needs `except` or `counters`."},
			{Name: "file", Shape: "path", Doc: "A file with one address, prefix or range per line; `#` begins a comment. It is read as a stream, so it may be long."},
			{Name: "url", Shape: "url", Doc: "A list to download, in the same format as `file`."},
			{Name: "refresh", Shape: "duration", Doc: "`plan`, `apply` and `sluice refresh` (which a timer can run) download `url` again when the copy is older than this. Without it, a copy of any age is used."},
			{Name: "live", Shape: "flag", Doc: "In a fleet: the controller downloads `url` every `refresh`, or every hour, and sends changes to the hosts without a roll-out. It needs `within`, unless the set only bans: it is used in `ban` and in rules that drop or reject, and not after `not` or `except`."},
			{Name: "countries", Shape: "countries", Doc: "ISO 3166-1 codes of two letters. Unquoted `NO` is Norway, not false."},
			{Name: "continents", Shape: "continents", Doc: "`AF`, `AN`, `AS`, `EU`, `NA`, `OC`, `SA`."},
			{Name: "union", Shape: "names", Doc: "Other sets: the union of them."},
			{Name: "endpoints", Shape: "endpoints", Doc: "Pairs of address and service, for `tracking: bypass: … to SET`."},
			{Name: "hosts", Shape: "selector", Doc: "The known addresses of the hosts of a fleet that have these labels. Such a set must be defined in the file of the fleet."},
			{Name: "guests", Shape: "selector", Doc: "The same for the guests of hosts."},
			{Name: "within", Shape: "addresses", Doc: "The bounds of the set. Required with `hosts` and `guests`, whose addresses must never be outside. Addresses of a `live` list that are outside are ignored."},
			{Name: "except", Shape: "names", Doc: "Sets whose addresses are removed from this one."},
			{Name: "counters", Shape: "flag", Doc: "Count packets and bytes for each element. The counters survive a reload."},
			{Name: "filled-by", Shape: "filler", Doc: "`other`: another program on this host, such as dnsmasq with `nftset`, adds single addresses to the set in the kernel. The addresses are not part of the policy and stay when policies are applied. Such a set can be used only in rules."},
			{Name: "living", Shape: "flag", Doc: "`sluice set` adds addresses to the set and removes them, in addition to those of the policy, immediately and for a limited time if you like. The set may be empty, and can be used only in rules, `nat`, `ban` and `expect`."},
		},
		Examples: []string{
			"[203.0.113.0/24, \"2001:db8:77::/48\"]", "{file: banned.txt, counters: true}",
			"{url: \"https://lists.example.net/scanners.txt\", refresh: 1h}", "{continents: [EU]}",
			"{countries: [IT, SM, VA]}", "{union: [europe, office], except: [banned]}",
			"{endpoints: [\"198.51.100.1 tcp/80\", \"[2001:db8::1] tcp/443\"]}",
			"{living: true, addresses: [203.0.113.7]}", "{filled-by: other}",
			"{url: \"https://lists.example.net/scanners.txt\", refresh: 10m, live: true}",
		},
	},
	{Name: "filler", What: "filled-by", Doc: "Always `other`.", Text: source.OneOf("other"), Examples: []string{"other"}},
	{Name: "url", What: "url", Doc: "An http or https address.", Text: source.Matching(`^https?://`), Examples: []string{"\"https://lists.example.net/scanners.txt\""}},
	{Name: "duration", What: "a duration", Doc: "Numbers with `w`, `d`, `h`, `m`, `s`, the larger unit first.", Text: source.Matching(durationPattern), Examples: []string{"30s", "10m", "1h30m", "1d"}},
	{Name: "countries", What: "countries", Doc: "One country or a list.", Text: source.AnyText(), List: "country", Null: true, Examples: []string{"[IT, SM, VA]", "[NO]"}},
	{Name: "country", What: "a country", Doc: "An ISO 3166-1 code of two letters.", Text: source.Matching(`^[A-Za-z]{2}$`), Examples: []string{"IT"}},
	{Name: "continents", What: "continents", Doc: "One continent or a list.", Text: source.AnyText(), List: "continent", Null: true, Examples: []string{"[EU]"}},
	{Name: "continent", What: "a continent", Doc: "A code of two letters.", Text: source.Matching(`^([Aa][FfNnSs]|[Ee][Uu]|[Nn][Aa]|[Oo][Cc]|[Ss][Aa])$`), Examples: []string{"EU"}},
	{Name: "names", What: "names of sets", Doc: "One name or a list.", Text: source.AnyText(), List: "name", Null: true, Examples: []string{"[europe, office]"}},
	{Name: "name", What: "a name", Doc: "A letter, then letters, digits, `-` and `_`; at most 48. Words of the rule language are not names.", Text: source.Matching(namePattern), Examples: []string{"office"}},
	{Name: "endpoints", What: "endpoints", Doc: "One endpoint or a list.", Text: source.AnyText(), List: "endpoint", Null: true, Examples: []string{"[\"198.51.100.1 tcp/80\"]"}},
	{
		Name: "endpoint", What: "an endpoint", Doc: "An address or prefix, a space, and a service of single ports. An IPv6 address may be in brackets.",
		Text: source.Matching(`^\S+\s+\S.*$`), Examples: []string{"198.51.100.1 tcp/80", "\"[2001:db8::1] tcp/443\""},
	},
	{Name: "services", What: "services", Doc: "Services by name. A service may have the name of a built-in one and then replaces it. Inside its own definition the name means the built-in one.", Values: "service", Null: true, Examples: []string{"web: [tcp/80, tcp/443, udp/443]"}},
	{Name: "service", What: "a service", Doc: "What a service is on the wire: one word or a list of them.", Text: source.AnyText(), List: "service-word", Examples: []string{"proto/112", "[tcp/80, tcp/443, udp/443]"}},
	{
		Name: "service-word", What: "a service", Doc: "`tcp`, `udp` or `sctp`, alone or followed by a slash and a port or a range of ports; `icmp` or `icmp NAME`; `proto/NUMBER`; or the name of another service.",
		Text: &source.Scalar{JSON: "string", Known: builtinNames()}, Examples: []string{"tcp/80", "udp/6000-6100", "icmp echo-request", "proto/112", "ssh"},
	},
	{Name: "bans", What: "bans", Doc: "Names of sets, or addresses.", Text: source.AnyText(), List: "ban", Null: true, Examples: []string{"[banned, 192.0.2.0/24]"}},
	{Name: "ban", What: "a ban", Doc: "The name of a set, an address, a prefix or a range.", Text: source.Matching(`^([A-Za-z][A-Za-z0-9_-]{0,47}|[0-9A-Fa-f:./-]+)$`), Examples: []string{"banned", "192.0.2.0/24"}},
	{
		Name: "exceptions", What: "exceptions", Doc: "`none`, or the addresses that commands may let in, and for how long at most.",
		Text: source.OneOf("none"),
		Keys: []source.Key{
			{Name: "who", Shape: "bans", Doc: "Sets and addresses: no others may be let in. Default: any."},
			{Name: "longest", Shape: "duration", Doc: "The longest time. With it, every exception must have an end."},
		},
		Examples: []string{"none", "{who: [office, 198.51.100.0/24], longest: 8h}"},
	},
	{
		Name: "tracking", What: "tracking", Doc: "Connection tracking.",
		Keys: []source.Key{
			{Name: "bypass", Shape: "bypasses", Doc: "Services without connection state, in both directions, where the local end has the port of the service."},
			{Name: "table", Shape: "table", Doc: "The size of the connection table and its time-outs."},
			{Name: "invalid", Shape: "invalid", Doc: "What happens to packets that belong to no connection and begin none: `drop` (the default) or `allow`."},
			{Name: "icmp-errors", Shape: "icmp-errors", Doc: "Which ICMP errors pass: `related` (the default) or `all`."},
			{Name: "grace", Shape: "grace", Doc: "How long existing TCP connections through this host are learned when tracking begins. A connection that sends no packet in this time is refused afterwards. Default: `3s`; at most 24h; `none` learns none. Connections of the host itself are known without it."},
		},
		Null: true, Examples: []string{"{bypass: [web], table: auto, invalid: drop}"},
	},
	{Name: "grace", What: "grace", Doc: "A duration, or `none`.", Text: source.Matching(`^(none|([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?)$`), Examples: []string{"3s", "10m", "none"}},
	{
		Name: "bypasses", What: "bypass", Doc: "One bypass or a list.", Text: source.AnyText(), List: "bypass", Null: true, Examples: []string{"[web]", "web to listeners"},
		Keys: bypassKeys,
	},
	{Name: "bypass", What: "a bypass", Doc: "`SERVICE` or `SERVICE to WHO`, where WHO is a set, a set of endpoints or an address of this host; or a mapping of the same.", Text: source.AnyText(), Keys: bypassKeys, Examples: []string{"web", "web to listeners", "{service: web, to: listeners}"}},
	{
		Name: "table", What: "table", Doc: "`auto` derives the size of the table from the memory of the machine.",
		Text: source.OneOf("auto"),
		Keys: []source.Key{
			{Name: "max", Shape: "number", Doc: "The largest number of entries (net.netfilter.nf_conntrack_max)."},
			{Name: "buckets", Shape: "number", Doc: "The number of hash buckets (nf_conntrack_buckets)."},
			{Name: "timeouts", Shape: "timeouts", Doc: "Timeouts by the names of the kernel, with `-` for `_`."},
		},
		Examples: []string{"auto", "{max: 262144, buckets: 262144, timeouts: {tcp-time-wait: 30s}}"},
	},
	{Name: "timeouts", What: "timeouts", Doc: "Each one sets net.netfilter.nf_conntrack_PROTOCOL_timeout_STATE of the kernel.", Keys: timeoutKeys(), Null: true, Examples: []string{"{tcp-time-wait: 30s, udp-stream: 2m}"}},
	{Name: "invalid", What: "invalid", Doc: "`drop` or `allow`.", Text: source.OneOf("drop", "allow"), Examples: []string{"drop"}},
	{
		Name: "icmp-errors", What: "icmp-errors",
		Doc:  "`related`: errors about a connection that this host knows, and about packets that are not tracked. `all`: all of them, for hosts that see only one direction of what they forward.",
		Text: source.OneOf("related", "all"), Examples: []string{"related"},
	},
	{
		Name: "layout", What: "layout",
		Doc: "Large sets, such as those of countries, are laid out so that few lookups decide a packet. The more memory and time they may take, the less a packet costs. The defaults are 64 MiB, and a quarter more time than plain sets take.",
		Keys: []source.Key{
			{Name: "memory", Shape: "size", Doc: "The kernel memory of all large sets together."},
			{Name: "load", Shape: "load-time", Doc: "The time to load all of them."},
		},
		Null: true, Examples: []string{"{memory: 64MiB, load: 1s}"},
	},
	{Name: "size", What: "memory", Doc: "A number with `KiB`, `MiB` or `GiB`.", Text: source.Matching(`^[0-9]+[KMG]iB$`), Examples: []string{"64MiB"}},
	{Name: "load-time", What: "load", Doc: "A duration; milliseconds are possible.", Text: source.Matching(`^([0-9]+ms|([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?)$`), Examples: []string{"1s", "500ms"}},
	{
		Name: "section", What: "a section", Doc: "Rules are evaluated in order, and the first that matches decides. `default` decides the rest.",
		Keys:     sectionKeys,
		Examples: []string{"default: drop log \"in\"\nrules:\n  - allow ssh"},
	},
	{
		Name: "forward", What: "forward", Doc: "Like `section`, with `accelerate` in addition.",
		Keys: append(slices.Clone(sectionKeys),
			source.Key{Name: "accelerate", Shape: "flag", Doc: "Offload established connections to a flowtable, if the kernel supports it."}),
		Examples: []string{"default: drop\naccelerate: true\nrules:\n  - allow any from 10.20.0.0/16"},
	},
	{
		Name: "default", What: "default", Doc: "`allow`, `drop` or `reject`, optionally followed by `log \"PREFIX\"`; the log is limited. Or a mapping of the same.",
		Text: source.Matching(`^\s*(allow|drop|reject)(\s|$)`), Keys: []source.Key{
			{Name: "action", Shape: "verdict", Doc: "The action for packets that no rule matches.", Required: true},
			{Name: "log", Shape: "log", Doc: "A prefix for the lines in the log."},
		},
		Examples: []string{"drop", "'drop log \"in\"'", "{action: drop, log: in}"},
	},
	{Name: "verdict", What: "an action", Doc: "`allow`, `drop` or `reject`.", Text: source.OneOf("allow", "drop", "reject"), Examples: []string{"drop"}},
	{Name: "rules", What: "rules", Doc: "A list of rules.", List: "rule", Null: true, Examples: []string{"- allow ssh\n- {allow: web, from: 203.0.113.0/24}"}},
	{
		Name: "rule", What: "a rule", Doc: "One line of words, or a mapping of the same. See \"Rules\".",
		Text: source.Matching(`^\s*(allow|drop|reject|clamp)(\s|$)`),
		Keys: slices.Concat([]source.Key{
			{Name: "allow", Shape: "words", Doc: "Allow this service (a name, a list, or `any`)."},
			{Name: "drop", Shape: "words", Doc: "Drop this service."},
			{Name: "reject", Shape: "words", Doc: "Reject this service."},
			{Name: "clamp", Shape: "mss", Doc: "`mss`: lower the TCP maximum segment size to what the route carries; forward only."},
			{Name: "published", Shape: "flag", Doc: "The port and address are those before DNAT."},
		}, packetKeys, []source.Key{
			{Name: "user", Shape: "users", Doc: "The user of this host who sends it, or a list; output only."},
			{Name: "limit", Shape: "limit", Doc: "A rate of new flows."},
			{Name: "max", Shape: "max", Doc: "A number of concurrent connections."},
			{Name: "until", Shape: "moment", Doc: "When the rule ends."},
			{Name: "log", Shape: "log", Doc: "A prefix for the lines in the log."},
		}),
		OneOf:    []string{"allow", "drop", "reject", "clamp"},
		Examples: []string{"allow web from 203.0.113.0/24", "{allow: web, from: 203.0.113.0/24}"},
	},
	{Name: "words", What: "words", Doc: "Words as in a rule of one line, or a list of them.", Text: source.AnyText(), List: "word", Examples: []string{"not 203.0.113.0/24", "[smtp, imaps]"}},
	{Name: "word", What: "a word", Doc: "One word of a list.", Text: source.AnyText(), Examples: []string{"icmp echo-request"}},
	{Name: "users", What: "user", Doc: "A user, a number, or a list of them.", Text: source.TextOrNumber(), List: "user", Examples: []string{"postfix", "[postfix, 1000]"}},
	{Name: "user", What: "a user", Doc: "A user of this host by name or number.", Text: source.TextOrNumber(), Examples: []string{"postfix", "1000"}},
	{Name: "mss", What: "clamp", Doc: "`mss`.", Text: source.OneOf("mss"), Examples: []string{"mss"}},
	{Name: "family", What: "family", Doc: "`ipv4` or `ipv6`.", Text: source.OneOf("ipv4", "ipv6"), Examples: []string{"ipv6"}},
	{
		Name: "limit", What: "limit", Doc: "As in a rule of one line, or a mapping.", Text: source.Matching(`^\s*[0-9]+/`),
		Keys: []source.Key{
			{Name: "rate", Shape: "rate", Doc: "How many, and in what time.", Required: true},
			{Name: "per", Shape: "per", Doc: "`source`: each source has a rate of its own, each /64 of IPv6."},
			{Name: "burst", Shape: "number", Doc: "How many may come at once. Default: the count of the rate."},
			{Name: "ban", Shape: "duration", Doc: "Ban a source over the limit for this long; with `per: source` only."},
			{Name: "widen", Shape: "flag", Doc: "`true`: also ban the whole /24, or /48 of IPv6, when the eighth of its sources is banned; with `ban` only."},
		},
		Examples: []string{"10/minute per source", "{rate: 6/30s, per: source, ban: 10m, widen: true}"},
	},
	{Name: "rate", What: "a rate", Doc: "A count, a slash, and `second`, `minute`, `hour`, `day` or a duration.", Text: source.Matching(`^\s*[0-9]+/`), Examples: []string{"10/minute", "6/30s"}},
	{Name: "per", What: "per", Doc: "`source`.", Text: source.OneOf("source"), Examples: []string{"source"}},
	{
		Name: "max", What: "max", Doc: "As in a rule of one line, a number, or a mapping.", Text: source.TextOrNumber(),
		Keys: []source.Key{
			{Name: "connections", Shape: "number", Doc: "How many.", Required: true},
			{Name: "per", Shape: "per", Doc: "`source`: each source has a number of its own, each /64 of IPv6."},
		},
		Examples: []string{"20", "20 connections per source", "{connections: 20, per: source}"},
	},
	{Name: "moment", What: "until", Doc: "A date and a time of day, with `Z` or an offset from UTC.", Text: source.Matching(`^\s*[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9:]+([Zz]|[+-][0-9]{2}:[0-9]{2})\s*$`), Examples: []string{"\"2027-01-31T18:00:00Z\"", "\"2027-01-31T19:00+01:00\""}},
	{Name: "log", What: "log", Doc: "The prefix of the lines in the log; printable ASCII without `\"`, `\\` and `$`, at most 118 bytes.", Text: source.Matching(`^[^"\\$]{0,118}$`), Examples: []string{"smtp"}},
	{Name: "number", What: "a number", Doc: "A whole number above zero.", Text: source.Number(), Examples: []string{"262144"}},
	{
		Name: "log-to", What: "log", Doc: "`kernel`: rules with `log` write to the kernel log, at most five packets a second for each line. `netlink`: they send to netlink log group 5171, and so do the defaults that drop or reject; `sluice log` shows each packet with its line. At most 50 packets a second are sent for each line, and 30 a minute for each source and line.",
		Text: source.OneOf("kernel", "netlink"), Examples: []string{"netlink"},
	},
	{Name: "flag", What: "a flag", Doc: "`true` or `false`.", Text: source.Boolean(), Examples: []string{"true"}},
	{Name: "nats", What: "nat", Doc: "A list of translations.", List: "nat", Null: true, Examples: []string{"- masquerade out wan\n- redirect tcp/8080 in wan to 10.20.0.5:80"}},
	{
		Name: "nat", What: "a line of nat", Doc: "One line of words, or a mapping of the same. See \"NAT\".",
		Text: source.Matching(`^\s*(masquerade|redirect|map)(\s|$)`),
		Keys: []source.Key{
			{Name: "masquerade", Shape: "masquerade", Doc: "`ipv4`, `ipv6`, or `any` for both."},
			{Name: "redirect", Shape: "words", Doc: "redirect: the service, with ports."},
			{Name: "map", Shape: "address", Doc: "map: the prefix that the outside sees."},
			{Name: "from", Shape: "words", Doc: "masquerade: WHO sends the packets."},
			{Name: "out", Shape: "words", Doc: "masquerade: the zone that packets leave by."},
			{Name: "as", Shape: "address", Doc: "masquerade: the source address to use instead of that of the interface."},
			{Name: "family", Shape: "family", Doc: "redirect: `ipv4` or `ipv6`."},
			{Name: "in", Shape: "words", Doc: "redirect: for connections to the addresses of this zone."},
			{Name: "on", Shape: "addresses", Doc: "redirect: for connections to these addresses."},
			{Name: "to", Shape: "words", Doc: "redirect: `ADDRESS:PORT`, `ADDRESS` or `:PORT`; map: the prefix inside."},
			{Name: "stateless", Shape: "flag", Doc: "map: translate without connection state, in headers only."},
		},
		OneOf: []string{"masquerade", "redirect", "map"},
		Examples: []string{
			"masquerade from 10.20.0.0/16 out wan ipv4", "{masquerade: ipv4, from: 10.20.0.0/16, out: wan}",
			"{redirect: tcp/8080, in: wan, to: \"10.20.0.5:80\"}", "{map: 198.51.100.16/28, to: 10.20.1.0/28, stateless: true}",
		},
	},
	{Name: "expectations", What: "expect", Doc: "A list of expectations, in the policy or in a file of its own, which has only `version: 1` beside it.", List: "expectation", Null: true, Examples: []string{"- allow tcp/443 from 203.0.113.7\n- deny ssh from not 203.0.113.0/24"}},
	{
		Name: "expectation", What: "an expectation", Doc: "One line of words, or a mapping of the same. See \"Expectations\".",
		Text: source.Matching(`^\s*(allow|drop|reject|deny)(\s|$)`),
		Keys: slices.Concat([]source.Key{
			{Name: "allow", Shape: "words", Doc: "These packets pass: a service, a list, or `any`."},
			{Name: "drop", Shape: "words", Doc: "These packets are dropped."},
			{Name: "reject", Shape: "words", Doc: "These packets are rejected."},
			{Name: "deny", Shape: "words", Doc: "These packets are dropped or rejected."},
			{Name: "published", Shape: "flag", Doc: "The port and address are those before the DNAT of another tool."},
		}, packetKeys, []source.Key{
			{Name: "user", Shape: "users", Doc: "The user of this host who sends it, or a list."},
			{Name: "on", Shape: "hook", Doc: "The direction of the packets, if the other words do not imply it."},
			{Name: "state", Shape: "states", Doc: "The state of the packets in connection tracking. Default: `new`."},
		}),
		OneOf:    []string{"allow", "drop", "reject", "deny"},
		Examples: []string{"deny ssh from not 203.0.113.0/24", "{deny: ssh, from: not 203.0.113.0/24}", "reject smtp on output"},
	},
	{Name: "hook", What: "on", Doc: "`input`, `output` or `forward`.", Text: source.OneOf(hookWords...), Examples: []string{"output"}},
	{Name: "states", What: "state", Doc: "One state or a list.", Text: source.OneOf(stateWords...), List: "state", Examples: []string{"established", "[established, related]"}},
	{Name: "state", What: "a state", Doc: "`new`, `established`, `related` or `invalid`.", Text: source.OneOf(stateWords...), Examples: []string{"new"}},
	{Name: "masquerade", What: "masquerade", Doc: "`ipv4`, `ipv6` or `any`.", Text: source.OneOf("any", "ipv4", "ipv6"), Examples: []string{"ipv4"}},
}

// packetKeys say of which packets a rule or an expectation is.
var packetKeys = []source.Key{
	{Name: "family", Shape: "family", Doc: "`ipv4` or `ipv6`. Default: both."},
	{Name: "from", Shape: "words", Doc: "Source: WHO."},
	{Name: "to", Shape: "words", Doc: "Destination: WHO."},
	{Name: "in", Shape: "words", Doc: "Incoming interface: a zone."},
	{Name: "out", Shape: "words", Doc: "Outgoing interface: a zone."},
}

var bypassKeys = []source.Key{
	{Name: "service", Shape: "words", Doc: "The service, with ports.", Required: true},
	{Name: "to", Shape: "words", Doc: "Only where this is the local address."},
}

var sectionKeys = []source.Key{
	{Name: "default", Shape: "default", Doc: "The action for packets that no rule matches."},
	{Name: "rules", Shape: "rules", Doc: "The rules, in order."},
}

func timeoutKeys() []source.Key {
	var out []source.Key
	for _, name := range timeoutNames {
		out = append(out, source.Key{Name: name, Shape: "duration", Doc: "net.netfilter." + (Timeout{Name: name}).Sysctl()})
	}
	return out
}
