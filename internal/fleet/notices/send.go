package notices

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coreos/go-systemd/v22/journal"
	gomail "github.com/wneessen/go-mail"

	"sluice/internal/base/english"
	"sluice/internal/base/tell"
)

// MostTime is how long a receiver may take for one message.
const MostTime = 15 * time.Second

// mostNotices is how many a message holds, and mostLine how many characters of each it has;
// mostSubject is how many its own line has.
const (
	mostNotices = 100
	mostLine    = 400
	mostSubject = 150
)

// NewMessage is one with some notices, as many as it may have.
func NewMessage(fleet string, all []Notice) Message {
	m := Message{Fleet: fleet, LeftOut: max(0, len(all)-mostNotices)}
	for _, n := range all[:len(all)-m.LeftOut] {
		n.Text = Line(n.Text)
		m.Notices = append(m.Notices, n)
	}
	m.Text = m.summary()
	return m
}

// Line is what others have said as it may be in a line: printable characters, not too many.
func Line(text string) string {
	text = strings.TrimSpace(tell.Printable(strings.ToValidUTF8(strings.NewReplacer("\n", " ", "\t", " ").Replace(text), "")))
	return cut(text, mostLine)
}

func cut(text string, most int) string {
	if utf8.RuneCountInString(text) > most {
		text = string([]rune(text)[:most-1]) + "…"
	}
	return text
}

// summary is the subject of a mail: the notice, or how many there are of what.
func (m Message) summary() string {
	if len(m.Notices) == 1 && m.LeftOut == 0 {
		n := m.Notices[0]
		prefix := map[Event]string{Lasts: "still: ", Ended: "ended: "}[n.Event]
		return cut(m.Fleet+": "+prefix+n.Text, mostSubject)
	}
	var parts []string
	for _, e := range []Event{Begins, Lasts, Ended, Test} {
		of := slices.DeleteFunc(slices.Clone(m.Notices), func(n Notice) bool { return n.Event != e })
		if len(of) > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", len(of), map[Event]string{Begins: "new", Lasts: "lasting", Ended: "ended", Test: "test"}[e]))
		}
	}
	if m.LeftOut > 0 {
		parts = append(parts, fmt.Sprintf("%d more", m.LeftOut))
	}
	return Line(fmt.Sprintf("%s: notices, %s", m.Fleet, english.List(parts)))
}

// line says a notice to people.
func (n Notice) line() string {
	at := english.Moment(n.Since)
	switch n.Event {
	case Lasts:
		return fmt.Sprintf("%s (it lasts since %s)", n.Text, at)
	case Ended:
		return fmt.Sprintf("ended: %s (since %s, until %s)", n.Text, at, english.Moment(n.Ended))
	}
	return n.Text
}

// more says that some were left out, "" where none was.
func (m Message) more() string {
	if m.LeftOut == 0 {
		return ""
	}
	return english.Plural(m.LeftOut, "notice") + " more, which the controller lists"
}

// How says what the way to a receiver is, without its secrets.
func (r *Receiver) How() string {
	switch {
	case r.mail != nil:
		return "mail to " + english.Few(r.mail.to, 3) + " by " + r.mail.host
	case r.hook != nil:
		if to, err := url.Parse(r.hook.URL); err == nil {
			return "webhook at " + to.Host
		}
		return "webhook"
	}
	return "journal"
}

// Wants says whether a receiver hears of a kind.
func (r *Receiver) Wants(k Kind) bool {
	return len(r.Only) == 0 || slices.Contains(r.Only, k)
}

// Send tells a receiver, within MostTime, and says what it answered.
func (r *Receiver) Send(ctx context.Context, m Message) (said string, err error) {
	most := cmp.Or(r.most, MostTime)
	ctx, stop := context.WithTimeout(ctx, most)
	defer stop()
	switch {
	case r.mail != nil:
		said, err = r.mail.send(ctx, m)
	case r.hook != nil:
		var text []byte
		if text, err = json.Marshal(m); err == nil {
			said, err = r.hook.Post(ctx, text)
		}
	default:
		said = r.journal(m)
	}
	if err != nil {
		if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			return "", fmt.Errorf("it took longer than %s", most)
		}
		return "", errors.New(Line(err.Error()))
	}
	return Line(said), nil
}

func (r *Receiver) journal(m Message) string {
	said := "the journal has it"
	write := func(text string, priority journal.Priority, fields map[string]string) {
		if !tell.Journal(text, priority, fields) {
			said = "the controller prints it: there is no journal"
			r.line(text)
		}
	}
	for _, n := range m.Notices {
		priority := journal.PriErr
		if n.Event == Ended || n.Event == Test {
			priority = journal.PriNotice
		}
		write(m.Fleet+": "+n.line(), priority, map[string]string{
			"EVENT": string(n.Event), "KIND": string(n.Kind), "SUBJECT": n.Subject, "FLEET": m.Fleet, "NUMBER": strconv.FormatInt(n.Number, 10),
		})
	}
	if text := m.more(); text != "" {
		write(m.Fleet+": "+text, journal.PriErr, map[string]string{"FLEET": m.Fleet})
	}
	return said
}

// mailbox is a mail server, and to whom it sends.
type mailbox struct {
	host           string
	port           int
	tls            string
	roots          *x509.CertPool
	user, password string
	from           string
	to             []string
}

func (b *mailbox) send(ctx context.Context, m Message) (string, error) {
	out := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	if err := errors.Join(out.From(b.from), out.To(b.to...)); err != nil {
		return "", err
	}
	out.Subject(m.Text)
	out.SetDate()
	out.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: nobody is to answer
	var body strings.Builder
	for _, n := range m.Notices {
		body.WriteString(n.line() + "\r\n")
	}
	if text := m.more(); text != "" {
		body.WriteString(text + "\r\n")
	}
	out.SetBodyString(gomail.TypeTextPlain, body.String())

	secure := &tls.Config{ServerName: b.host, RootCAs: b.roots, MinVersion: tls.VersionTLS12}
	options := []gomail.Option{gomail.WithPort(b.port), gomail.WithTimeout(MostTime), gomail.WithTLSConfig(secure), gomail.WithDialContextFunc(b.dial(ctx, secure)), gomail.WithoutNoop()}
	switch b.tls {
	case "none":
		options = append(options, gomail.WithTLSPolicy(gomail.NoTLS))
	case "starttls":
		options = append(options, gomail.WithTLSPolicy(gomail.TLSMandatory))
	default: // what is dialled is encrypted already
		options = append(options, gomail.WithTLSPolicy(gomail.TLSOpportunistic))
	}
	if b.user != "" {
		options = append(options, gomail.WithSMTPAuth(gomail.SMTPAuthAutoDiscover), gomail.WithUsername(b.user), gomail.WithPassword(b.password))
	}
	client, err := gomail.NewClient(b.host, options...)
	if err != nil {
		return "", err
	}
	err = client.DialAndSendWithContext(ctx, out)
	if out.IsDelivered() { // whatever it said to QUIT
		return out.ServerResponse(), nil
	}
	if err == nil {
		err = errors.New("it did not confirm that it has it")
	}
	return "", err
}

// mostAnswer is how much a server may say in one connection.
const mostAnswer = 1 << 20

// dial connects to the server. The connection ends with the whole context, not only with that
// of dialling: the library has a deadline for each command alone.
func (b *mailbox) dial(whole context.Context, secure *tls.Config) gomail.DialContextFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		context.AfterFunc(whole, func() { _ = conn.Close() })
		bounded := &boundedConn{Conn: conn, left: mostAnswer}
		if b.tls != "implicit" {
			return bounded, nil
		}
		over := tls.Client(bounded, secure)
		if err := over.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return over, nil
	}
}

// boundedConn is a connection that so many bytes may come from.
type boundedConn struct {
	net.Conn
	left int
}

func (c *boundedConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errors.New("its answer is too long")
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}
