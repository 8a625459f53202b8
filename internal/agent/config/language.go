package config

import (
	"strings"

	"sluice/internal/language/source"
)

// dialect is what the file differs in from other files.
var dialect = &source.Dialect{
	MaxSize:  1 << 20,
	TooLong:  "name groups in place of users",
	Anchors:  "write it where it holds",
	Second:   "leave the second one out",
	Language: grammar,
}

// grammar is the whole of it.
var grammar = &source.Language{Title: "Sluice agent", Shapes: []*source.Shape{
	{
		Name: "agent", What: "the agent's file",
		Doc: "The file is one YAML mapping. Every key but `version` is optional.",
		Keys: []source.Key{
			{Name: "version", Shape: "version", Doc: "The version of the file's language.", Required: true},
			{Name: "may-read", Shape: "people", Doc: "Who may read through the agent. Default: `group sluice`. Those who may change may also read."},
			{Name: "may-change", Shape: "people", Doc: "Who besides root may change the firewall through the agent: apply, confirm, roll back, ban, allow."},
			{Name: "namespaces", Shape: "namespaces", Doc: "Network namespaces of `ip netns` that it serves in addition to its own, as soon as they exist. Default: none. Not with `--netns`, which serves one only."},
			{Name: "lists", Shape: "lists", Doc: "Whether it downloads the lists of the running policies (sets with `url`) when they are due, as `sluice refresh` does. Default: `refresh`."},
			{Name: "countries", Shape: "countries", Doc: "Where it downloads country data from, which it then loads into the rules of policies that name countries. Default: it downloads none. `sluice geo update` without `--from` uses the same publishers."},
			{Name: "metrics", Shape: "metrics", Doc: "Where Prometheus can read metrics, in addition to the socket."},
			{Name: "log", Shape: "log", Doc: "What it keeps of the packets that a policy with `log: netlink` logs."},
			{Name: "drift", Shape: "drift", Doc: "What to do when others change the rules. Default: `report`."},
			{Name: "alerts", Shape: "alerts", Doc: "Who is notified of findings, besides the journal."},
			{Name: "fleet", Shape: "fleet", Doc: "What it tells the fleet of the host."},
		},
		Examples: []string{"{version: 1}", "{version: 1, lists: manual, countries: {from: [dbip, registries]}}", "{version: 1, may-change: group netops}", "{version: 1, drift: restore, alerts: {command: [/usr/local/bin/page, --urgent]}}"},
	},
	source.Version1(),
	{
		Name: "people", What: "people", Doc: "Users and groups of this host. `[]` is nobody but root.",
		Text: source.TextOrNumber(), List: "person", Examples: []string{"group netops", "[alice, group netops]", "[]"},
	},
	{
		Name: "person", What: "a user or group", Doc: "The name or number of a user, or of a group after the word `group`.",
		Text: source.TextOrNumber(), Examples: []string{"alice", "1000", "group netops"},
	},
	{
		Name: "namespaces", What: "network namespaces", Doc: "Names of network namespaces. Each has its own state.",
		Text: source.TextOrNumber(), List: "namespace", Examples: []string{"customer7", "[customer7, vm-*]"},
	},
	{
		Name: "namespace", What: "a network namespace", Doc: "The name of a network namespace. `*` stands for any characters, or none.",
		Text: source.TextOrNumber(), Examples: []string{"customer7", "vm-*"},
	},
	{
		Name: "lists", What: "lists", Doc: "`refresh`: each list when its `refresh` in the policy says so. `manual`: only by commands and timers.",
		Text: source.OneOf("refresh", "manual"), Examples: []string{"refresh", "manual"},
	},
	{
		Name: "countries", What: "countries", Doc: "Where country data come from.",
		Keys: []source.Key{
			{Name: "from", Shape: "publishers", Doc: "The publishers. The first decides, and the others add addresses that it does not cover.", Required: true},
			{Name: "every", Shape: "every", Doc: "How often it downloads, approximately. Default: `monthly`."},
		},
		Examples: []string{"{from: dbip}", "{from: [dbip, registries], every: weekly}"},
	},
	{
		Name: "publishers", What: "publishers", Doc: "Publishers of country data.",
		Text: source.AnyText(), List: "publisher", Examples: []string{"dbip", "[dbip, registries]", "[one=https://data.example.net/v4.csv, one=https://data.example.net/v6.csv]"},
	},
	{
		Name: "publisher", What: "a publisher", Doc: "`dbip`, `registries`, or a URL or the whole path of a file, as for `sluice geo update --from`. Those with the same `NAME=` before them count as one publisher.",
		Text: source.Matching(publisherPattern), Examples: []string{"dbip", "registries", "https://data.example.net/countries.mmdb", "own=/srv/countries.csv"},
	},
	{
		Name: "every", What: "every", Doc: "`daily`, `weekly` or `monthly`, which is 30 days.",
		Text: source.OneOf("daily", "weekly", "monthly"), Examples: []string{"daily", "monthly"},
	},
	{
		Name: "metrics", What: "metrics", Doc: "It answers only `GET /metrics`. Everybody who can reach the address can read them.",
		Keys: []source.Key{
			{Name: "listen", Shape: "address", Doc: "The address, in the agent's own network namespace.", Required: true},
		},
		Examples: []string{"{listen: 127.0.0.1:9469}"},
	},
	{
		Name: "address", What: "an address", Doc: "An IP address and a port from 1024 on; an IPv6 address in brackets, and the whole in quotes. `0.0.0.0` and `[::]` are all addresses of the host.",
		Text: source.AnyText(), Examples: []string{"127.0.0.1:9469", "'[2001:db8::7]:9469'"},
	},
	{
		Name: "log", What: "log", Doc: "What is kept of the log, in each network namespace.",
		Keys: []source.Key{
			{Name: "size", Shape: "size", Doc: "How much disk space it may use. Without `log`: `64MiB`.", Required: true},
		},
		Examples: []string{"{size: 256MiB}", "{size: none}"},
	},
	{
		Name: "size", What: "a size", Doc: "From `1MiB` to `1024GiB`; `none` keeps nothing and leaves the log to other programs.",
		Text: source.Matching(sizePattern), Examples: []string{"64MiB", "2GiB", "none"},
	},
	{
		Name: "drift", What: "drift", Doc: "`report` reports it; `restore` also restores the policy, three times in ten minutes at most.",
		Text: source.OneOf("report", "restore"), Examples: []string{"restore"},
	},
	{
		Name: "alerts", What: "alerts", Doc: "They are notified one after another, and each may take 10 seconds.",
		Keys: []source.Key{
			{Name: "command", Shape: "arguments", Doc: "A program with its arguments, run without a shell. It gets the fields of the journal in its environment, and the whole alert as JSON on standard input."},
			{Name: "webhook", Shape: "url", Doc: "Where to send the same JSON by POST."},
		},
		Examples: []string{"{command: [/usr/local/bin/page, --urgent]}", "{webhook: 'https://alerts.example.net/sluice'}"},
	},
	{
		Name: "arguments", What: "a command", Doc: "The path of a program, and its arguments.",
		Text: source.AnyText(), List: "argument", Examples: []string{"/usr/local/bin/page", "[/usr/local/bin/page, --urgent]"},
	},
	{Name: "argument", What: "an argument", Doc: "One argument.", Text: source.AnyText(), Examples: []string{"--urgent"}},
	{
		Name: "fleet", What: "fleet", Doc: "What the controller of its fleet may ask the agent, in addition to what the host reports.",
		Keys: []source.Key{
			{Name: "questions", Shape: "questions", Doc: "Which questions it answers. Without `fleet`: `all`.", Required: true},
		},
		Examples: []string{"{questions: status}"},
	},
	{
		Name: "questions", What: "questions", Doc: "`none`; `status`: what runs, its counters and meaning, and what is wrong; `all`: also who sends packets, has connections and is banned. No question changes anything.",
		Text: source.OneOf("none", "status", "all"), Examples: []string{"none", "status"},
	},
	{Name: "url", What: "a URL", Doc: "A URL of http or https.", Text: source.Matching("^https?://"), Examples: []string{"https://alerts.example.net/sluice"}},
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
countries: {from: [dbip, registries]}
namespaces: [customer7, vm-*]
` + "```" + `

Anchors, aliases, merge keys and tags of YAML are refused. Where a list is wanted, a
single value may stand alone.

`)
	grammar.WriteShapes(&b)
	b.WriteString(alerts)
	return []byte(b.String())
}

// alerts is what an alert says, by the names of packages alert and apply, which a test of
// alert compares with these.
const alerts = `
## Alerts

An alert is a line in the journal (` + "`journalctl -u sluice-agent SLUICE_EVENT=drift -o verbose`" + `), on standard
error where there is no journal. ` + "`command`" + ` has the fields in its environment, with the text as ` + "`SLUICE_TEXT`" + `; it and
` + "`webhook`" + ` get all findings as JSON. Of 16 alerts that wait, the oldest is left out for a new one.

| field | content |
|---|---|
| ` + "`SLUICE_EVENT`" + ` | ` + "`drift`, `over`, `restored`, `not-restored`, `restore-stopped`; `not-renewed`, `renewed`; `refused`" + ` |
| ` + "`SLUICE_NAMESPACE`, `SLUICE_GENERATION`" + ` | which rules |
| ` + "`SLUICE_SET`" + ` | the list that was not renewed |
| ` + "`SLUICE_FINDINGS`" + ` | the number of findings; the following are of the first |
| ` + "`SLUICE_KIND`, `SLUICE_LINE`" + ` | its kind; its line of the policy |
| ` + "`SLUICE_BY`" + ` | names and numbers of the processes that changed the ruleset, as these report them |

| kind | difference |
|---|---|
| ` + "`gone`" + ` | the rules are gone |
| ` + "`mark`" + ` | table ` + "`sluice_generation`" + `, by which commands know what runs |
| ` + "`packet`" + ` | packets get something else than the policy says |
| ` + "`ban`" + ` | a ban does not hold, or nobody made it |
| ` + "`element`" + ` | an element that no packet made |
| ` + "`unread`" + ` | a rule in Sluice's tables whose meaning is not known |
| ` + "`sysctl`" + ` | a setting of the policy |
| ` + "`exception`" + ` | one that commands made and the rules lack, or lifted and the rules have |
| ` + "`chain`, `beside`" + ` | chains, programs and filters of other tools that can drop, rewrite or let pass; those that were there first are not reported |
| ` + "`closed`" + ` | a restore failed, and only ssh comes in |
| ` + "`unproved`" + ` | nothing could be proved, and why |
`
