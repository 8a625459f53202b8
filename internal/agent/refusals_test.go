package agent

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/internal/agent/alert"
	"sluice/internal/agent/api"
	"sluice/internal/system/kernel/peer"
)

// heard gives what is told of refusals, with the user's number and the kind behind.
func (s *tested) heard() chan string {
	out := make(chan string, 1000)
	s.refusals.tell = func(event, text string, fields map[string]string) {
		if event != alert.Refused {
			text = event + " " + text
		}
		out <- strings.TrimSpace(fmt.Sprint(text, " ", fields["UID"], " ", fields["KIND"]))
	}
	return out
}

func awaitLine(t *testing.T, heard chan string, ends string) string {
	t.Helper()
	select {
	case text := <-heard:
		if !strings.HasSuffix(text, ends) {
			t.Errorf("told of %q, not of %q", text, ends)
		}
		return text
	case <-time.After(enough):
		t.Errorf("not told of %q", ends)
		return ""
	}
}

// TestRefusalsTold: what is refused is told of, with who it was and why, and what is only
// an answer is not.
func TestRefusalsTold(t *testing.T) {
	t.Parallel()
	s := newTested(t)
	heard := s.heard()
	s.listen(t)
	const ban = "/v1/namespaces/shop/bans"
	ask := func(as *peer.Peer, body string, headers ...string) {
		s.caller.Store(as)
		s.ask(t, http.MethodPost, ban, body, headers...)
	}
	ask(root, bodies["POST /v1/namespaces/{namespace}/bans"])
	ask(root, "{}", api.StateHeader, "/srv/other")
	ask(nobody, "{}")
	if text := awaitLine(t, heard, "may change the firewall 4001 not-allowed"); !strings.HasPrefix(text, "user 4001 (") || !strings.Contains(text, "): POST /v1/namespaces/{namespace}/bans: ") {
		t.Error(text)
	}
	ask(root, `{"bans":[{"what":"\u001b[2Jx"}]}`)
	if text := awaitLine(t, heard, " 0 bad-request"); strings.ContainsRune(text, 0x1b) {
		t.Errorf("%q has what a terminal obeys", text)
	}
	ask(changer, "{}", api.ProtocolHeader, "9")
	awaitLine(t, heard, " 4002 protocol")
	ask(changer, `{"bans":[{"what":"`+strings.Repeat("x", large)+`"}]}`)
	awaitLine(t, heard, " 4002 too-large")
	for _, half := range []string{"POST /v1/name", "GET /v1 HTTP/1.1\r\nHost: s\r\n", "\x16\x03\x01"} {
		c := s.dial(t)
		_, _ = io.WriteString(c, half)
		_ = c.Close()
		awaitLine(t, heard, "an incomplete request, or not HTTP 4002 bad-request")
	}
	c := s.dial(t)
	_, _ = io.WriteString(c, "POST "+ban+" HTTP/1.1\r\nHost: s\r\nContent-Length: 100\r\n\r\n{")
	_ = c.(*net.UnixConn).CloseWrite()
	awaitLine(t, heard, "unexpected EOF 4002 bad-request")
	_ = s.dial(t).Close() // who says nothing is refused nothing
	s.ask(t, http.MethodGet, "/v1", "")
	if len(heard) > 0 {
		t.Errorf("told of %q", <-heard)
	}
}

// TestRefusalsBounded: who is refused all the time fills no journal, and hides nobody else.
func TestRefusalsBounded(t *testing.T) {
	t.Parallel()
	var told []string
	r := &refusals{every: time.Hour, tell: func(_, text string, _ map[string]string) { told = append(told, text) }}
	for range 1000 {
		r.add(&peer.Peer{UID: 4001}, refusal{why: "no"})
	}
	r.add(&peer.Peer{UID: 4002}, refusal{why: "no"})
	if len(told) != mostRefusals+1 || told[mostRefusals] != "user 4002: no" {
		t.Errorf("told %q", told)
	}
	r.over(4001)
	if want := "user 4001: " + strconv.Itoa(1000-mostRefusals) + " more were refused in 1h0m0s"; told[len(told)-1] != want {
		t.Errorf("told %q, not %q", told[len(told)-1], want)
	}
	many := len(told)
	r.over(4002)
	r.add(&peer.Peer{UID: 4001}, refusal{why: "no"})
	if len(told) != many+1 {
		t.Errorf("told %q", told[many:])
	}
}
