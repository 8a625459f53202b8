package load

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"testing"
	"time"
)

// answered is a connection on which a response waits.
type answered struct {
	net.Conn
	bytes.Reader
}

func (a *answered) Read(p []byte) (int, error)  { return a.Reader.Read(p) }
func (a *answered) Write(p []byte) (int, error) { return len(p), nil }

// FuzzResponse reads what any server may send: it ends, takes no more than there
// is, and what it takes for a whole response is one with a status.
func FuzzResponse(f *testing.F) {
	for _, text := range []string{
		fine, fine + fine,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n",
		"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.0 200 OK\r\n\r\nhello", "HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nx",
		"HTTP/1.1 999 What\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "HTTP/1.1 101 Switching Protocols\r\n\r\n", "HTTP/", "\r\n\r\n\r\n", "",
	} {
		f.Add([]byte(text), false)
		f.Add([]byte(text), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, head bool) {
		conn := &answered{}
		conn.Reset(data)
		var c connection
		c.use(conn)
		taken := 0
		for {
			before := c.reader.Buffered() + conn.Len()
			r, err := c.ask(&target{request: []byte("x"), head: head})
			if c.received > uint64(len(data)) {
				t.Fatalf("%d bytes counted of %d", c.received, len(data))
			}
			if err != nil {
				_ = kindOf(err, asking)
				return
			}
			if after := c.reader.Buffered() + conn.Len(); after >= before {
				t.Fatalf("a response of no length: %d bytes before, %d after", before, after)
			}
			if r.status < 0 || r.status > 999 {
				t.Fatalf("status %d", r.status)
			}
			if taken++; taken > len(data) {
				t.Fatal("more responses than bytes")
			}
		}
	})
}

// FuzzTarget reads any URL and header: what is accepted makes a request that a
// server reads as that method, host and header, and as one request alone.
func FuzzTarget(f *testing.F) {
	for _, url := range []string{"http://192.0.2.1/", "https://www.example.net:8443/a?b=c#d", "http://[2001:db8::1]/ä b", "http://a b/", "http:///", "http://x/\r\nHost: y", "//x", "http://x:99999/", "HTTP://X"} {
		f.Add(url, "GET", "X: y", "", true)
		f.Add(url, "POST", "Host: www.example.net", "body", false)
	}
	f.Add("http://x/", "GET", "X: y\r\nZ: w", "", true)
	f.Add("http://x/", "G\r\n", "User-Agent:", "", true)
	f.Fuzz(func(t *testing.T, url, method, header, body string, anew bool) {
		o := Options{URL: url, Method: method, Header: []string{header}, Body: []byte(body), NewConnections: anew}
		tg, err := newTarget(&o)
		if err != nil {
			return
		}
		if tg.port == 0 || tg.host == "" {
			t.Fatalf("%q: host %q, port %d", url, tg.host, tg.port)
		}
		if n := bytes.Count(tg.request, []byte("\r\n\r\n")); body == "" && n != 1 {
			t.Fatalf("%d requests: %q", n, tg.request)
		}
		if want := o.Method; want != "" && !bytes.HasPrefix(tg.request, []byte(want+" ")) {
			t.Fatalf("the method is not %q: %q", want, tg.request)
		}
		if method == http.MethodConnect {
			return // asks for no path
		}
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(tg.request)))
		if err != nil {
			t.Fatalf("no request: %v: %q", err, tg.request)
		}
		if req.Close != anew {
			t.Fatalf("to be closed: %v: %q", req.Close, tg.request)
		}
	})
}

func FuzzCorrected(f *testing.F) {
	f.Add(int64(time.Second), int64(time.Millisecond), int64(3))
	f.Add(int64(1), int64(1), int64(1))
	f.Fuzz(func(t *testing.T, value, expected, count int64) {
		span := int64(time.Minute)
		if value < 0 || value > span || count < 1 || count > 1000 || expected < 1000 {
			return
		}
		h := dense(span)
		if err := h.RecordValues(value, count); err != nil {
			t.Fatal(err)
		}
		fixed := corrected(packed(h), time.Duration(expected))
		if low := h.Min(); fixed.TotalCount() != count*max(1, low/expected) {
			t.Fatalf("%d of %d every %d: %d", count, low, expected, fixed.TotalCount())
		}
	})
}
