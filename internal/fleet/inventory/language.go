package inventory

import (
	"strings"

	"sluice/internal/language/source"
)

// dialect is what the file differs in from other files.
var dialect = &source.Dialect{
	MaxSize: 8 << 20, // what the YAML of it takes in memory is a hundred times as much
	TooLong: "leave out labels that no selector asks for; beyond that a controller keeps the hosts",
	Anchors: "write it where it holds",
	Second:  "leave the second one out",
}

const interfacePattern = `^[^/\s]{1,15}$`

// grammar is the whole of it.
var grammar = &source.Language{Title: "Sluice inventory", Shapes: []*source.Shape{
	{
		Name: "inventory", What: "the inventory",
		Doc: "The file is one YAML mapping.",
		Keys: []source.Key{
			{Name: "version", Shape: "version", Doc: "The version of the file's language.", Required: true},
			{Name: "hosts", Shape: "hosts", Doc: "The hosts of the fleet, by name."},
			{Name: "guests", Shape: "guests", Doc: "Guests that run on these hosts, by name."},
		},
		Examples: []string{"version: 1\nhosts:\n  web-1: { labels: {role: web, env: prod}, addresses: [203.0.113.5, \"2001:db8:7::5\"], facts: facts/web.json }"},
	},
	source.Version1(),
	{Name: "hosts", What: "hosts", Doc: "Names have lowercase letters, digits, dots and hyphens.", Values: "host", Null: true, Examples: []string{"{web-1: {labels: {role: web}}}"}},
	{
		Name: "host", What: "a host", Doc: "What is known of a host.",
		Keys: []source.Key{
			{Name: "labels", Shape: "labels", Doc: "Parts and sets select it by these."},
			{Name: "addresses", Shape: "addresses", Doc: "Those that sets by `hosts` contain."},
			{Name: "facts", Shape: "path", Doc: "A file that `sluice facts --json` wrote on it, relative to this one. Similar hosts may share one. Without it the policy is compiled for a host without known facts."},
		},
		Null:     true,
		Examples: []string{"{labels: {role: db}, addresses: 203.0.113.20, facts: facts/db-1.json}"},
	},
	{Name: "guests", What: "guests", Doc: "Names are like those of hosts.", Values: "guest", Null: true, Examples: []string{"{vm-1: {host: hv-1, interface: tap0, addresses: 10.30.0.5}}"}},
	{
		Name: "guest", What: "a guest", Doc: "A machine on a host.",
		Keys: []source.Key{
			{Name: "host", Shape: "host-name", Doc: "The host that it runs on.", Required: true},
			{Name: "interface", Shape: "interface", Doc: "The interface of the host that it is attached to.", Required: true},
			{Name: "addresses", Shape: "addresses", Doc: "Its own.", Required: true},
			{Name: "public", Shape: "addresses", Doc: "Public addresses that lead to it."},
			{Name: "labels", Shape: "labels", Doc: "Sets by `guests` select it by these."},
		},
		Examples: []string{"{host: hv-1, interface: tap0, addresses: [10.30.0.5], public: [203.0.113.9], labels: {app: api}}"},
	},
	{Name: "host-name", What: "the name of a host", Doc: "One of `hosts`.", Text: source.AnyText(), Examples: []string{"hv-1"}},
	{Name: "interface", What: "an interface", Doc: "Its name.", Text: source.Matching(interfacePattern), Examples: []string{"tap0"}},
	{Name: "labels", What: "labels", Doc: "Names and values, 64 at most.", Values: "label", Null: true, Examples: []string{"{role: web, env: prod}"}},
	{Name: "label", What: "a label", Doc: "A value.", Text: source.AnyText(), Examples: []string{"web"}},
	{Name: "addresses", What: "addresses", Doc: "256 at most.", Text: source.AnyText(), List: "address", Null: true, Examples: []string{"203.0.113.5", "[203.0.113.5, \"2001:db8:7::5\"]"}},
	{Name: "address", What: "an address", Doc: "An address; for guests also a prefix.", Text: source.AnyText(), Examples: []string{"203.0.113.5", "\"2001:db8:30::/64\""}},
	{Name: "path", What: "a path", Doc: "A file.", Text: source.AnyText(), Examples: []string{"facts/web-1.json"}},
}}

// Schema is the JSON Schema of the file.
func Schema() []byte { return grammar.Schema() }

// Reference is the reference of the file, as Markdown.
func Reference() []byte {
	var b strings.Builder
	b.WriteString(`# The inventory of a fleet

This page is made from the table of the parser (` + "`make generate`" + `).

` + "`inventory.yaml`" + ` beside ` + "`fleet.yaml`" + ` says which hosts there are, for
` + "`sluice-controller check`" + ` and the other commands that work in a repository, without a
controller. [The policy of a fleet](../concepts/fleet.md#parts) says what selectors and sets make
of it.

` + "```yaml" + `
version: 1
hosts:
  web-1: { labels: {role: web, env: prod}, addresses: [203.0.113.5, "2001:db8:7::5"], facts: facts/web.json }
  web-2: { labels: {role: web, env: prod}, addresses: [203.0.113.6], facts: facts/web.json }
  hv-1: { labels: {role: hypervisor} }
guests:
  vm-1: { host: hv-1, interface: tap0, addresses: [10.30.0.5], public: [203.0.113.9], labels: {app: api} }
` + "```" + `

Anchors, aliases, merge keys and tags of YAML are refused. Where a list is wanted, a
single value may stand alone.

`)
	grammar.WriteShapes(&b)
	return []byte(b.String())
}
