package notices

import (
	"strings"

	"sluice/internal/language/source"
)

// File is the name of the file in a controller's directory.
const File = "notices.yaml"

// dialect is what the file differs in from other files.
var dialect = &source.Dialect{
	MaxSize: 1 << 20,
	TooLong: "put a list of people behind one address",
	Anchors: "write it where it holds",
	Second:  "leave the second one out",
}

const (
	remindPattern = `^(never|[1-9][0-9]{0,2}[hd])$`
	namePattern   = `^[a-z0-9][a-z0-9.-]{0,30}$`
)

// grammar is the whole of it.
var grammar = &source.Language{Title: "Sluice notices", Names: namePattern, Shapes: []*source.Shape{
	{
		Name: "notices", What: "the file of notices", Doc: "The file is one YAML mapping.",
		Keys: []source.Key{
			{Name: "version", Shape: "version", Doc: "The version of the file's language.", Required: true},
			{Name: "remind", Shape: "remind", Doc: "How often it is said again of something that it lasts; `1d` when left out."},
			{Name: "receivers", Shape: "receivers", Doc: "Who hears of it.", Required: true},
		},
		Examples: []string{"{version: 1, receivers: {here: {journal: true}}}", "{version: 1, remind: never, receivers: {pager: {webhook: {url: 'https://alerts.example.net/sluice'}, only: halted}}}"},
	},
	source.Version1(),
	{Name: "remind", What: "remind", Doc: "A number of hours or days, or `never`.", Text: source.Matching(remindPattern), Examples: []string{"12h", "1d", "never"}},
	{
		Name: "receivers", What: "receivers", Doc: "By names, of small letters, digits, dots and hyphens, 32 at most. What was sent is kept by the name: another name is another receiver.",
		Values: "receiver", Examples: []string{"{ops: {mail: {server: mail.example.net, from: sluice@example.net, to: ops@example.net}}, here: {journal: true}}"},
	},
	{
		Name: "receiver", What: "a receiver", Doc: "Exactly one way to it, and what it hears of.",
		Keys: []source.Key{
			{Name: "mail", Shape: "mail", Doc: "Mail."},
			{Name: "webhook", Shape: "webhook", Doc: "JSON that is sent by POST."},
			{Name: "journal", Shape: "journal", Doc: "Lines in the journal of the controller's machine; where it has none, the controller prints them."},
			{Name: "only", Shape: "kinds", Doc: "What it hears of; all when left out."},
		},
		OneOf:    []string{"mail", "webhook", "journal"},
		Examples: []string{"{journal: true}", "{webhook: {url: 'https://alerts.example.net/sluice'}, only: [halted, drift]}"},
	},
	{
		Name: "mail", What: "mail", Doc: "A mail holds all that is new, and each address gets the same one.",
		Keys: []source.Key{
			{Name: "server", Shape: "server", Doc: "The mail server.", Required: true},
			{Name: "tls", Shape: "tls", Doc: "How it is encrypted; `starttls` when left out."},
			{Name: "ca", Shape: "path", Doc: "A file of CA certificates (PEM) that the server's certificate must chain to; those that the machine trusts when left out."},
			{Name: "user", Shape: "text", Doc: "Who logs in; nobody when left out. Not with `tls: none`."},
			{Name: "password", Shape: "text", Doc: "With what."},
			{Name: "from", Shape: "address", Doc: "The sender.", Required: true},
			{Name: "to", Shape: "addresses", Doc: "Who gets it.", Required: true},
		},
		Examples: []string{"{server: 'mail.example.net:587', user: sluice, password: correct-horse, from: 'Sluice <sluice@example.net>', to: [ops@example.net]}"},
	},
	{Name: "server", What: "a server", Doc: "Its name or address, and a port where it is not that of `tls`: 587 of `starttls`, 465 of `implicit`, 25 of `none`.", Text: source.AnyText(), Examples: []string{"mail.example.net", "'mail.example.net:2525'", "'[2001:db8::25]:25'"}},
	{Name: "tls", What: "tls", Doc: "`starttls` upgrades the connection by STARTTLS, and gives up where the server does not offer it; `implicit` speaks TLS from the first byte; `none` sends everything in the clear.", Text: source.OneOf("starttls", "implicit", "none"), Examples: []string{"starttls", "implicit"}},
	{Name: "addresses", What: "addresses", Doc: "100 at most.", Text: source.AnyText(), List: "address", Examples: []string{"ops@example.net", "[ops@example.net, night@example.net]"}},
	{Name: "address", What: "a mail address", Doc: "A mail address, or a name with it in angle brackets.", Text: source.AnyText(), Examples: []string{"ops@example.net", "'Sluice <sluice@example.net>'"}},
	{
		Name: "webhook", What: "a webhook", Doc: "A status from 200 to 299 says that it was taken. Redirects are not followed.",
		Keys: []source.Key{
			{Name: "url", Shape: "url", Doc: "Where it is sent.", Required: true},
			{Name: "authorization", Shape: "text", Doc: "The header of that name, such as `Bearer …`."},
			{Name: "ca", Shape: "path", Doc: "As of mail."},
		},
		Examples: []string{"{url: 'https://alerts.example.net/sluice', authorization: 'Bearer correct-horse'}"},
	},
	{Name: "url", What: "a URL", Doc: "A URL of http or https.", Text: source.Matching("^https?://"), Examples: []string{"https://alerts.example.net/sluice"}},
	{Name: "journal", What: "journal", Doc: "`true`.", Text: source.Boolean(), Examples: []string{"true"}},
	{Name: "text", What: "a text", Doc: "Printable characters, 1,000 at most.", Text: source.AnyText(), Examples: []string{"sluice"}},
	{Name: "path", What: "a path", Doc: "A file, relative to this one.", Text: source.AnyText(), Examples: []string{"mail-ca.pem"}},
	{Name: "kinds", What: "kinds", Doc: "One of them, or more.", Text: source.AnyText(), List: "kind", Examples: []string{"halted", "[halted, drift]"}},
	{
		Name: "kind", What: "a kind of notice", Text: source.OneOf(Kinds()...), Examples: Kinds(),
		Doc: "`drift`: the kernel of a host does something else than was meant. `refused`: a host refuses what it should run. `halted`: a roll-out was halted, or is taken back. `host-certificate`: a host's certificate ends within 7 days. `signature`: root.json, the newest bundle or the certificate authority ends within 14 days, or nothing fresh was signed for 12 hours. `list`: a live list could not be renewed for 15 minutes.",
	},
}}

// Schema is the JSON Schema of the file.
func Schema() []byte { return grammar.Schema() }

const example = `version: 1
remind: 1d
receivers:
  here: { journal: true }
  pager:
    webhook: { url: "https://alerts.example.net/sluice", authorization: "Bearer correct-horse" }
    only: [halted, drift]
  ops:
    mail:
      server: mail.example.net:587
      user: sluice
      password: correct-horse
      from: Sluice <sluice@example.net>
      to: [ops@example.net, night@example.net]
`

// Reference is the reference of the file, as Markdown.
func Reference() []byte {
	var b strings.Builder
	b.WriteString(`# The file of notices

This page is made from the table of the parser (` + "`make generate`" + `); a JSON Schema of the same
content is beside it, [notices.schema.json](notices.schema.json).

` + "`notices.yaml`" + ` in the directory of a controller says who hears of what is wrong in the fleet:
[notices](../concepts/fleet.md#notices). The controller reads it when it starts, and
` + "`sluice-controller notices check`" + ` says what is wrong with it.

` + "```yaml\n" + example + "```" + `

Anchors, aliases, merge keys and tags of YAML are refused. Where a list is wanted, a
single value may stand alone.

`)
	grammar.WriteShapes(&b)
	return []byte(b.String())
}
