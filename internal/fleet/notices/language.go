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
			{Name: "remind", Shape: "remind", Doc: "How often to remind of a problem that lasts. Default: `1d`."},
			{Name: "receivers", Shape: "receivers", Doc: "Who gets the notices.", Required: true},
		},
		Examples: []string{"{version: 1, receivers: {here: {journal: true}}}", "{version: 1, remind: never, receivers: {pager: {webhook: {url: 'https://alerts.example.net/sluice'}, only: halted}}}"},
	},
	source.Version1(),
	{Name: "remind", What: "remind", Doc: "A number of hours or days, or `never`.", Text: source.Matching(remindPattern), Examples: []string{"12h", "1d", "never"}},
	{
		Name: "receivers", What: "receivers", Doc: "By name, of lowercase letters, digits, dots and hyphens; at most 32. What was sent is recorded by the name: a new name is a new receiver.",
		Values: "receiver", Examples: []string{"{ops: {mail: {server: mail.example.net, from: sluice@example.net, to: ops@example.net}}, here: {journal: true}}"},
	},
	{
		Name: "receiver", What: "a receiver", Doc: "Exactly one way to reach it, and which notices it gets.",
		Keys: []source.Key{
			{Name: "mail", Shape: "mail", Doc: "Mail."},
			{Name: "webhook", Shape: "webhook", Doc: "JSON, sent by POST."},
			{Name: "journal", Shape: "journal", Doc: "Lines in the journal of the controller's machine; without a journal, the controller prints them."},
			{Name: "only", Shape: "kinds", Doc: "The notices that it gets. Default: all."},
		},
		OneOf:    []string{"mail", "webhook", "journal"},
		Examples: []string{"{journal: true}", "{webhook: {url: 'https://alerts.example.net/sluice'}, only: [halted, drift]}"},
	},
	{
		Name: "mail", What: "mail", Doc: "A mail has all that is new, and each address gets the same one.",
		Keys: []source.Key{
			{Name: "server", Shape: "server", Doc: "The mail server.", Required: true},
			{Name: "tls", Shape: "tls", Doc: "How it is encrypted. Default: `starttls`."},
			{Name: "ca", Shape: "path", Doc: "A file of CA certificates (PEM) that the server's certificate must chain to. Default: those that the machine trusts."},
			{Name: "user", Shape: "text", Doc: "The user to log in as. Default: no log-in. Not with `tls: none`."},
			{Name: "password", Shape: "text", Doc: "The password of this user."},
			{Name: "from", Shape: "address", Doc: "The sender.", Required: true},
			{Name: "to", Shape: "addresses", Doc: "The recipients.", Required: true},
		},
		Examples: []string{"{server: 'mail.example.net:587', user: sluice, password: correct-horse, from: 'Sluice <sluice@example.net>', to: [ops@example.net]}"},
	},
	{Name: "server", What: "a server", Doc: "Its name or address, and a port unless it is that of `tls`: 587 for `starttls`, 465 for `implicit`, 25 for `none`.", Text: source.AnyText(), Examples: []string{"mail.example.net", "'mail.example.net:2525'", "'[2001:db8::25]:25'"}},
	{Name: "tls", What: "tls", Doc: "`starttls` upgrades the connection with STARTTLS, and fails if the server does not offer it; `implicit` speaks TLS from the first byte; `none` sends everything in the clear.", Text: source.OneOf("starttls", "implicit", "none"), Examples: []string{"starttls", "implicit"}},
	{Name: "addresses", What: "addresses", Doc: "100 at most.", Text: source.AnyText(), List: "address", Examples: []string{"ops@example.net", "[ops@example.net, night@example.net]"}},
	{Name: "address", What: "a mail address", Doc: "A mail address, or a name with it in angle brackets.", Text: source.AnyText(), Examples: []string{"ops@example.net", "'Sluice <sluice@example.net>'"}},
	{
		Name: "webhook", What: "a webhook", Doc: "A status from 200 to 299 means that it was accepted. Redirects are not followed.",
		Keys: []source.Key{
			{Name: "url", Shape: "url", Doc: "Where to send it.", Required: true},
			{Name: "authorization", Shape: "text", Doc: "The header of that name, such as `Bearer …`."},
			{Name: "ca", Shape: "path", Doc: "As for mail."},
		},
		Examples: []string{"{url: 'https://alerts.example.net/sluice', authorization: 'Bearer correct-horse'}"},
	},
	{Name: "url", What: "a URL", Doc: "A URL of http or https.", Text: source.Matching("^https?://"), Examples: []string{"https://alerts.example.net/sluice"}},
	{Name: "journal", What: "journal", Doc: "`true`.", Text: source.Boolean(), Examples: []string{"true"}},
	{Name: "text", What: "a text", Doc: "Printable characters, 1,000 at most.", Text: source.AnyText(), Examples: []string{"sluice"}},
	{Name: "path", What: "a path", Doc: "A file, relative to this one.", Text: source.AnyText(), Examples: []string{"mail-ca.pem"}},
	{Name: "kinds", What: "kinds", Doc: "One or more of them.", Text: source.AnyText(), List: "kind", Examples: []string{"halted", "[halted, drift]"}},
	{
		Name: "kind", What: "a kind of notice", Text: source.OneOf(Kinds()...), Examples: Kinds(),
		Doc: "`drift`: the kernel of a host differs from its policy. `refused`: a host refuses what it should run. `halted`: a roll-out was halted or is rolled back. `host-certificate`: a host's certificate expires within 7 days. `signature`: root.json, the newest bundle or the certificate authority expires within 14 days, or nothing new was signed for 12 hours. `list`: a live list could not be renewed for 15 minutes.",
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
