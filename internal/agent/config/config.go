package config

import (
	"context"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v4"

	"sluice/internal/base/users"
	"sluice/internal/language/source"
)

// Default is the file that is read where no other is named.
const Default = "/etc/sluice/agent.yaml"

// Config is what the file says.
type Config struct {
	MayRead    []Who
	MayChange  []Who
	Namespaces []string // patterns, as of path.Match
	Lists      bool     // they are refreshed when due
	// Publishers of country data, the one that decides first, and how often they are asked;
	// none: they are not.
	Publishers []string
	Every      time.Duration
	Metrics    netip.AddrPort // where everybody may ask for them; zero: nowhere
	LogSize    int64          // bytes of the log that are kept; 0: it is not
	Restores   bool           // what others change is put back
	Command    []string       // that an alert is given to; none: there is none
	Webhook    string         // "": there is none
	Questions  Questions
	OldWords   source.Errors // words that are called otherwise now, each a warning
	file       *source.File
}

// Questions are those that the fleet of the host may ask.
type Questions string

// All are all that reading answers; Status those that say nothing about packets, connections and bans.
const (
	None   Questions = "none"
	Status Questions = "status"
	All    Questions = "all"
)

// Allow says whether the fleet may ask for what is private or is not.
func (q Questions) Allow(private bool) bool { return q == All || q == Status && !private }

// Who is a user, or a group.
type Who struct {
	Pos   source.Pos // without a line: nobody wrote it
	Name  string     // or the number
	Group bool
}

// readers may read where the file does not say who may.
var readers = []Who{{Name: "sluice", Group: true}}

// Load reads the file. What is wrong with it is of type [source.Errors].
func Load(path string) (*Config, error) {
	data, err := source.Read(path, dialect.MaxSize)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// Parse reads a text; name is what errors begin with.
func Parse(name string, data []byte) (*Config, error) {
	var errs source.Errors
	c := &Config{MayRead: readers, Lists: true, LogSize: 64 << 20, Questions: All}
	c.file = source.New(name, data, dialect, &errs)
	c.file.OldWords = &c.OldWords
	if errs = c.file.CheckText(data); len(errs) == 0 {
		if doc := c.file.Document(); doc != nil {
			c.top(doc)
		}
	}
	if len(errs) > 0 {
		return nil, errs.Sorted([]string{name})
	}
	return c, nil
}

func (c *Config) top(doc *yaml.Node) {
	const begin = "the file begins with version: 1"
	f := c.file
	if len(doc.Content) == 0 || source.IsNull(doc.Content[0]) {
		f.Fail(f.Pos(1, 1), begin, "file is empty")
		return
	}
	root := doc.Content[0]
	entries := f.Known(root, grammar.Of("agent"))
	if root.Kind == yaml.MappingNode && !slices.ContainsFunc(entries, func(e source.Entry) bool { return e.Name == "version" }) {
		f.Fail(f.At(root), begin, "version is missing")
	}
	for _, e := range entries {
		switch e.Name {
		case "version":
			f.Version(e.Value)
		case "may-read":
			c.MayRead = c.whos(e)
		case "may-change":
			c.MayChange = c.whos(e)
		case "namespaces":
			c.Namespaces = c.namespaces(e)
		case "lists":
			c.Lists = c.oneOf(e.Value, "lists", "refresh", "manual") != "manual"
		case "countries":
			c.countries(e)
		case "metrics":
			c.metrics(e)
		case "log":
			c.log(e)
		case "drift":
			c.Restores = c.oneOf(e.Value, "drift", "report", "restore") == "restore"
		case "alerts":
			c.alerts(e)
		case "fleet":
			c.fleet(e)
		}
	}
}

func (c *Config) whos(e source.Entry) []Who {
	var out []Who
	if source.IsNull(e.Value) {
		c.file.Fail(c.file.At(e.Value), "write [] for nobody but root", "%s is empty", e.Name)
	}
	for _, n := range c.file.List(e.Value, e.Name) {
		w, ok := c.who(n)
		if ok && slices.ContainsFunc(out, func(o Who) bool { return o.Name == w.Name && o.Group == w.Group }) {
			c.file.Fail(w.Pos, "", "duplicate %s in %s", w, e.Name)
		} else if ok {
			out = append(out, w)
		}
	}
	return out
}

var namespaceSyntax = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9*][A-Za-z0-9._@+*-]{0,254}$`) })

func (c *Config) namespaces(e source.Entry) []string {
	var out []string
	if source.IsNull(e.Value) {
		c.file.Fail(c.file.At(e.Value), "write [] for none", "%s is empty", e.Name)
	}
	for _, n := range c.file.List(e.Value, e.Name) {
		text, ok := c.file.Text(n, "the name of a network namespace")
		switch {
		case !ok:
		case !namespaceSyntax().MatchString(text):
			c.file.Fail(c.file.At(n), "ip netns list shows names; * stands for any characters", "%s is not the name of a network namespace", source.Quote(text))
		case slices.Contains(out, text):
			c.file.Fail(c.file.At(n), "", "duplicate %s in %s", text, e.Name)
		default:
			out = append(out, text)
		}
	}
	return out
}

// oneOf is a word of a few, or "" where it has an error.
func (c *Config) oneOf(n *yaml.Node, what string, words ...string) string {
	text, ok := c.file.Text(n, what)
	if ok && !slices.Contains(words, text) {
		c.file.Fail(c.file.At(n), "", "%s must be %s, not %s%s", what, strings.Join(words, " or "), source.Quote(text), source.DidYouMean(text, words))
		return ""
	}
	return text
}

// periods are how often country data are asked for.
var periods = map[string]time.Duration{"daily": day, "weekly": 7 * day, "monthly": 30 * day}

const day = 24 * time.Hour

func (c *Config) countries(e source.Entry) {
	c.Every = periods["monthly"]
	from := false
	for _, k := range c.file.Known(e.Value, grammar.Of("countries")) {
		switch k.Name {
		case "from":
			from = true
			c.Publishers = c.publishers(k)
			if source.IsNull(k.Value) || k.Value.Kind == yaml.SequenceNode && len(k.Value.Content) == 0 {
				c.file.Fail(c.file.At(k.Value), "leave countries out for nobody to ask for them", "from is empty")
			}
		case "every":
			c.Every = periods[c.oneOf(k.Value, "every", "daily", "weekly", "monthly")]
		}
	}
	if e.Value.Kind == yaml.MappingNode && !from {
		c.file.Fail(c.file.At(e.Value), "from: [dbip, registries]", "from is missing")
	}
}

func (c *Config) metrics(e source.Entry) {
	const hint = "write the address and the port, from 1024 on, such as 127.0.0.1:9469 or '[::1]:9469'"
	keys := c.file.Known(e.Value, grammar.Of("metrics"))
	if e.Value.Kind == yaml.MappingNode && len(keys) == 0 {
		c.file.Fail(c.file.At(e.Value), hint, "listen is missing")
	}
	for _, k := range keys {
		text, ok := c.file.Text(k.Value, "listen")
		at, err := netip.ParseAddrPort(text)
		if ok && (err != nil || at.Port() < 1024) {
			c.file.Fail(c.file.At(k.Value), hint, "%s is not where metrics can be asked for", source.Quote(text))
		}
		c.Metrics = at
	}
}

func (c *Config) fleet(e source.Entry) {
	keys := c.file.Known(e.Value, grammar.Of("fleet"))
	if e.Value.Kind == yaml.MappingNode && len(keys) == 0 {
		c.file.Fail(c.file.At(e.Value), "questions: status", "questions is missing")
	}
	for _, k := range keys {
		c.Questions = Questions(c.oneOf(k.Value, "questions", string(None), string(Status), string(All)))
	}
}

const sizePattern = `^(none|[1-9][0-9]{0,3}[MG]iB)$`

var sizeSyntax = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(sizePattern) })

func (c *Config) log(e source.Entry) {
	keys := c.file.Known(e.Value, grammar.Of("log"))
	if e.Value.Kind == yaml.MappingNode && len(keys) == 0 {
		c.file.Fail(c.file.At(e.Value), "size: 64MiB", "size is missing")
	}
	for _, k := range keys {
		text, ok := c.file.Text(k.Value, "size")
		most, n := int64(0), int64(0)
		if ok && sizeSyntax().MatchString(text) && text != "none" {
			n, _ = strconv.ParseInt(text[:len(text)-3], 10, 64)
			n <<= map[byte]int{'M': 20, 'G': 30}[text[len(text)-3]]
			most = 1 << 40
		}
		if ok && (!sizeSyntax().MatchString(text) || n > most) {
			c.file.Fail(c.file.At(k.Value), "write none to keep nothing", "size must be from 1MiB to 1024GiB, such as 64MiB, not %s", source.Quote(text))
		}
		c.LogSize = n
	}
}

const publisherPattern = `^(dbip|registries|([a-z][a-z0-9-]*=)?(https?://[^/\s]\S*|/.*))$`

var publisherSyntax = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(publisherPattern) })

func (c *Config) publishers(e source.Entry) []string {
	var out []string
	for _, n := range c.file.List(e.Value, e.Name) {
		switch text, ok := c.file.Text(n, "a publisher"); {
		case !ok:
		case !publisherSyntax().MatchString(text):
			c.file.Fail(c.file.At(n), "write dbip, registries, or [NAME=] and a URL or the whole path of a file", "%s is not a publisher of country data%s", source.Quote(text), source.DidYouMean(text, []string{"dbip", "registries"}))
		case slices.Contains(out, text):
			c.file.Fail(c.file.At(n), "", "%s is listed twice in from", source.Quote(text))
		default:
			out = append(out, text)
		}
	}
	return out
}

var nameSyntax = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,30}\$?$`) })

func (c *Config) who(n *yaml.Node) (Who, bool) {
	text, ok := c.file.Text(n, "a user or group")
	if !ok {
		return Who{}, false
	}
	w := Who{Pos: c.file.At(n), Name: strings.TrimSpace(text)}
	switch words := strings.Fields(text); {
	case len(words) == 2 && words[0] == "group":
		w.Group, w.Name = true, words[1]
	case len(words) == 2:
		c.file.Fail(w.Pos, "write NAME for a user, group NAME for a group", "unexpected %s before %s%s", source.Quote(words[0]), source.Quote(words[1]), source.DidYouMean(words[0], []string{"group"}))
		return w, false
	}
	if n, err := strconv.ParseUint(w.Name, 10, 32); !nameSyntax().MatchString(w.Name) && (err != nil || n == 1<<32-1) {
		c.file.Fail(w.Pos, "write NAME for a user, group NAME for a group", "%s is not the name or number of a user or group", source.Quote(w.Name))
		return w, false
	}
	return w, true
}

// String is how it is written.
func (w Who) String() string {
	if w.Group {
		return "group " + w.Name
	}
	return "user " + w.Name
}

// IDs are numbers of users and groups.
type IDs struct{ Users, Groups []uint32 }

// Has says whether a user of these groups is meant.
func (i IDs) Has(user uint32, groups ...uint32) bool {
	return slices.Contains(i.Users, user) || slices.ContainsFunc(groups, func(g uint32) bool { return slices.Contains(i.Groups, g) })
}

// Numbers are the numbers that this host has for them. Names that it does not know are
// nobody's; those that were written are told of.
func (c *Config) Numbers(ctx context.Context, list []Who) (IDs, source.Errors) {
	var out IDs
	var errs source.Errors
	for _, w := range list {
		into, number := &out.Users, users.Number
		if w.Group {
			into, number = &out.Groups, users.GroupNumber
		}
		switch id, err := number(ctx, w.Name); {
		case err == nil:
			*into = append(*into, id)
		case w.Pos.Line != 0:
			errs = append(errs, source.NewError(c.file.Lines, w.Pos, "", "%v", err))
		}
	}
	return out, errs
}

func (c *Config) alerts(e source.Entry) {
	for _, e := range c.file.Known(e.Value, grammar.Of("alerts")) {
		switch e.Name {
		case "command":
			for _, n := range c.file.List(e.Value, e.Name) {
				if text, ok := c.file.Text(n, "an argument"); ok {
					c.Command = append(c.Command, text)
				}
			}
			if len(c.Command) > 0 && !filepath.IsAbs(c.Command[0]) {
				c.file.Fail(c.file.At(e.Value), "write the program's whole path, and each argument of its own: [/usr/local/bin/page, --urgent]", "%s is not the path of a program", source.Quote(c.Command[0]))
			}
		case "webhook":
			text, ok := c.file.Text(e.Value, e.Name)
			if to, err := url.Parse(text); ok && (err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "") {
				c.file.Fail(c.file.At(e.Value), "write https://HOST/PATH", "%s is not a URL of http or https", source.Quote(text))
			}
			c.Webhook = text
		}
	}
}
