package agent

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"sluice/internal/agent/api"
	"sluice/internal/system/kernel/peer"
)

// follow asks for the log until its connection is closed, and gives the answer's lines.
func (s *tested) follow(t *testing.T) (net.Conn, *bufio.Reader) {
	t.Helper()
	c := s.dial(t)
	if _, err := c.Write([]byte("GET /v1/namespaces/shop/log?follow=true&source=192.0.2.7 HTTP/1.1\r\nHost: x\r\nAccept: " + api.Lines + "\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return c, bufio.NewReader(answer.Body)
}

func line(t *testing.T, in *bufio.Reader) string {
	t.Helper()
	text, err := in.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Who follows the log gets what comes until he hangs up; so many of a user do at a time, and
// others beside them.
func TestLogFollowers(t *testing.T) {
	s := newTested(t)
	s.listen(t)
	s.caller.Store(reader)
	if status, text := s.ask(t, http.MethodGet, "/v1/namespaces/shop/log?follow=true", ""); status != http.StatusBadRequest || !strings.Contains(text, api.Lines) {
		t.Errorf("without lines: %d %s", status, text)
	}
	if status, text := s.ask(t, http.MethodGet, "/v1/namespaces/shop/log?since=noon", ""); status != http.StatusBadRequest {
		t.Errorf("no time: %d %s", status, text)
	}
	var open []net.Conn
	var last *bufio.Reader
	for range readersOfUser {
		var c net.Conn
		c, last = s.follow(t)
		if text := line(t, last); !strings.HasPrefix(text, `{"logged":{"number":1,`) || !strings.Contains(text, `"prefix":"192.0.2.7"`) {
			t.Fatal(text)
		}
		open = append(open, c)
	}
	if status, text := s.ask(t, http.MethodGet, "/v1/namespaces/shop/log", ""); status != http.StatusConflict {
		t.Errorf("one more: %d %s", status, text)
	}
	for _, other := range []*peer.Peer{changer, root} {
		s.caller.Store(other)
		if status, text := s.ask(t, http.MethodGet, "/v1/namespaces/shop/log", ""); status != http.StatusOK {
			t.Errorf("%d: %d %s", other.UID, status, text)
		}
	}
	if _, err := s.kept.Append([]byte("{}")); err != nil {
		t.Fatal(err)
	}
	if err := s.kept.Flush(); err != nil {
		t.Fatal(err)
	}
	if text := line(t, last); !strings.HasPrefix(text, `{"logged":{"number":2,`) {
		t.Error(text)
	}
	for _, c := range open {
		if err := c.(*net.UnixConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	if text := line(t, last); text != `{"result":{"packets":0}}`+"\n" {
		t.Error(text)
	}
	for deadline := time.Now().Add(enough); ; time.Sleep(10 * time.Millisecond) { // all of them go
		s.logs.mutex.Lock()
		left := len(s.logs.of)
		s.logs.mutex.Unlock()
		if left == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d users read the log still", left)
		}
	}
}

// Who watches the connection table, or what the kernel drops, is told until he hangs up, and
// has a place among those who read the log.
func TestWatchers(t *testing.T) {
	for _, c := range []struct {
		path, body string
		told       []string // what the lines have
		result     string   // and the last one has
	}{
		{"entries/watch", `{"port":22}`, []string{`"event":"missed","missed":22`}, `{"result":{"events":3,"missed":0}}`},
		{"drops", `{"reason":"X"}`, []string{`{"dropped":{"reason":"X",`, `{"drops":{"by":"",`}, `"packets":2`},
	} {
		t.Run(c.path, func(t *testing.T) {
			s := newTested(t)
			s.listen(t)
			s.caller.Store(reader)
			path := "/v1/namespaces/shop/" + c.path
			if status, text := s.ask(t, http.MethodPost, path, "{}"); status != http.StatusBadRequest || !strings.Contains(text, api.Lines) {
				t.Errorf("without lines: %d %s", status, text)
			}
			var last *bufio.Reader
			var conn net.Conn
			for range readersOfUser {
				conn = s.dial(t)
				if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\nAccept: %s\r\n\r\n%s", path, len(c.body), api.Lines, c.body); err != nil {
					t.Fatal(err)
				}
				answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = answer.Body.Close() })
				last = bufio.NewReader(answer.Body)
				for _, want := range c.told {
					if text := line(t, last); !strings.Contains(text, want) {
						t.Fatal(text)
					}
				}
			}
			if status, text := s.ask(t, http.MethodPost, path, `{"seconds":1}`); status != http.StatusConflict {
				t.Errorf("one more: %d %s", status, text)
			}
			if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if text := line(t, last); !strings.HasPrefix(text, `{"result":`) || !strings.Contains(text, c.result) {
				t.Error(text)
			}
		})
	}
}

// However many users there are, so many of them read the log, and root beside them.
func TestLogReaders(t *testing.T) {
	r := readers{ofUser: readersOfUser, most: mostReaders}
	var free []func()
	for i := range uint32(mostReaders) {
		f, err := r.take(1000 + i/readersOfUser)
		if err != nil {
			t.Fatal(err)
		}
		free = append(free, f)
	}
	for user, want := range map[uint32]string{1000: "the same user", 9000: "16 others"} {
		if _, err := r.take(user); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v", user, err)
		}
	}
	for range readersOfUser {
		f, err := r.take(0)
		if err != nil {
			t.Fatal(err)
		}
		free = append(free, f)
	}
	if _, err := r.take(0); err == nil {
		t.Error("root reads it without bound")
	}
	for _, f := range free {
		f()
	}
	if len(r.of) != 0 || r.all != 0 {
		t.Errorf("%v and %d stay", r.of, r.all)
	}
}

// An agent that keeps nothing has the caller look himself.
func TestNoLogKept(t *testing.T) {
	s := newTested(t)
	s.listen(t)
	of, _ := s.spaces.of("shop")
	of.log.Store(nil)
	if status, text := s.ask(t, http.MethodGet, "/v1/namespaces/shop/log", ""); status != http.StatusNotFound || !strings.Contains(text, string(api.NotServed)) {
		t.Errorf("%d %s", status, text)
	}
}

// TestReadersOfFleet: who reads by a fleet takes no place of others, and they none of the fleet's.
func TestReadersOfFleet(t *testing.T) {
	r := readers{what: "reading", ofUser: 4, most: 2}
	for _, users := range [][]uint32{{fleetUser, fleetUser}, {4000, 4001}} {
		for _, user := range users {
			if _, err := r.take(user); err != nil {
				t.Errorf("user %d: %v", user, err)
			}
		}
		if _, err := r.take(users[1]); err == nil || !strings.Contains(err.Error(), "2 others are reading") {
			t.Errorf("one more of user %d: %v", users[1], err)
		}
	}
	if _, err := r.take(0); err != nil {
		t.Error(err)
	}
}
