package fetch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func sum(s string) string {
	b := sha256.Sum256([]byte(s))
	return hex.EncodeToString(b[:])
}

func server(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func TestURL(t *testing.T) {
	const body = "192.0.2.1\n"
	url := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") == `"one"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("ETag", `"one"`)
		fmt.Fprint(w, body)
	})
	var last, total int64
	var text bytes.Buffer
	req := Request{
		From: url + "/lists/scanners.txt", MaxBytes: int64(len(body)), SHA256: strings.ToUpper(sum(body)),
		Progress: func(d, of int64) { last, total = d, of },
	}
	res, err := Stream(t.Context(), &text, req)
	if err != nil {
		t.Fatal(err)
	}
	if res.Name != "scanners.txt" || res.Size != int64(len(body)) || res.SHA256 != sum(body) || res.ETag != `"one"` {
		t.Errorf("%+v", res)
	}
	if last != int64(len(body)) || total != int64(len(body)) {
		t.Errorf("progress ends at %d of %d", last, total)
	}
	if text.String() != body {
		t.Errorf("%q", text.String())
	}
	req.ETag = res.ETag
	if res, err = Stream(t.Context(), &text, req); err != nil || !res.NotModified || res.ETag != `"one"` {
		t.Errorf("asked again: %+v, %v", res, err)
	}
}

func TestFile(t *testing.T) {
	from := filepath.Join(t.TempDir(), "banned.txt")
	if err := os.WriteFile(from, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	res, err := Stream(t.Context(), io.Discard, Request{From: from})
	if err != nil || res.Name != "banned.txt" || res.Size != 1 || res.SHA256 != sum("x") || res.Modified == "" {
		t.Fatalf("%+v, %v", res, err)
	}
}

// Whatever goes wrong, the error begins with what was fetched.
func TestFailures(t *testing.T) {
	url := server(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/missing":
			http.NotFound(w, r)
		case "/cut":
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "only this")
		case "/chunked-cut":
			fmt.Fprint(w, "only this")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case "/endless":
			for r.Context().Err() == nil {
				if _, err := fmt.Fprint(w, strings.Repeat("x", 1000)); err != nil {
					return
				}
			}
		case "/stall":
			fmt.Fprint(w, "and then")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/unasked-304":
			w.WriteHeader(http.StatusNotModified)
		default:
			fmt.Fprint(w, "hello")
		}
	})
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		req  Request
		want string
	}{
		{Request{From: url + "/missing"}, "the server answers 404 Not Found"},
		{Request{From: url + "/cut"}, "cut off after 9 bytes: unexpected EOF"},
		{Request{From: url + "/chunked-cut"}, "cut off after 9 bytes: unexpected EOF"},
		{Request{From: url + "/endless", MaxBytes: 5000}, "larger than the limit of 5000 bytes"},
		{Request{From: url + "/hello", MaxBytes: 4}, "larger than the limit of 4 bytes"},
		{Request{From: url + "/stall", Idle: 50 * time.Millisecond}, "nothing has arrived for 50ms"},
		{Request{From: url + "/loop"}, "redirected ten times"},
		{Request{From: url + "/unasked-304"}, "the server answers 304 Not Modified"},
		{Request{From: url + "/hello", SHA256: sum("other")}, "its SHA-256 is " + sum("hello") + " and not " + sum("other") + " as asked for"},
		{Request{From: url + "/hello", SHA256: "12"}, `"12" is not a SHA-256 sum of 64 hexadecimal digits`},
		{Request{From: "http://127.0.0.1:1/x"}, "dial tcp 127.0.0.1:1: connect: connection refused"},
		{Request{From: "ftp://lists.example.net/x"}, "scheme \"ftp\" is not known\nhint: use http, https or the path of a file"},
		{Request{From: filepath.Join(dir, "none")}, "no such file or directory"},
		{Request{From: dir}, "is a directory"},
		{Request{From: pipe}, "not a regular file"},
	} {
		_, err := Stream(t.Context(), io.Discard, c.req)
		if want := c.req.From + ": " + c.want; err == nil || err.Error() != want {
			t.Errorf("error %v\n want %s", err, want)
		}
	}
}

func TestCancelled(t *testing.T) {
	url := server(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := Stream(ctx, io.Discard, Request{From: url}); err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("error %v", err)
	}
}

func TestRedirects(t *testing.T) {
	plain := server(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "plain") })
	tls := httptest.NewTLSServer(http.RedirectHandler(plain, http.StatusFound))
	t.Cleanup(tls.Close)
	client := tls.Client()
	client.CheckRedirect = checkRedirect
	_, err := Stream(t.Context(), io.Discard, Request{From: tls.URL, Client: client})
	if err == nil || !strings.HasSuffix(err.Error(), "redirected from https to "+plain) {
		t.Errorf("error %v", err)
	}
	url := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/files/data.csv", http.StatusFound)
			return
		}
		if r.URL.Path == "/named" {
			w.Header().Set("Content-Disposition", `attachment; filename="../../etc/data.csv.gz"`)
		}
		fmt.Fprint(w, "data")
	})
	for from, want := range map[string]string{url: "data.csv", url + "/named": "data.csv.gz", url + "/a/": "a"} {
		res, err := Stream(t.Context(), io.Discard, Request{From: from})
		if err != nil || res.Name != want {
			t.Errorf("%s: %+v, %v; want the name %s", from, res, err, want)
		}
	}
}

func TestPasswordsAreNotShown(t *testing.T) {
	_, err := Stream(t.Context(), io.Discard, Request{From: "http://user:secret@127.0.0.1:1/x"})
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v", err)
	}
}

// A server that drips on without end is given up when the time for the whole is over,
// though there is always something that has just arrived.
func TestWholeTime(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, "1")
			w.(http.Flusher).Flush()
			time.Sleep(time.Millisecond)
		}
	}))
	defer server.Close()
	_, err := Stream(t.Context(), io.Discard, Request{From: server.URL, Idle: time.Hour, Whole: 50 * time.Millisecond})
	if err == nil || !strings.HasSuffix(err.Error(), "it has not come whole after 50ms") {
		t.Errorf("the error is %v", err)
	}
}

// What a server says beside its status code is not told on: it may steer a terminal.
func TestStatusLineIsNotToldOn(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Read(make([]byte, 4096))
		_, _ = io.WriteString(conn, "HTTP/1.1 503 \x1b[2Jall is well\r\nContent-Length: 0\r\n\r\n")
	}()
	_, err = Stream(t.Context(), io.Discard, Request{From: "http://" + listener.Addr().String()})
	if err == nil || !strings.HasSuffix(err.Error(), ": the server answers 503 Service Unavailable") {
		t.Errorf("the error is %q", err)
	}
}
