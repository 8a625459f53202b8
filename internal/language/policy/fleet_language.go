package policy

import "sluice/internal/language/source"

// fleetShapes are those of the files of a fleet that are no policy.
var fleetShapes = []*source.Shape{
	{
		Name: "fleet", What: "the fleet",
		Doc: "The file of a fleet says what is one for all of its hosts, and where the parts of their policies are. A host's policy is this file and the parts that are of it.",
		Keys: []source.Key{
			{Name: "version", Shape: "version", Doc: "The version of the language.", Required: true},
			{Name: "fleet", Shape: "fleet-name", Doc: "The name of the fleet.", Required: true},
			{Name: "parts", Shape: "parts", Doc: "The files of the parts.", Required: true},
			{Name: "sets", Shape: "sets", Doc: "Sets for all parts. Those by `hosts` and `guests` can stand here alone."},
			{Name: "bans", Shape: "fleet-bans", Doc: "What the controller may ban on hosts, by the key that it has. Without it nothing."},
			{Name: "exceptions", Shape: "exceptions", Doc: "Whom the controller may let in on hosts, by the key that it has, and for how long. Without it nobody. What commands of a host may, a part says."},
			{Name: "roll-out", Shape: "roll-out", Doc: "How hosts come to a new policy."},
			{Name: "access", Shape: "access", Doc: "What people may do at the controller."},
		},
		Examples: []string{"version: 1\nfleet: example.net\nparts: [parts/*.yaml]\nsets:\n  web: { hosts: \"role=web and env=prod\", within: [203.0.113.0/24, \"2001:db8:7::/48\"] }"},
	},
	{Name: "fleet-name", What: "the name of a fleet", Doc: "Small letters, digits, dots and hyphens, such as a domain.", Text: source.Matching(fleetPattern), Examples: []string{"example.net"}},
	{
		Name: "parts", What: "parts", Doc: "Files or patterns with `*`, `?` and `[…]`, relative to this file. A part is a policy without `include` that says in `hosts` which hosts it is of. Parts join in this order, those of one pattern in the order of their names: their rules follow each other, and what can be said once may be said by one part of a host alone.",
		Text: source.AnyText(), List: "path", Examples: []string{"[parts/*.yaml]"},
	},
	{Name: "selector", What: "a selector", Doc: "Which hosts or guests, by their labels: `role=web`, `role!=web`, `role` (it has the label), `not`, `and`, `or`, and parentheses. The name of a host is its label `host`.", Text: source.AnyText(), Examples: []string{"role=web and env=prod", "\"not (role=db or host=web-1)\""}},
	{
		Name: "fleet-bans", What: "bans", Doc: "Bounds of what the controller bans. What `never-ban` has, who is logged in by ssh, and what else a command refuses to ban is not banned by it either.",
		Keys: []source.Key{
			{Name: "max", Shape: "number", Doc: "How many of its bans a host has at a time, at most 1000000; 100000 when left out."},
			{Name: "for", Shape: "duration", Doc: "The longest time of a ban; `7d` when left out."},
			{Name: "widest", Shape: "widest", Doc: "How large a prefix may be banned; `[24, 48]` when left out."},
		},
		Null: true, Examples: []string{"{max: 500000, for: 7d, widest: [24, 48]}"},
	},
	{Name: "widest", What: "widest", Doc: "The lengths of the shortest prefix of IPv4 and of IPv6. A range has no more addresses than that prefix.", List: "number", Examples: []string{"[24, 48]"}},
	{
		Name: "roll-out", What: "roll-out",
		Doc: "A new policy comes to hosts in stages, each of which has those of the stages before it too. A host confirms it when it is proved in the kernel and each probe succeeds, and else takes it back by itself.",
		Keys: []source.Key{
			{Name: "stages", Shape: "stages", Doc: "How many hosts have it after each stage; `[1 per class, 5%, 25%, 100%]` when left out."},
			{Name: "settle", Shape: "grace", Doc: "How long every host of a stage has to stay confirmed before the next; `60s` when left out."},
			{Name: "confirm", Shape: "duration", Doc: "Within which a host has to confirm it once it is applied; `60s` when left out."},
			{Name: "probes", Shape: "probes", Doc: "What a host tries before it confirms."},
			{Name: "halt", Shape: "halt", Doc: "What halts it; one failed host of the first stage, and 1 % of the others, when left out."},
			{Name: "on-halt", Shape: "on-halt", Doc: "What follows a halt; `revert` when left out."},
			{Name: "freeze", Shape: "freezes", Doc: "Times of the week in which no stage begins."},
		},
		Null: true, Examples: []string{"stages: [1 per class, 5%, 25%, 100%]\nsettle: 60s\nprobes: [https://localhost/healthz, controller]\nhalt: { failed: 1 }\nfreeze: [Fri 16:00 - Mon 08:00 Europe/Berlin]"},
	},
	{Name: "access", What: "access", Doc: "What people who log in at the controller may do: all that one of these gives them. Nobody else may do anything, but who asks on the controller's own machine, and who has a token.", List: "grant", Null: true, Examples: []string{"- { who: \"oidc:netops\", role: operator, hosts: env=prod }\n- { who: \"user:erika@example.net\", role: admin }"}},
	{
		Name: "grant", What: "an access", Doc: "Who has which role, for which hosts.",
		Keys: []source.Key{
			{Name: "who", Shape: "who", Doc: "Of whom it is.", Required: true},
			{Name: "role", Shape: "role", Doc: "What they may do.", Required: true},
			{Name: "hosts", Shape: "selector", Doc: "The hosts for which they may; all when left out."},
		},
		Examples: []string{"{ who: \"oidc:netops\", role: operator, hosts: env=prod }"},
	},
	{Name: "who", What: "who", Doc: "`oidc:GROUP`, who is in a group of the provider that people log in with, or `user:NAME`, one of them, by the address of their mail.", Text: source.Matching(whoPattern), Examples: []string{"oidc:netops", "user:erika@example.net"}},
	{Name: "role", What: "role", Doc: "`viewer`: reads. `operator`: and changes what holds for a while. `admin`: and changes what is signed, enrolled or allowed to whom.", Text: source.OneOf(roles...), Examples: []string{"operator"}},
	{Name: "stages", What: "stages", Doc: "A list of stages, of which the last is `100%`.", Text: source.AnyText(), List: "stage", Examples: []string{"[1 per class, 5%, 25%, 100%]"}},
	{Name: "stage", What: "a stage", Doc: "`N per class`: as many of each kind of host, which are hosts that have the same parts and are alike in what matters to these. `N hosts`. `P%` of all hosts.", Text: source.Matching(`^\s*([0-9]+ per class|[0-9]+ hosts?|[0-9.]+ ?%)\s*$`), Examples: []string{"1 per class", "3 hosts", "5%"}},
	{Name: "probes", What: "probes", Doc: "One probe or a list.", Text: source.AnyText(), List: "probe", Null: true, Examples: []string{"[https://localhost/healthz, tcp db-1.example.net:5432, controller]"}},
	{Name: "probe", What: "a probe", Doc: "A URL that has to answer with a status below 400, `tcp HOST:PORT` to which a connection has to open, or `controller`, to one of which the host has to come anew.", Text: source.AnyText(), Examples: []string{"https://localhost/healthz", "tcp db-1.example.net:5432", "controller"}},
	{Name: "halt", What: "halt", Doc: "What halts a roll-out.", Keys: []source.Key{{Name: "failed", Shape: "failed", Doc: "How many hosts that failed, or what part of those that were told.", Required: true}}, Examples: []string{"{failed: 1}", "{failed: 1%}"}},
	{Name: "failed", What: "failed", Doc: "A number of hosts, or a percentage.", Text: &source.Scalar{JSON: "string|integer"}, Examples: []string{"1", "1%"}},
	{Name: "on-halt", What: "on-halt", Doc: "`revert`: hosts go back to what they had. `hold`: they keep what they have.", Text: source.OneOf("revert", "hold"), Examples: []string{"revert"}},
	{Name: "freezes", What: "freeze", Doc: "One time or a list.", Text: source.AnyText(), List: "freeze", Null: true, Examples: []string{"[Fri 16:00 - Mon 08:00 Europe/Berlin]"}},
	{Name: "freeze", What: "freeze", Doc: "A day and a time of day, to another one, by the clocks of a place of the IANA database. What has begun settles, and a halt reverts.", Text: source.Matching(`^\s*[A-Z][a-z]{2} [0-9]{2}:[0-9]{2}\s*-\s*[A-Z][a-z]{2} [0-9]{2}:[0-9]{2} [A-Za-z]+[A-Za-z0-9_+/-]*\s*$`), Examples: []string{"Fri 16:00 - Mon 08:00 Europe/Berlin"}},
	{
		Name: "host", What: "the view of a host",
		Doc: "What a host is in its fleet. With this file, which is written by whom the fleet is run by, the host's policy is loaded as any other is.",
		Keys: []source.Key{
			{Name: "version", Shape: "version", Doc: "The version of the language.", Required: true},
			{Name: "fleet", Shape: "path", Doc: "The file of the fleet, relative to this one. Of its parts those that are on this host are read.", Required: true},
			{Name: "host", Shape: "host-name", Doc: "The name of the host.", Required: true},
			{Name: "labels", Shape: "labels", Doc: "Its labels, which say which parts are of it."},
			{Name: "members", Shape: "members", Doc: "What the sets by `hosts` and `guests` hold now, by their names. A set that is not named is empty, and a name that no set has counts for nothing."},
			{Name: "guests", Shape: "own-guests", Doc: "The machines on this host, by name."},
			{Name: "lists", Shape: "path", Doc: "The folder of what each `url` without `refresh` served when the policy was signed, relative to this file. No server is asked for these."},
		},
		Examples: []string{"version: 1\nfleet: fleet.yaml\nhost: web-1\nlabels: {role: web, env: prod}\nmembers: {web: [203.0.113.5, \"2001:db8:7::5\"]}"},
	},
	{Name: "host-name", What: "the name of a host", Doc: "Letters, digits, dots, `_` and hyphens.", Text: source.Matching(hostPattern), Examples: []string{"web-1"}},
	{Name: "labels", What: "labels", Doc: "Names and values.", Values: "label", Null: true, Examples: []string{"{role: web, env: prod}"}},
	{Name: "label", What: "a label", Doc: "A value.", Text: source.AnyText(), Examples: []string{"web"}},
	{Name: "own-guests", What: "guests", Doc: "Guests by name. Their addresses are the set `guests` in the policies of a fleet.", Values: "guest", Null: true, Examples: []string{"vm-1: {interface: tap0, addresses: [10.30.0.5], public: [203.0.113.9], labels: {app: api}}"}},
	{
		Name: "guest", What: "a guest", Doc: "A machine on the host. No two have an interface or an address in common.",
		Keys: []source.Key{
			{Name: "interface", Shape: "interface", Doc: "The interface of the host by which it comes, as routing sees it: no port of a bridge.", Required: true},
			{Name: "addresses", Shape: "addresses", Doc: "What it may send from.", Required: true},
			{Name: "public", Shape: "addresses", Doc: "Addresses that lead to it from outside."},
			{Name: "labels", Shape: "labels", Doc: "Its labels."},
			{Name: "rules", Shape: "path", Doc: "The file of its owner's rules, in the folder `guest-rules` beside this file. It has `forward` with rules alone, each of which has a `to` or a `from` that is addresses of the guest, which are the set `me`; `expect` with such a `to` or `from`; and `services` and `sets` that are lists, whose names are its own. Its rules follow those of all parts. What is allowed `from` the guest opens no other guest of the host."},
		},
		Examples: []string{"{interface: tap0, addresses: [10.30.0.5, \"2001:db8:30::5\"], public: [203.0.113.9], labels: {app: api}}"},
	},
	{
		Name: "guests", What: "guests", Doc: "What is done for the guests of a host.",
		Keys: []source.Key{
			{Name: "enforce", Shape: "enforce", Doc: "Where a guest is held to its addresses."},
			{Name: "public", Shape: "public", Doc: "How public addresses lead to their guests."},
		},
		Examples: []string{"{enforce: forward, public: map}"},
	},
	{
		Name: "only-guests", What: "only",
		Doc:  "`guests SELECTOR`: the part is of these guests, on hosts that have one. It has `forward` with rules alone, each with a `to` that names their addresses or sets by the same selector, or by it `and` more; `expect` with such a `to`, of what is forwarded; and `services` and `sets` that are lists, whose names are its own. Its rules follow those of all other parts. A part with an error keeps its last text that ran and had none, or is left out, as a file that is included with `only` is.",
		Text: source.Matching(`^\s*guests\s+\S`), Examples: []string{"guests app=shop", "guests app=shop and env=prod"},
	},
	{Name: "enforce", What: "enforce", Doc: "`forward`: what comes by the interface of a guest from an address that is not its own is dropped in `input` and `forward`, before bans and whatever flow it says to be of. Link-local sources, and those of who has no address yet, are any guest's.", Text: source.OneOf("forward"), Examples: []string{"forward"}},
	{Name: "public", What: "public", Doc: "`map`: as by a line of `nat` before the others, `map PUBLIC to ADDRESS`, the first public address of a family to the guest's first of it, and so on.", Text: source.OneOf("map"), Examples: []string{"map"}},
	{Name: "drift", What: "drift", Doc: "`report`: the host reports what differs. `restore`: it puts back what the policy says too, three times in ten minutes, and then no more until somebody applies or restores.", Text: source.OneOf("report", "restore"), Examples: []string{"restore"}},
	{Name: "members", What: "members", Doc: "Addresses by the names of sets.", Values: "addresses", Null: true, Examples: []string{"{web: [203.0.113.5, \"2001:db8:7::5\"]}"}},
}
