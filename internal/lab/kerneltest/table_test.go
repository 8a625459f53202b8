package kerneltest

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"

	"sluice/internal/lab/testnet"
)

// wordTest is one policy and what happens to packets under it.
type wordTest struct {
	name   string
	policy string // "version: 1" is added
	before func(*testing.T, *town)
	// tries are lines of
	//
	//	FROM [via NAME] > TO WHAT[ xN] = OUTCOME[, OUTCOME ...]
	//
	// FROM and TO are places of the town. WHAT is tcp/PORT, udp/PORT (tcp4, udp6
	// and the like for one family) or ping (ping4, ping6). OUTCOMEs are
	// answered, silent, reset, unreachable; with xN the try is made N times one
	// after another, and "answered*3, silent" is the outcomes in their order,
	// the last one for all that follow. "answered as PLACE" asks how the server
	// saw the client. Lines are tried all at once, in both families, unless
	// ordered is set.
	tries   string
	ordered bool
	after   func(*testing.T, *town)
}

func runWords(t *testing.T, tests []wordTest) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := newTown(t)
			if test.before != nil {
				test.before(t, c)
			}
			artifact := apply(t, c.host, test.policy)
			c.try(t, test.tries, test.ordered)
			if test.after != nil {
				test.after(t, c)
			}
			if t.Failed() {
				t.Logf("policy:\n%s\n%s", test.policy, artifact.Text())
			}
		})
	}
}

// attempt is one line of tries for one family.
type attempt struct {
	line     string
	from, to string
	proto    string
	port     uint16
	v6       bool
	times    int
	want     []want
}

type want struct {
	outcome testnet.Outcome
	as      string // place, "" for any
}

func (c *town) try(t *testing.T, text string, ordered bool) {
	t.Helper()
	var group sync.WaitGroup
	for _, a := range parseTries(t, text) {
		if ordered {
			c.attempt(t, a)
		} else {
			group.Go(func() { c.attempt(t, a) })
		}
	}
	group.Wait()
}

func parseTries(t *testing.T, text string) (out []attempt) {
	t.Helper()
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
		if line == "" {
			continue
		}
		left, right, ok := strings.Cut(line, "=")
		words := strings.Fields(left)
		if !ok || len(words) < 4 || words[1] != ">" {
			t.Fatalf("bad line of tries: %s", line)
		}
		a := attempt{line: line, from: words[0], to: words[2], times: 1}
		var port string
		a.proto, port, _ = strings.Cut(words[3], "/")
		if port != "" {
			n, err := strconv.ParseUint(port, 10, 16)
			if err != nil {
				t.Fatalf("bad port: %s", line)
			}
			a.port = uint16(n)
		}
		if len(words) == 5 {
			if _, err := fmt.Sscanf(words[4], "x%d", &a.times); err != nil {
				t.Fatalf("bad count: %s", line)
			}
		}
		a.want = parseWants(t, right)
		only := a.proto[len(a.proto)-1]
		a.proto = strings.TrimRight(a.proto, "46")
		for _, v6 := range []bool{false, true} {
			if only == '4' && v6 || only == '6' && !v6 {
				continue
			}
			b := a
			b.v6 = v6
			if !place(b.from, v6).IsValid() || !place(b.to, v6).IsValid() {
				t.Fatalf("unknown place: %s", line)
			}
			out = append(out, b)
		}
	}
	if len(out) == 0 {
		t.Fatal("no tries")
	}
	return out
}

func parseWants(t *testing.T, text string) (out []want) {
	t.Helper()
	for _, part := range strings.Split(text, ",") {
		part, as, _ := strings.Cut(strings.TrimSpace(part), " as ")
		name, count, repeated := strings.Cut(part, "*")
		n := 1
		if repeated {
			var err error
			if n, err = strconv.Atoi(count); err != nil {
				t.Fatalf("bad repetition in %q", text)
			}
		}
		w := want{as: as}
		for _, o := range []testnet.Outcome{testnet.Answered, testnet.Silent, testnet.Reset, testnet.Unreachable} {
			if o.String() == name {
				w.outcome = o
			}
		}
		if w.outcome == testnet.Failed {
			t.Fatalf("unknown outcome %q", name)
		}
		for range n {
			out = append(out, w)
		}
	}
	return out
}

func (c *town) attempt(t *testing.T, a attempt) {
	t.Helper()
	for i := range a.times {
		w := a.want[min(i, len(a.want)-1)]
		r := c.once(a, w)
		switch {
		case r.Outcome != w.outcome:
			t.Errorf("%s (IPv%s, try %d): %v", a.line, map[bool]string{false: "4", true: "6"}[a.v6], i+1, r)
		case w.as != "" && r.Peer.Addr() != place(w.as, a.v6):
			t.Errorf("%s (IPv%s): the server saw %s", a.line, map[bool]string{false: "4", true: "6"}[a.v6], r.Peer)
		}
	}
}

// open opens a connection that stays until the test ends; the message, where there is
// one, is answered.
func (c *town) open(t *testing.T, from, to string, port uint16, v6 bool, message string) *testnet.Conn {
	t.Helper()
	r, conn := c.home(from).OpenTCP(testnet.TCPTry{From: at(place(from, v6), 0), To: at(place(to, v6), port), Message: message, Patience: enough})
	if conn != nil {
		t.Cleanup(conn.Close)
	}
	if r.Outcome != testnet.Answered {
		t.Fatalf("from %s to %s: %v", from, to, r)
	}
	return conn
}

// once makes one try; it is patient where an answer is expected.
func (c *town) once(a attempt, w want) testnet.Result {
	from, to := place(a.from, a.v6), place(a.to, a.v6)
	patience, s := patience(w.outcome != testnet.Silent), c.home(a.from)
	switch a.proto {
	case "tcp":
		return s.TryTCP(testnet.TCPTry{From: netip.AddrPortFrom(from, 0), To: netip.AddrPortFrom(to, a.port), Message: "hello", Patience: patience})
	case "udp":
		return s.TryUDP(testnet.UDPTry{From: netip.AddrPortFrom(from, 0), To: netip.AddrPortFrom(to, a.port), Message: "hello", Patience: patience})
	case "ping":
		return s.TryEcho(testnet.EchoTry{From: from, To: to, Patience: patience})
	}
	return testnet.Result{Err: fmt.Errorf("unknown protocol %s", a.proto)}
}
