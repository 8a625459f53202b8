package lists

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/language/apart"
)

// The test's own program, started under this name, is the child.
const childName = "list-child"

func TestMain(m *testing.M) {
	if os.Args[0] == childName {
		if err := apart.Serve(context.Background(), os.Stdin, os.Stdout, apart.Readers{Kind: Read}, append([]string{fmt.Sprint("user ", os.Geteuid())}, os.Args[1:]...)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// What a server sends is read by another user than root, and the copy is made of
// ranges alone, each on the line where the server has it.
func TestChildReadsTheList(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "# remark \x1b[2J\n192.0.2.1 ; one\n\n2001:db8::/48\n198.51.100.7-198.51.100.9\n")
	}))
	defer s.Close()
	var said []string
	store := &Store{Dir: t.TempDir(), Child: []string{childName}, Unconfined: func(text string) { said = append(said, text) }}
	got, err := open(t, store, s.URL, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if want := "\n192.0.2.1\n\n2001:db8::/48\n198.51.100.7-198.51.100.9\n"; got != want {
		t.Errorf("the copy is %q, want %q", got, want)
	}
	if len(said) != 1 {
		t.Fatalf("told %q", said)
	}
	if root := os.Geteuid() == 0; root == strings.Contains(said[0], "user 0") {
		t.Errorf("root: %v, and the child says: %s", root, said[0])
	}
}

// No text of a server reaches a reader with what a terminal would obey.
func TestTextsOfServersAreClean(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprint(conn, "HTTP/1.1 404 \x1b]0;owned\x07\x1b[2J\r\nContent-Length: 0\r\n\r\n")
		_ = conn.Close()
	}))
	defer s.Close()
	for _, child := range [][]string{nil, {childName}} {
		store := &Store{Dir: t.TempDir(), Child: child}
		_, err := open(t, store, s.URL, time.Hour)
		if err == nil || strings.ContainsAny(err.Error(), "\x1b\x07") || !strings.Contains(err.Error(), "404") {
			t.Errorf("child %q: %q", child, err)
		}
	}
}

var errDrip = errors.New("it drips")

// A list that drips for ever ends with the time that it may take as a whole.
func TestDrip(t *testing.T) {
	stop, dripped := make(chan struct{}), make(chan struct{}, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for {
			select {
			case <-stop:
				return
			case <-r.Context().Done():
				return
			case <-time.After(10 * time.Millisecond):
				fmt.Fprint(w, "#")
				w.(http.Flusher).Flush()
				select {
				case dripped <- struct{}{}:
				default:
				}
			}
		}
	}))
	defer s.Close()
	defer close(stop)
	for _, child := range [][]string{nil, {childName}} {
		ctx, end := context.WithCancelCause(t.Context())
		go func() {
			<-dripped
			end(errDrip)
		}()
		store := &Store{Dir: t.TempDir(), Child: child}
		_, err := store.get(ctx, s.URL, copyInfo{})
		if !errors.Is(err, errDrip) {
			t.Errorf("child %q: %v", child, err)
		}
		if left, _ := os.ReadDir(store.Dir); len(left) > 0 {
			t.Errorf("child %q left %v", child, left)
		}
	}
}

// Lines that no list has are refused, whoever hands them back.
func TestLinesRise(t *testing.T) {
	r, err := addrset.ParseRange("192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	for _, lines := range [][]uint32{{0}, {1, 1}, {2, 1}, {maxLines + 1}} {
		w := newWriter(io.Discard)
		var failed error
		for _, line := range lines {
			failed = w.add(apart.Row{Tag: line, Range: r})
		}
		if failed == nil {
			t.Errorf("lines %v are taken", lines)
		}
	}
}
