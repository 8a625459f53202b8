package config

import (
	"strings"

	"sluice/internal/language/source"
)

// dialect is what the file differs in from other files.
var dialect = &source.Dialect{
	MaxSize: 1 << 20,
	TooLong: "name groups in the place of users",
	Anchors: "write it where it holds",
	Second:  "leave the second one out",
}

// grammar is the whole of it.
var grammar = &source.Language{Title: "Sluice agent", Shapes: []*source.Shape{
	{
		Name: "agent", What: "the agent's file",
		Doc: "The file is one YAML mapping. Every key but `version` may be left out.",
		Keys: []source.Key{
			{Name: "version", Shape: "version", Doc: "The version of the file's language.", Required: true},
			{Name: "may-read", Shape: "people", Doc: "Who may ask the agent what runs; `group sluice` when left out. Who may change may read too."},
			{Name: "may-change", Shape: "people", Doc: "Who, beside root, may have the agent change the firewall: bans, confirmations, going back to an earlier generation."},
			{Name: "namespaces", Shape: "namespaces", Doc: "Network namespaces of `ip netns` that it serves beside its own, as soon as they are there; none when left out. Not with `--netns`, which is served alone."},
		},
		Examples: []string{"{version: 1}", "{version: 1, may-change: group netops}"},
	},
	{Name: "version", What: "version", Doc: "`1`.", Text: &source.Scalar{JSON: "integer", Enum: []string{"1"}}, Examples: []string{"1"}},
	{
		Name: "people", What: "people", Doc: "Users and groups of this host. `[]` is nobody but root.",
		Text: &source.Scalar{JSON: "string|integer"}, List: "person", Examples: []string{"group netops", "[alice, group netops]", "[]"},
	},
	{
		Name: "person", What: "a user or group", Doc: "The name or number of a user; behind the word `group`, of a group.",
		Text: &source.Scalar{JSON: "string|integer"}, Examples: []string{"alice", "1000", "group netops"},
	},
	{
		Name: "namespaces", What: "network namespaces", Doc: "Names of network namespaces, with a state of their own each.",
		Text: &source.Scalar{JSON: "string|integer"}, List: "namespace", Examples: []string{"customer7", "[customer7, vm-*]"},
	},
	{
		Name: "namespace", What: "a network namespace", Doc: "The name of a network namespace. `*` stands for any characters, or none.",
		Text: &source.Scalar{JSON: "string|integer"}, Examples: []string{"customer7", "vm-*"},
	},
}}

// Schema is the JSON Schema of the file.
func Schema() []byte { return grammar.Schema() }

// Reference is the reference of the file, as Markdown.
func Reference() []byte {
	var b strings.Builder
	b.WriteString(`# The agent's file

This page is made from the table of the parser (` + "`make generate`" + `); a JSON Schema of
the same content is printed by ` + "`sluice schema agent`" + `.

` + "`sluice agent`" + ` reads ` + "`" + Default + "`" + ` when it starts, where there is one, and
` + "`sluice agent check`" + ` says what is wrong with it. Root may read and change whatever it says.

` + "```yaml" + `
version: 1
may-read: [monitoring, group sluice]
may-change: group netops
namespaces: [customer7, vm-*]
` + "```" + `

Anchors, aliases, merge keys and tags of YAML are refused. Where a list is wanted, a
single value may stand alone.

`)
	grammar.WriteShapes(&b)
	return []byte(b.String())
}
