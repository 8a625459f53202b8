package notices

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"mime/quotedprintable"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"sluice/internal/lab/testnet"
)

// hostile is what a host may say, with what each receiver could stumble over.
const hostile = "drop \r\nBcc: evil@example.net\r\n\r\n.\r\nQUIT\r\nPRIORITY=0\nMESSAGE=all is well\x1b[2J\u202e\x00 <script>é"

var when = time.Date(2026, 11, 29, 1, 2, 3, 0, time.UTC)

func bad() Message {
	return NewMessage("example.net", []Notice{
		{Number: 7, Event: Begins, Kind: Drift, Subject: "web-1", Text: "host web-1 drifts: " + hostile, Since: when},
		{Number: 6, Event: Ended, Kind: Halted, Subject: "3", Text: "roll-out 3 is halted", Since: when, Ended: when.Add(time.Hour)},
	})
}

// inbox is a real mail server.
type inbox struct {
	asked  chan string // how somebody logged in, "" for nobody
	mails  chan string
	refuse *smtp.SMTPError
}

type session struct {
	*inbox
	user string
}

func (b *inbox) NewSession(*smtp.Conn) (smtp.Session, error) { return &session{inbox: b}, nil }
func (s *session) Reset()                                    {}
func (s *session) Logout() error                             { return nil }
func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error { return nil }
func (s *session) AuthMechanisms() []string                  { return []string{sasl.Plain} }
func (s *session) Mail(from string, _ *smtp.MailOptions) (err error) {
	if s.refuse != nil {
		err = s.refuse
	}
	return err
}

func (s *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if password != "correct-horse" {
			return errors.New("no")
		}
		s.user = user
		return nil
	}), nil
}

func (s *session) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	s.asked <- s.user
	s.mails <- string(text)
	return err
}

// certified is a certificate for 127.0.0.1, and the file of it.
func certified(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ok(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	ok(t, err)
	file := filepath.Join(t.TempDir(), "ca.pem")
	ok(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

// receiver is the one of a file.
func receiver(t *testing.T, text string, line func(string)) *Receiver {
	t.Helper()
	c, err := Parse("n.yaml", []byte("version: 1\nreceivers: {a: "+text+"}\n"), line)
	ok(t, err)
	return &c.Receivers[0]
}

// TestMail sends to a real server, each way there is, what nobody can forge a header with.
func TestMail(t *testing.T) {
	t.Parallel()
	certificate, ca := certified(t)
	box := &inbox{asked: make(chan string, 10), mails: make(chan string, 10)}
	at := map[string]string{}
	for _, how := range []string{"none", "starttls", "implicit"} {
		s := smtp.NewServer(box)
		s.Domain, s.ErrorLog = "mail.example.net", log.New(io.Discard, "", 0)
		if how != "none" {
			s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}}
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		ok(t, err)
		at[how] = l.Addr().String()
		if how == "implicit" {
			l = tls.NewListener(l, s.TLSConfig)
		}
		go func() { _ = s.Serve(l) }()
		t.Cleanup(func() { _ = s.Close() })
	}
	to := func(how, more string) *Receiver {
		return receiver(t, fmt.Sprintf("{mail: {server: %q, tls: %s, from: 'Sluice <sluice@example.net>', to: [ops@example.net, night@example.net]%s}}", at[how], how, more), nil)
	}
	login := ", user: sluice, password: correct-horse, ca: " + ca
	for _, c := range []struct{ how, more, user string }{{"none", "", ""}, {"starttls", ", ca: " + ca, ""}, {"starttls", login, "sluice"}, {"implicit", login, "sluice"}} {
		said, err := to(c.how, c.more).Send(t.Context(), bad())
		if err != nil || said != "2.0.0 OK: queued" {
			t.Fatalf("%s: %q %v", c.how, said, err)
		}
		if user := <-box.asked; user != c.user {
			t.Errorf("%s: %q logged in", c.how, user)
		}
		m, err := mail.ReadMessage(strings.NewReader(<-box.mails))
		ok(t, err)
		for name, want := range map[string]string{"From": `"Sluice" <sluice@example.net>`, "To": "<ops@example.net>, <night@example.net>", "Subject": "example.net: notices, 1 new and 1 ended", "Bcc": "", "Auto-Submitted": "auto-generated"} {
			if got := m.Header.Get(name); got != want {
				t.Errorf("%s is %q", name, got)
			}
		}
		body, err := io.ReadAll(quotedprintable.NewReader(m.Body))
		ok(t, err)
		lines := strings.Split(strings.TrimSpace(string(body)), "\r\n")
		if len(lines) != 2 || !strings.HasPrefix(lines[0], "host web-1 drifts: drop") || !strings.HasSuffix(lines[0], "<script>é") || strings.ContainsAny(lines[0], "\x1b\x00\u202e") ||
			lines[1] != "ended: roll-out 3 is halted (since 2026-11-29 01:02:03 UTC, until 2026-11-29 02:02:03 UTC)" {
			t.Errorf("%q", lines)
		}
	}
	for _, c := range []struct{ how, more, says string }{
		{"starttls", "", "certificate"}, // of one whom nobody trusts
		{"implicit", "", "certificate"},
		{"starttls", ", user: sluice, password: wrong, ca: " + ca, "454"},
	} {
		if _, err := to(c.how, c.more).Send(t.Context(), bad()); err == nil || !strings.Contains(strings.ToLower(err.Error()), c.says) || strings.Contains(err.Error(), "wrong") {
			t.Errorf("%s: %v", c.how, err)
		}
	}
	at["starttls"] = at["none"]
	if _, err := to("starttls", "").Send(t.Context(), bad()); err == nil || !strings.Contains(err.Error(), "STARTTLS") {
		t.Errorf("in the clear: %v", err)
	}
	box.refuse = &smtp.SMTPError{Code: 451, Message: "later\x1b[2J " + strings.Repeat("x", 5000)}
	if _, err := to("none", "").Send(t.Context(), bad()); err == nil || !strings.Contains(err.Error(), "451") || len(err.Error()) > 2*mostLine || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("%v", err)
	}
	if len(box.mails) > 0 {
		t.Error("what failed was sent")
	}
}

// TestHangs: whoever says nothing, or goes on for ever, at each step, is left when the time is up.
func TestHangs(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(net.Conn, *bufio.Reader){
		"silent": func(net.Conn, *bufio.Reader) {},
		"hello":  func(c net.Conn, _ *bufio.Reader) { fmt.Fprint(c, "220 mail.example.net\r\n") },
		"command": func(c net.Conn, r *bufio.Reader) {
			fmt.Fprint(c, "220 m\r\n")
			_, _ = r.ReadString('\n')
			fmt.Fprint(c, "250 m\r\n")
		},
		"endless": func(c net.Conn, _ *bufio.Reader) {
			for {
				if _, err := c.Write([]byte(strings.Repeat("220-more\r\n", 1000))); err != nil {
					return
				}
			}
		},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		ok(t, err)
		t.Cleanup(func() { _ = l.Close() })
		left := make(chan bool, 10)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					r := bufio.NewReader(c)
					serve(c, r)
					_, _ = io.Copy(io.Discard, r)
					left <- true
				}()
			}
		}()
		for _, text := range []string{"{mail: {server: %q, tls: none, from: a@example.net, to: b@example.net}}", "{webhook: {url: 'http://%s/'}}"} {
			if strings.HasPrefix(text, "{webhook") {
				text = fmt.Sprintf(text, l.Addr())
			} else {
				text = fmt.Sprintf(text, l.Addr().String())
			}
			r := receiver(t, text, nil)
			r.most = 300 * time.Millisecond
			said, err := r.Send(t.Context(), bad())
			if err != nil && strings.Contains(err.Error(), "mail.example.net") {
				t.Errorf("%s: words of the receiver: %v", name, err)
			}
			if err == nil || (name == "silent" || r.mail != nil && name != "endless") && err.Error() != "it took longer than 300ms" {
				t.Errorf("%s, %s: %q %v", name, text, said, err)
			}
			<-left // the connection is closed
		}
	}
}

// TestWebhook sends to a real server, and says nothing about its secrets.
func TestWebhook(t *testing.T) {
	t.Parallel()
	type ask struct {
		authorization string
		Message
	}
	asked := make(chan ask, 10)
	status := http.StatusAccepted
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := ask{authorization: r.Header.Get("Authorization")}
		if err := json.NewDecoder(r.Body).Decode(&a.Message); err != nil {
			t.Error(err)
		}
		w.WriteHeader(status)
		asked <- a
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	ok(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	to := receiver(t, fmt.Sprintf("{webhook: {url: '%s/secret', authorization: Bearer correct-horse, ca: %s}}", server.URL, ca), nil)
	said, err := to.Send(t.Context(), bad())
	if err != nil || said != "202 Accepted" {
		t.Fatalf("%q %v", said, err)
	}
	got := <-asked
	if n := got.Notices; got.authorization != "Bearer correct-horse" || got.Fleet != "example.net" || len(n) != 2 || n[0].Number != 7 || n[0].Event != Begins || n[0].Kind != Drift || n[0].Subject != "web-1" || !n[0].Since.Equal(when) || !n[0].Ended.IsZero() || !n[1].Ended.Equal(when.Add(time.Hour)) {
		t.Errorf("%+v", got)
	}
	status = http.StatusBadGateway
	if _, err := to.Send(t.Context(), bad()); err == nil || err.Error() != "it answers 502 Bad Gateway" {
		t.Error(err)
	}
	untrusted := receiver(t, fmt.Sprintf("{webhook: {url: '%s/secret'}}", server.URL), nil)
	if _, err := untrusted.Send(t.Context(), bad()); err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(untrusted.How(), "secret") {
		t.Errorf("%v, %s", err, untrusted.How())
	}
}

// TestJournal has a real systemd-journald, in a mount namespace of its own, take the lines.
func TestJournal(t *testing.T) {
	if os.Getenv("SLUICE_TEST_JOURNAL") != "" {
		said, err := receiver(t, "{journal: true}", func(text string) { t.Error("printed:", text) }).Send(t.Context(), bad())
		if err != nil || said != "the journal has it" {
			t.Error(said, err)
		}
		return
	}
	t.Parallel()
	const daemon = "/lib/systemd/systemd-journald"
	for _, tool := range []string{daemon, "journalctl", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil {
			testnet.Lacks(t, tool, err)
		}
	}
	if os.Geteuid() != 0 {
		testnet.Lacks(t, "root", os.ErrPermission)
	}
	self, err := os.Executable()
	ok(t, err)
	const script = `
		mount -t tmpfs tmpfs /run
		mkdir -p /run/systemd/journal /run/log/journal/$(cat /etc/machine-id)
		` + daemon + ` & daemon=$!
		trap 'kill $daemon' EXIT
		until [ -S /run/systemd/journal/socket ]; do sleep 0.05; done
		"$1" -test.run='^TestJournal$' || exit 1
		until journalctl -D /run/log/journal -o json SLUICE_NUMBER=6 | grep -q .; do sleep 0.05; done
		journalctl -D /run/log/journal -o json SLUICE_FLEET=example.net >"$2"`
	into := filepath.Join(t.TempDir(), "json")
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "timeout", "60", "sh", "-eu", "-c", script, "sh", self, into)
	cmd.Env = append(os.Environ(), "SLUICE_TEST_JOURNAL=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(into)
	ok(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 2 {
		t.Fatalf("%s", text)
	}
	var entry map[string]string
	ok(t, json.Unmarshal([]byte(lines[0]), &entry))
	for name, want := range map[string]string{"PRIORITY": "3", "SLUICE_EVENT": "begins", "SLUICE_KIND": "drift", "SLUICE_SUBJECT": "web-1", "SLUICE_NUMBER": "7"} {
		if entry[name] != want {
			t.Errorf("%s is %q", name, entry[name])
		}
	}
	if is := entry["MESSAGE"]; !strings.HasPrefix(is, "example.net: host web-1 drifts: drop") || strings.ContainsAny(is, "\n\x1b\u202e") {
		t.Errorf("%q", is)
	}
}

// TestMany: a message has a bound, and says how much was left out; a printed line is one line.
func TestMany(t *testing.T) {
	t.Parallel()
	var all []Notice
	for i := range 5000 {
		all = append(all, Notice{Number: int64(i), Event: Begins, Kind: Refused, Subject: fmt.Sprint("web-", i), Text: hostile + strings.Repeat("x", 10_000), Since: when})
	}
	m := NewMessage("example.net", all)
	if len(m.Notices) != mostNotices || m.LeftOut != 4900 || m.Text != "example.net: notices, 100 new and 4900 more" {
		t.Errorf("%d, %d left out: %s", len(m.Notices), m.LeftOut, m.Text)
	}
	var printed []string
	said, err := receiver(t, "{journal: true}", func(text string) { printed = append(printed, text) }).Send(t.Context(), m)
	if err == nil && said == "the journal has it" {
		t.Skip("this machine has a journal") // TestJournal reads one
	}
	ok(t, err)
	if len(printed) != mostNotices+1 || printed[mostNotices] != "example.net: 4900 notices more, which the controller lists" {
		t.Errorf("%d lines, the last %q", len(printed), printed[len(printed)-1])
	}
	for _, line := range printed {
		if strings.ContainsAny(line, "\r\n\x1b") || len(line) > 3*mostLine {
			t.Fatalf("%q", line)
		}
	}
	if one := NewMessage("example.net", all[:1]); !strings.HasPrefix(one.Text, "example.net: drop") || len([]rune(one.Text)) != mostSubject || strings.ContainsAny(one.Text, "\r\n\x1b") {
		t.Error(one.Text)
	}
}
