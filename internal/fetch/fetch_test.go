package fetch

import (
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
	"testing"
	"time"
)

func sum(s string) string {
	b := sha256.Sum256([]byte(s))
	return hex.EncodeToString(b[:])
}

// holds fails unless the folder holds nothing but the names given.
func holds(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(names, " ") {
		t.Errorf("the folder holds %v, want %v", got, names)
	}
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
	dir := t.TempDir()
	dest := filepath.Join(dir, "list")
	var last, total int64
	req := Request{
		From: url + "/lists/scanners.txt", MaxBytes: int64(len(body)), SHA256: strings.ToUpper(sum(body)),
		Progress: func(d, of int64) { last, total = d, of },
	}
	res, err := toFile(t.Context(), dest, req)
	if err != nil {
		t.Fatal(err)
	}
	if res.Name != "scanners.txt" || res.Size != int64(len(body)) || res.SHA256 != sum(body) || res.ETag != `"one"` || res.Path != dest {
		t.Errorf("%+v", res)
	}
	if last != int64(len(body)) || total != int64(len(body)) {
		t.Errorf("progress ends at %d of %d", last, total)
	}
	if got, err := os.ReadFile(dest); err != nil || string(got) != body {
		t.Errorf("%q, %v", got, err)
	}
	if st, err := os.Stat(dest); err != nil || st.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	req.ETag = res.ETag
	if res, err = toFile(t.Context(), dest, req); err != nil || !res.NotModified || res.ETag != `"one"` {
		t.Errorf("asked again: %+v, %v", res, err)
	}
	holds(t, dir, "list")
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	from := filepath.Join(t.TempDir(), "banned.txt")
	if err := os.WriteFile(from, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	res, err := Fetch(t.Context(), dir, Request{From: from})
	if err != nil || res.Name != "banned.txt" || res.Size != 1 || res.SHA256 != sum("x") || res.Modified == "" {
		t.Fatalf("%+v, %v", res, err)
	}
	res.Discard()
	holds(t, dir)
}

// Whatever goes wrong, the error begins with what was fetched, the old file
// stays and no other is left behind.
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
	dest := filepath.Join(dir, "list")
	if err := os.WriteFile(dest, []byte("old"), 0o644); err != nil {
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
	} {
		_, err := toFile(t.Context(), dest, c.req)
		if want := c.req.From + ": " + c.want; err == nil || err.Error() != want {
			t.Errorf("error %v\n want %s", err, want)
		}
		if got, err := os.ReadFile(dest); err != nil || string(got) != "old" {
			t.Fatalf("%s: the old file holds %q, %v", c.req.From, got, err)
		}
		holds(t, dir, "list")
	}
}

func TestCancelled(t *testing.T) {
	url := server(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := Fetch(ctx, t.TempDir(), Request{From: url}); err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("error %v", err)
	}
}

func TestRedirects(t *testing.T) {
	plain := server(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "plain") })
	tls := httptest.NewTLSServer(http.RedirectHandler(plain, http.StatusFound))
	t.Cleanup(tls.Close)
	client := tls.Client()
	client.CheckRedirect = checkRedirect
	_, err := Fetch(t.Context(), t.TempDir(), Request{From: tls.URL, Client: client})
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
		res, err := Fetch(t.Context(), t.TempDir(), Request{From: from})
		if err != nil || res.Name != want {
			t.Errorf("%s: %+v, %v; want the name %s", from, res, err, want)
		}
	}
}

func TestPasswordsAreNotShown(t *testing.T) {
	_, err := Fetch(t.Context(), t.TempDir(), Request{From: "http://user:secret@127.0.0.1:1/x"})
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v", err)
	}
}

// toFile fetches and puts the file to dest in one step. When the result is
// NotModified, dest is left as it is.
func toFile(ctx context.Context, dest string, r Request) (*Result, error) {
	res, err := Fetch(ctx, filepath.Dir(dest), r)
	if err != nil {
		return nil, err
	}
	if res.NotModified {
		return res, nil
	}
	if err := res.Keep(dest); err != nil {
		res.Discard()
		return nil, err
	}
	return res, nil
}

// What was kept is no temporary file any more: once, a folder that could not be
// synced after the rename cost the only copy.
func TestDiscardLeavesWhatWasKept(t *testing.T) {
	dir := t.TempDir()
	from := filepath.Join(dir, "from")
	if err := os.WriteFile(from, []byte("192.0.2.1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Fetch(t.Context(), dir, Request{From: from})
	if err != nil {
		t.Fatal(err)
	}
	dest := filepath.Join(dir, "dest")
	if err := got.Keep(dest); err != nil {
		t.Fatal(err)
	}
	got.Discard()
	if _, err := os.Stat(dest); err != nil {
		t.Error(err)
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
	_, err := Fetch(t.Context(), t.TempDir(), Request{From: server.URL, Idle: time.Hour, Whole: 50 * time.Millisecond})
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
	_, err = Fetch(t.Context(), t.TempDir(), Request{From: "http://" + listener.Addr().String()})
	if err == nil || !strings.HasSuffix(err.Error(), ": the server answers 503 Service Unavailable") {
		t.Errorf("the error is %q", err)
	}
}
