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
			{Name: "exceptions", Shape: "exceptions", Doc: "Whom commands may let in on each host, and for how long."},
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
		Name: "host", What: "the view of a host",
		Doc: "What a host is in its fleet. With this file, which is written by whom the fleet is run by, the host's policy is loaded as any other is.",
		Keys: []source.Key{
			{Name: "version", Shape: "version", Doc: "The version of the language.", Required: true},
			{Name: "fleet", Shape: "path", Doc: "The file of the fleet, relative to this one. Of its parts those that are on this host are read.", Required: true},
			{Name: "host", Shape: "host-name", Doc: "The name of the host.", Required: true},
			{Name: "labels", Shape: "labels", Doc: "Its labels, which say which parts are of it."},
			{Name: "members", Shape: "members", Doc: "What the sets by `hosts` and `guests` hold now, by their names. A set that is not named is empty, and a name that no set has counts for nothing."},
		},
		Examples: []string{"version: 1\nfleet: fleet.yaml\nhost: web-1\nlabels: {role: web, env: prod}\nmembers: {web: [203.0.113.5, \"2001:db8:7::5\"]}"},
	},
	{Name: "host-name", What: "the name of a host", Doc: "Letters, digits, dots, `_` and hyphens.", Text: source.Matching(hostPattern), Examples: []string{"web-1"}},
	{Name: "labels", What: "labels", Doc: "Names and values.", Values: "label", Null: true, Examples: []string{"{role: web, env: prod}"}},
	{Name: "label", What: "a label", Doc: "A value.", Text: source.AnyText(), Examples: []string{"web"}},
	{Name: "members", What: "members", Doc: "Addresses by the names of sets.", Values: "addresses", Null: true, Examples: []string{"{web: [203.0.113.5, \"2001:db8:7::5\"]}"}},
}
