package controller

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/notices"
	"sluice/internal/fleet/rollout"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
	"sluice/internal/language/policy"
)

// heard is what a receiver has heard, a line each.
type heard struct {
	mutex sync.Mutex
	lines []string
}

func (h *heard) add(lines ...string) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.lines = append(h.lines, lines...)
}

func (h *heard) count(what string) (n int) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	for _, line := range h.lines {
		if strings.Contains(line, what) {
			n++
		}
	}
	return n
}

// hook is a server that takes what is sent, or none of it.
type hook struct {
	heard
	*httptest.Server
	asked  atomic.Int64
	broken atomic.Bool
	hangs  atomic.Bool
	end    chan struct{}
}

func newHook(t *testing.T) *hook {
	h := &hook{end: make(chan struct{})}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.asked.Add(1)
		if h.hangs.Load() {
			<-h.end
			return
		}
		if h.broken.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		var m notices.Message
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		for _, n := range m.Notices {
			h.add(fmt.Sprintf("%s %s %s %s", n.Event, n.Kind, n.Subject, n.Text))
		}
	}))
	t.Cleanup(h.Close)
	t.Cleanup(sync.OnceFunc(func() { close(h.end) }))
	return h
}

// mailbox is a real mail server, as a backend and as its sessions.
type mailbox struct{ heard }

func (b *mailbox) NewSession(*smtp.Conn) (smtp.Session, error) { return b, nil }
func (b *mailbox) Reset()                                      {}
func (b *mailbox) Logout() error                               { return nil }
func (b *mailbox) Mail(string, *smtp.MailOptions) error        { return nil }
func (b *mailbox) Rcpt(string, *smtp.RcptOptions) error        { return nil }

func (b *mailbox) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	m, err := mail.ReadMessage(bytes.NewReader(text))
	if err != nil {
		return err
	}
	for name := range m.Header {
		b.add("header " + name)
	}
	body, err := io.ReadAll(m.Body)
	b.add(strings.Split(strings.ReplaceAll(string(body), "=\r\n", ""), "\r\n")...)
	return err
}

func newMailbox(t *testing.T) (*mailbox, string) {
	b := &mailbox{}
	s := smtp.NewServer(b)
	s.Domain, s.ErrorLog = "mail.example.net", log.New(io.Discard, "", 0)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return b, l.Addr().String()
}

// TestNotices: each receiver hears once of what begins and once of what ends, whoever of two
// controllers tells it, however often they start, and whatever another receiver does.
func TestNotices(t *testing.T) {
	t.Parallel()
	web, pager, deaf := newHook(t), newHook(t), newHook(t)
	deaf.hangs.Store(true)
	box, mailAt := newMailbox(t)
	printed := &heard{}
	f := newFleet(t, "example.net")
	var err error
	f.notices, err = notices.Parse("notices.yaml", fmt.Appendf(nil, `version: 1
receivers:
  web: {webhook: {url: %q}}
  pager: {webhook: {url: %q}, only: refused}
  deaf: {webhook: {url: %q}}
  ops: {mail: {server: %q, tls: none, from: sluice@example.net, to: ops@example.net}}
  here: {journal: true}
`, web.URL, pager.URL, deaf.URL, mailAt), func(text string) { printed.add(text) })
	ok(t, err)
	f.ahead = &atomic.Int64{}
	second := f.second()

	events := f.events(f.client, "")
	f.until("the stream", func() bool { return len(events.all("reset")) == 1 })
	f.text += "roll-out: {stages: [100%], settle: none}\n"
	token := f.token(map[string]string{"role": "web"}, 2)
	hosts, conns := map[string]*agent{}, map[string]*wire.Conn{}
	for _, host := range []string{"web-1", "web-2"} {
		hosts[host], err = f.join(host, token)
		ok(t, err)
		conns[host] = hosts[host].stream(nil)
	}
	_, err = f.publish("input: {default: drop}\n")
	ok(t, err)
	says := func(host string, r wire.Report) {
		t.Helper()
		v := f.controller.view.Load()
		d := v.desired[host]
		r.Order, r.Bundle, r.Rollout, r.Running = wire.Order{Incarnation: v.position.Incarnation, Revision: v.position.Revision}, d.Bundle, d.Rollout, d.Bundle
		if r.State == "" {
			r.State, r.Proved = wire.StateConfirmed, time.Now()
		}
		ok(t, conns[host].Send(t.Context(), &wire.Message{Report: &r}))
	}
	f.until("both are to run it", func() bool {
		all := f.controller.view.Load().desired
		return all["web-1"].Bundle == 1 && all["web-2"].Bundle == 1
	})
	says("web-1", wire.Report{})
	says("web-2", wire.Report{})
	f.until("the roll-out is done", func() bool {
		all, err := f.client.Rollouts(t.Context(), 1)
		ok(t, err)
		return all[0].State.Phase == rollout.Done
	})
	says("web-1", wire.Report{Drift: "ssh passes\r\nBcc: evil@example.net\r\n\r\nall is well\x1b[2J" + strings.Repeat("x", 3000)})
	f.until("all hear that it drifts", func() bool {
		return web.count("begins drift web-1 host web-1 drifts: ssh passes, and 2 more differences") == 1 && box.count("host web-1 drifts: ssh passes, and 2 more differences") == 1 && printed.count("example.net: host web-1 drifts: ssh passes, and 2 more differences") == 1
	})
	if box.count("header Bcc") > 0 || box.count("\x1b") > 0 || printed.count("\n") > 0 || printed.count("\x1b") > 0 {
		t.Errorf("%q %q", box.lines, printed.lines)
	}
	f.until("the event", func() bool { return events.has("notice", `"event":"begins"`) })

	// One takes nothing for a while, and one hangs: the others hear as before.
	web.broken.Store(true)
	f.ahead.Add(int64(noticeApart))
	says("web-2", wire.Report{State: wire.StateRefused, Error: "guard.yaml"})
	f.until("the others hear that one refuses", func() bool {
		return box.count("host web-2 refuses") == 1 && pager.count("begins refused web-2") == 1 && printed.count("host web-2 refuses") == 1
	})
	receiver := func(name string) api.ReceiverState {
		t.Helper()
		all, err := f.client.Notices(t.Context(), true)
		ok(t, err)
		for _, r := range all.Receivers {
			if r.Name == name {
				return r
			}
		}
		t.Fatalf("no %s in %+v", name, all.Receivers)
		return api.ReceiverState{}
	}
	f.until("who takes nothing is listed", func() bool {
		r := receiver("web")
		return r.Failure == "it answers 503 Service Unavailable" && r.Waiting == 1 && r.Sent == 1
	})
	if r := receiver("deaf"); r.Sent > 0 || deaf.asked.Load() == 0 {
		t.Errorf("%+v, asked %d times", r, deaf.asked.Load())
	}

	// A test goes to all, is in the audit, and is no way to send many: one at a time.
	begun := deaf.asked.Load()
	tested := make(chan error, 1)
	go func() {
		_, err := second.client.TestNotices(t.Context())
		tested <- err
	}()
	f.until("the test is sent", func() bool { return deaf.asked.Load() > begun && pager.count("test test example.net") == 1 })
	if _, err := second.client.TestNotices(t.Context()); kind(err) != wire.KindBusy {
		t.Errorf("a second test meanwhile: %v", err)
	}
	audit, err := f.controller.Store.Audit(t.Context(), 0, 1000)
	ok(t, err)
	if n := slices.IndexFunc(audit, func(e store.Entry) bool { return e.What == "notices.test" && strings.HasPrefix(e.Who, "operator:") }); n < 0 {
		t.Errorf("the test is not in the audit: %+v", audit)
	}
	ok(t, f.stop())
	f.run()
	web.broken.Store(false)
	f.ahead.Add(int64(noticeRetry))
	f.until("it hears what it missed", func() bool { return web.count("begins refused web-2") == 1 })

	// What has ended is told when it stays away.
	events = f.events(f.client, "")
	for host, a := range hosts {
		conns[host] = a.stream(nil)
	}
	f.until("both are back, as they were", func() bool {
		is := f.states()
		return is["web-1"].State == api.Drift && is["web-2"].State == api.Refused
	})
	says("web-1", wire.Report{})
	says("web-2", wire.Report{})
	gone := func(host string) bool {
		open, err := f.controller.Store.Notices(t.Context(), false)
		ok(t, err)
		return slices.ContainsFunc(open, func(is store.Notice) bool { return is.Subject == host && !is.Gone.IsZero() })
	}
	f.until("both are gone", func() bool { return gone("web-1") && gone("web-2") })
	says("web-1", wire.Report{Drift: "it comes and goes"})
	f.until("one is back", func() bool { return !gone("web-1") })
	// A controller that looked before may say meanwhile that it is there again, and then it has
	// to be away again. One that tells a receiver holds it for a minute, which such jumps of the
	// clock end: the other may tell it too.
	ends := func(what string, has func() bool) {
		t.Helper()
		last := time.Time{}
		f.until(what, func() bool {
			if time.Since(last) > 5*time.Second {
				f.ahead.Add(int64(quiet))
				last = time.Now()
			}
			return has()
		})
	}
	ends("the other has ended", func() bool {
		return web.count("ended refused web-2") > 0 && pager.count("ended refused web-2") > 0 && box.count("ended: host web-2 refuses") > 0
	})
	f.ahead.Add(int64(24 * time.Hour))
	ends("it is said again", func() bool { // not within noticeApart of what it was told just now
		return web.count("lasts drift web-1") > 0 && box.count("it lasts since") > 0
	})
	ok(t, f.client.Revoke(t.Context(), "web-1", "sold"))
	f.until("it is gone", func() bool { return gone("web-1") })
	ends("it has ended", func() bool { return web.count("ended drift web-1") > 0 && events.has("notice", `"event":"ended"`) })
	for _, what := range []string{"begins drift web-1", "begins refused web-2"} {
		if n := web.count(what); n != 1 {
			t.Errorf("it hears %d times: %s", n, what)
		}
	}
	f.until("no notice is open", func() bool {
		text := f.scraped()
		return strings.Contains(text, "\nsluice_fleet_notices{kind=\"drift\"} 0\n") && strings.Contains(text, "\nsluice_fleet_notices{kind=\"list\"} 0\n")
	})
	text := f.scraped()
	for _, want := range []string{`sluice_fleet_notices_sent_total{receiver="ops"} `, `sluice_fleet_notices_failed_total{receiver="deaf"} `} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	ok(t, <-tested)
	if !second.controller.noticing.mayTest(f.now()) { // the clock has gone on
		t.Error("no other test may be sent")
	}
	if pager.count("drift") > 0 {
		t.Errorf("%q", pager.lines)
	}
}

// TestWrongs: what is near its end, was halted or cannot be renewed is found.
func TestWrongs(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	ok(t, f.stop())
	f.ahead = &atomic.Int64{}
	f.run()
	f.text += "roll-out: {stages: [100%], settle: none}\n"
	_, err := f.join("web-1", f.token(nil, 1))
	ok(t, err)
	_, err = f.join("web-2", f.token(nil, 1))
	ok(t, err)
	ok(t, f.client.Revoke(t.Context(), "web-2", "sold"))
	r, list := f.failingList()
	wrongs := func() map[string]string {
		t.Helper()
		f.controller.noticing.mutex.Lock()
		f.controller.noticing.read = time.Time{}
		f.controller.noticing.mutex.Unlock()
		found, _, err := f.controller.wrongs(t.Context(), nil)
		ok(t, err)
		out := map[string]string{}
		for is, text := range found {
			out[string(is.kind)+" "+is.subject] = text
		}
		return out
	}
	if is := wrongs(); len(is) > 0 {
		t.Errorf("nothing is wrong, and it finds %v", is)
	}
	_, err = f.controller.Command(t.Context(), r.ID, rollout.Command{Kind: rollout.Hold, Who: "operator:erika", Why: "it is late"})
	ok(t, err)
	if is := wrongs(); len(is) != 1 || !strings.Contains(is[fmt.Sprint("halted ", r.ID)], "of bundle 1 was halted: ") || !strings.Contains(is[fmt.Sprint("halted ", r.ID)], "it is late") {
		t.Errorf("%v", is)
	}
	f.ahead.Add(int64(listFails))
	if is := wrongs(); len(is) != 2 || !strings.Contains(is["list scanners"], "the live list scanners cannot be renewed: http://127.0.0.1:1/list.txt") {
		t.Errorf("%v", is)
	}
	f.ahead.Add(int64(13 * time.Hour))
	if is := wrongs(); len(is) != 3 || !strings.Contains(is["signature timestamp"], "the newest ends") {
		t.Errorf("%v", is)
	}
	f.ahead.Add(int64(24 * 24 * time.Hour))
	if is := wrongs(); len(is) != 4 || !strings.Contains(is["host-certificate web-1"], "the certificate of host web-1 ends") {
		t.Errorf("%v", is)
	}
	f.says("sluice_fleet_host_certificates_ending 1")
	if !strings.Contains(f.scraped(), `sluice_fleet_list_age_seconds{list="`+list+`"} 21`) {
		t.Error(f.scraped())
	}
	f.ahead.Add(int64(60 * 24 * time.Hour))
	if is := wrongs(); is["signature bundle"] == "" {
		t.Errorf("%v", is)
	}
}

// failingList rolls a policy out that has a live list which nobody serves.
func (f *fleet) failingList() (*rollout.Rollout, string) {
	f.Helper()
	const url = "http://127.0.0.1:1/list.txt"
	name := policy.SignedList("scanners", url)
	signed, err := f.repository.Sign(trust.Signing{
		Level: 1, File: f.file("fleet.yaml", "", f.text), Parts: []trust.File{
			f.file("parts/10-base.yaml", "", "version: 1\nsets: {scanners: {url: \""+url+"\", live: true}}\ninput: {default: drop, rules: [drop from scanners]}\n"),
		}, Lists: []trust.File{f.file(trust.URLLists+"/"+name, "", "198.51.100.1\n")},
	}, time.Now(), f.policy)
	ok(f, err)
	r, err := f.give(signed.Bundle.Number)
	ok(f, err)
	f.until("the list fails", func() bool { return f.controller.lists.row(name).Failure != "" })
	return r, name
}

// TestCounted: what is in a notice of drift is one difference, and how many more there are.
func TestCounted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "it is not proved": "it is not proved",
		"input: tcp/22: meant drop, the kernel accept; all of source 192.0.2.0/24, 198.51.100.0/24": "input: tcp/22: meant drop, the kernel accept",
		"a; all of b\n\nc\nd": "a, and 2 more differences",
	} {
		if got := counted(text); got != want {
			t.Errorf("%q", got)
		}
	}
}
