package notices

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/mail"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"sluice/internal/base/regular"
	"sluice/internal/base/sorting"
	"sluice/internal/base/tell"
	"sluice/internal/language/source"
)

// Config is what the file says.
type Config struct {
	Remind    time.Duration // 0: never
	Receivers []Receiver    // by name
	Wrong     string        // what is wrong with the file, without anything of it, which may be a secret; "": nothing

	file *source.File
	errs source.Errors
	dir  string
	read []byte // the text; nil: there was no file
}

// Changed says that the file of a directory is another one than was read.
func (c *Config) Changed(dir string) bool {
	text, err := source.Read(filepath.Join(dir, File), dialect.MaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return c.read != nil
	}
	return err != nil || !bytes.Equal(text, c.read)
}

// Receiver is one who hears of what is wrong.
type Receiver struct {
	Name string
	Only []Kind // none: of everything

	hook *tell.Hook
	mail *mailbox
	// line is where lines go that no journal takes; it is of neither hook nor mail.
	line func(text string)
	most time.Duration // that it may take for a message; 0: MostTime
}

// What the file may have at most.
const (
	mostReceivers = 32
	mostAddresses = 100
	mostText      = 1000
	mostCA        = 1 << 20
)

const usualRemind = 24 * time.Hour

// Load reads the file of a controller's directory; without one all goes to the journal. What
// is wrong with it is of type [source.Errors], and the Config is then what is right of it, or the
// journal: a controller starts with that. Lines that no journal takes are given to line.
func Load(dir string, line func(text string)) (*Config, error) {
	path := filepath.Join(dir, File)
	data, err := source.Read(path, dialect.MaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return &Config{Remind: usualRemind, Receivers: journalAlone(line)}, nil
	}
	if err != nil {
		return &Config{Remind: usualRemind, Receivers: journalAlone(line), Wrong: err.Error()}, err
	}
	c, err := Parse(path, data, line)
	if c.read = data; len(c.Receivers) == 0 {
		c.Receivers = journalAlone(line)
	}
	return c, err
}

func journalAlone(line func(string)) []Receiver { return []Receiver{{Name: "journal", line: line}} }

// Parse reads a text; name is what errors begin with, and what paths in it are relative to. With
// an error the Config has the receivers that are right.
func Parse(name string, data []byte, line func(text string)) (*Config, error) {
	c := &Config{Remind: usualRemind, dir: filepath.Dir(name)}
	c.file = source.New(name, data, dialect, &c.errs)
	if c.errs = c.file.CheckText(data); len(c.errs) == 0 {
		if doc := c.file.Document(); doc != nil {
			c.top(doc, line)
		}
	}
	if len(c.errs) == 0 {
		return c, nil
	}
	errs := c.errs.Sorted([]string{name})
	var bare source.Errors
	for _, e := range errs {
		e := *e
		e.Line, e.Message = "", quoted.ReplaceAllString(e.Message, `"…"`)
		bare = append(bare, &e)
	}
	c.Wrong = bare.Error()
	return c, errs
}

// quoted is a text of the file in a message.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

func (c *Config) top(doc *yaml.Node, line func(string)) {
	const begin = "the file begins with version: 1"
	f := c.file
	if len(doc.Content) == 0 || source.IsNull(doc.Content[0]) {
		f.Fail(f.Pos(1, 1), begin, "file is empty")
		return
	}
	has := c.keys(doc.Content[0], "notices")
	if n := has["version"]; n != nil {
		f.Version(n)
	}
	if n := has["remind"]; n != nil {
		c.remind(n)
	}
	n := has["receivers"]
	if n == nil {
		return
	}
	entries := f.Entries(n, "receivers")
	if n.Kind == yaml.MappingNode && len(entries) == 0 || source.IsNull(n) {
		f.Fail(f.At(n), "remove the file for the journal alone", "receivers is empty")
	}
	if len(entries) > mostReceivers {
		f.Fail(f.At(entries[mostReceivers].Key), "let a webhook pass it on", "there are %d receivers, and %d is the most", len(entries), mostReceivers)
		return
	}
	for _, e := range entries {
		before := len(c.errs)
		if !nameSyntax.MatchString(e.Name) {
			f.Fail(f.At(e.Key), "write small letters, digits, dots and hyphens", "%s is not the name of a receiver", source.Quote(e.Name))
		}
		if r := c.receiver(e, line); len(c.errs) == before {
			c.Receivers = append(c.Receivers, r)
		}
	}
	sorting.By(c.Receivers, func(a, b Receiver) int { return cmp.Compare(a.Name, b.Name) })
}

var (
	nameSyntax   = regexp.MustCompile(namePattern)
	remindSyntax = regexp.MustCompile(remindPattern)
)

// keys are the values of a mapping of a shape. It reports keys that are missing.
func (c *Config) keys(n *yaml.Node, shape string) map[string]*yaml.Node {
	s := grammar.Of(shape)
	out := map[string]*yaml.Node{}
	for _, e := range c.file.Known(n, s) {
		out[e.Name] = e.Value
	}
	for _, k := range s.Keys {
		if k.Required && out[k.Name] == nil && (n.Kind == yaml.MappingNode || source.IsNull(n)) {
			c.file.Fail(c.file.At(n), "", "%s is missing in %s", k.Name, s.What)
		}
	}
	return out
}

func (c *Config) remind(n *yaml.Node) {
	text, ok := c.file.Text(n, "remind")
	switch {
	case !ok:
	case !remindSyntax.MatchString(text):
		c.file.Fail(c.file.At(n), "write a number of hours or days, such as 12h or 1d, or never", "remind is %s", source.Quote(text))
	case text == "never":
		c.Remind = 0
	default:
		count, _ := strconv.Atoi(text[:len(text)-1])
		c.Remind = time.Duration(count) * map[byte]time.Duration{'h': time.Hour, 'd': 24 * time.Hour}[text[len(text)-1]]
	}
}

func (c *Config) receiver(e source.Entry, line func(string)) Receiver {
	r := Receiver{Name: e.Name}
	f := c.file
	has := c.keys(e.Value, "receiver")
	ways := 0
	if n := has["mail"]; n != nil {
		ways++
		r.mail = c.mailbox(n)
	}
	if n := has["webhook"]; n != nil {
		ways++
		r.hook = c.hook(n)
	}
	if n := has["journal"]; n != nil {
		ways++
		r.line = line
		if yes, ok := f.Flag(n, "journal"); ok && !yes {
			f.Fail(f.At(n), "leave the receiver out", "journal is false")
		}
	}
	if ways != 1 && (e.Value.Kind == yaml.MappingNode || source.IsNull(e.Value)) {
		f.Fail(f.At(e.Key), "give each way a name of its own", "a receiver has one of mail, webhook and journal, and %s has %d", e.Name, ways)
	}
	if n := has["only"]; n != nil {
		r.Only = c.kinds(n)
	}
	return r
}

func (c *Config) kinds(n *yaml.Node) []Kind {
	var out []Kind
	all := c.file.List(n, "only")
	if source.IsNull(n) || n.Kind == yaml.SequenceNode && len(all) == 0 {
		c.file.Fail(c.file.At(n), "leave it out for everything", "only is empty")
	}
	for _, k := range all {
		text, ok := c.file.Text(k, "a kind of notice")
		switch {
		case !ok:
		case !slices.Contains(Kinds(), text):
			c.file.Fail(c.file.At(k), "known are "+strings.Join(Kinds(), ", "), "%s is not a kind of notice%s", source.Quote(text), source.DidYouMean(text, Kinds()))
		case slices.Contains(out, Kind(text)):
			c.file.Fail(c.file.At(k), "", "%s is listed twice in only", text)
		default:
			out = append(out, Kind(text))
		}
	}
	return out
}

// text is a value that goes to a receiver as it is.
func (c *Config) text(n *yaml.Node, what string) string {
	text, ok := c.file.Text(n, what)
	if ok && (utf8.RuneCountInString(text) > mostText || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })) {
		c.file.Fail(c.file.At(n), "write printable characters, 1,000 at most", "%s is not a plain text", what)
		return ""
	}
	return text
}

func (c *Config) hook(n *yaml.Node) *tell.Hook {
	has, f := c.keys(n, "webhook"), c.file
	h := &tell.Hook{}
	if n := has["url"]; n != nil {
		h.URL = c.text(n, "url")
		if to, err := url.Parse(h.URL); h.URL != "" && (err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Hostname() == "") {
			f.Fail(f.At(n), "write https://HOST/PATH", "url is not a URL of http or https")
		}
	}
	if n := has["authorization"]; n != nil {
		h.Authorization = c.text(n, "authorization")
	}
	h.Roots = c.roots(has["ca"])
	return h
}

// roots are the certificates of a file; nil without one.
func (c *Config) roots(n *yaml.Node) *x509.CertPool {
	if n == nil {
		return nil
	}
	path := c.text(n, "ca")
	if path == "" {
		return nil
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.dir, path)
	}
	text, err := regular.Read(path, mostCA)
	pool := x509.NewCertPool()
	if err == nil && !pool.AppendCertsFromPEM(text) {
		err = fmt.Errorf("%s: no certificate is in it", path)
	}
	if err != nil {
		c.file.Fail(c.file.At(n), "name a file of certificates, as PEM", "%v", err)
	}
	return pool
}

// ports of mail servers, by the encryption.
var ports = map[string]int{"starttls": 587, "implicit": 465, "none": 25}

func (c *Config) mailbox(n *yaml.Node) *mailbox {
	has, f := c.keys(n, "mail"), c.file
	m := &mailbox{tls: "starttls"}
	if n := has["tls"]; n != nil {
		m.tls = c.text(n, "tls")
		if ports[m.tls] == 0 && m.tls != "" {
			f.Fail(f.At(n), "write starttls, implicit or none", "tls is %s%s", source.Quote(m.tls), source.DidYouMean(m.tls, []string{"starttls", "implicit", "none"}))
		}
	}
	if n := has["server"]; n != nil {
		m.host, m.port = c.server(n, m.tls)
	}
	for key, into := range map[string]*string{"user": &m.user, "password": &m.password} {
		if n := has[key]; n != nil {
			*into = c.text(n, key)
		}
	}
	user, password := has["user"], has["password"]
	switch {
	case user != nil && m.tls == "none":
		f.Fail(f.At(user), "use tls: starttls or implicit", "a password is not sent in the clear")
	case user != nil && password == nil:
		f.Fail(f.At(user), "", "user is given, and password is missing")
	case user == nil && password != nil:
		f.Fail(f.At(password), "", "password is given, and user is missing")
	}
	m.roots = c.roots(has["ca"])
	if n := has["from"]; n != nil {
		m.from = c.address(n)
	}
	if n := has["to"]; n != nil {
		all := f.List(n, "to")
		if source.IsNull(n) || len(all) == 0 || len(all) > mostAddresses {
			f.Fail(f.At(n), "", "to has %d addresses, and may have 1 to %d", len(all), mostAddresses)
			return m
		}
		for _, a := range all {
			m.to = append(m.to, c.address(a))
		}
	}
	return m
}

func (c *Config) server(n *yaml.Node, how string) (host string, port int) {
	text := c.text(n, "server")
	if text == "" {
		return "", 0
	}
	host, port = text, ports[how]
	if h, p, err := net.SplitHostPort(text); err == nil {
		host = h
		if port, err = strconv.Atoi(p); err != nil || port > 65535 {
			port = 0
		}
	}
	if _, err := url.Parse("smtp://" + net.JoinHostPort(host, "25")); err != nil || host == "" || strings.ContainsAny(host, "/@[] ") || port < 1 && ports[how] > 0 {
		c.file.Fail(c.file.At(n), "write a name or an address, and :PORT where it is another one", "%s is not a mail server", source.Quote(text))
	}
	return host, port
}

func (c *Config) address(n *yaml.Node) string {
	text := c.text(n, "a mail address")
	if text == "" {
		return ""
	}
	a, err := mail.ParseAddress(text)
	if err != nil || !strings.Contains(a.Address, "@") {
		c.file.Fail(c.file.At(n), "write NAME@HOST", "%s is not a mail address", source.Quote(text))
		return ""
	}
	return a.String()
}
