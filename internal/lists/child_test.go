package lists

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/addrset"
)

// The test's own program, started under this name, is the child.
const childName = "list-child"

func TestMain(m *testing.M) {
	if os.Args[0] == childName {
		if err := Serve(context.Background(), os.Stdin, os.Stdout, append([]string{fmt.Sprint("user ", os.Geteuid())}, os.Args[1:]...)); err != nil {
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

// The child sees nothing of the environment but proxies and certificates.
func TestChildEnvironment(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://proxy.example.net:3128")
	t.Setenv("SECRET", "x")
	env := childEnvironment()
	if !slices.Contains(env, "HTTPS_PROXY=http://proxy.example.net:3128") || slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "SECRET") }) {
		t.Errorf("the child gets %q", env)
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

// A child that a server has taken over cannot hand back what is no list.
func TestAnswersThatCannotBe(t *testing.T) {
	head := func(text string) string { return string([]byte{0, 0, 0, byte(len(text))}) + text }
	for name, c := range map[string]struct{ answer, want string }{
		"nothing":           {"", "no answer"},
		"a huge head":       {"\xff\xff\xff\xff", "no answer"},
		"a short head":      {"\x00\x00\x00\x09{}", "cannot be read"},
		"no JSON":           {head("no"), "cannot be read"},
		"an unknown family": {head("{}") + "\x00\x00\x00\x01\x05\x01\x01\x01\x01\x01\x01\x01\x01", "family 5"},
		"a range reversed":  {head("{}") + "\x00\x00\x00\x01\x04\x02\x02\x02\x02\x01\x01\x01\x01", "not a range"},
		"a mapped address":  {head("{}") + "\x00\x00\x00\x01\x06" + strings.Repeat("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x01\x01\x01\x01", 2), "not a range"},
		"line 0":            {head("{}") + "\x00\x00\x00\x00\x04\x01\x01\x01\x01\x01\x01\x01\x01", "line 0"},
		"a line far away":   {head("{}") + "\xff\xff\xff\xff\x04\x01\x01\x01\x01\x01\x01\x01\x01", "line 4294967295"},
		"a line twice":      {head("{}") + strings.Repeat("\x00\x00\x00\x01\x04\x01\x01\x01\x01\x01\x01\x01\x01", 2), "line 1 behind line 1"},
		"half an element":   {head("{}") + "\x00\x00\x00\x01\x04\x01\x01", "unexpected EOF"},
	} {
		_, err := readAnswer(strings.NewReader(c.answer), func(element) {})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	h, err := readAnswer(strings.NewReader(head(`{"error":"a\u001b[2J","etag":"\"x\"\r\nHost: y"}`)), func(element) {})
	if err != nil || strings.Contains(h.Error, "\x1b") || h.ETag != "" {
		t.Errorf("%+v, %v", h, err)
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

func FuzzReadAnswer(f *testing.F) {
	var b bytes.Buffer
	r, err := addrset.ParseRange("2001:db8::/48")
	if err != nil {
		f.Fatal(err)
	}
	if err := writeAnswer(&b, head{ETag: `"x"`}, []element{{3, r}}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		var got []element
		h, err := readAnswer(bytes.NewReader(data), func(e element) { got = append(got, e) })
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := writeAnswer(&again, h, got); err != nil {
			t.Fatal(err)
		}
		var same []element
		if _, err := readAnswer(&again, func(e element) { same = append(same, e) }); err != nil || !slices.Equal(got, same) {
			t.Fatal(errors.Join(err, fmt.Errorf("%v became %v", got, same)))
		}
	})
}
