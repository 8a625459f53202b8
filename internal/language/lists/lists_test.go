package lists

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// server serves a list whose text a test may change, and counts requests that
// were answered with a body.
type server struct {
	*httptest.Server
	text   string
	status int
	bodies int
}

func newServer(t *testing.T, text string) *server {
	s := &server{text: text, status: http.StatusOK}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tag := `"` + strings.TrimSpace(s.text) + `"`
		if s.status != http.StatusOK {
			w.WriteHeader(s.status)
			return
		}
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		s.bodies++
		w.Header().Set("ETag", tag)
		io.WriteString(w, s.text)
	}))
	t.Cleanup(s.Close)
	return s
}

func open(t *testing.T, store *Store, url string, refresh time.Duration) (string, error) {
	t.Helper()
	r, _, err := store.Open(url, refresh)
	if err != nil {
		return "", err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), nil
}

func TestStore(t *testing.T) {
	s := newServer(t, "192.0.2.1\n")
	var warned []string
	store := &Store{Dir: t.TempDir() + "/lists", Warn: func(err *StaleError) { warned = append(warned, err.Error()) }}
	expect := func(want string) {
		t.Helper()
		got, err := open(t, store, s.URL, time.Nanosecond)
		if err != nil || got != want {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
	}
	expect("192.0.2.1\n")
	expect("192.0.2.1\n")
	if s.bodies != 1 {
		t.Errorf("an unchanged list was sent %d times", s.bodies)
	}

	s.text = "198.51.100.0/24\n"
	if got, err := open(t, store, s.URL, 0); err != nil || got != "192.0.2.1\n" {
		t.Errorf("without refresh: got %q, %v", got, err)
	}
	expect("198.51.100.0/24\n")
	if len(warned) != 0 {
		t.Errorf("warned of nothing: %q", warned)
	}

	for _, bad := range []string{"<html>sign in</html>\n", "# nothing\n", "198.51.100.0/33\n"} {
		s.text, warned = bad, nil
		expect("198.51.100.0/24\n")
		if len(warned) != 1 {
			t.Errorf("%q was refused with %d warnings", bad, len(warned))
		}
	}
	s.status, warned = http.StatusInternalServerError, nil
	expect("198.51.100.0/24\n")
	if len(warned) != 1 || !strings.Contains(warned[0], "500") {
		t.Errorf("a server error was told as %q", warned)
	}

	store.Offline = true
	expect("198.51.100.0/24\n")
	if _, err := open(t, store, s.URL+"/other", time.Hour); err == nil {
		t.Error("a list that was never fetched was opened offline")
	}
}

func TestNoCopyToBeHad(t *testing.T) {
	s := newServer(t, "nothing like an address\n")
	store := &Store{Dir: t.TempDir()}
	if _, err := open(t, store, s.URL, time.Hour); err == nil {
		t.Fatal("a page that is not a list was taken")
	}
	entries, err := os.ReadDir(store.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
}

// A copy that is not a file, or has no end, is none: the list is fetched again, and what
// stood there goes.
func TestCopyThatIsNoFile(t *testing.T) {
	s := newServer(t, "192.0.2.1\n")
	put := map[string]func(path string) error{
		"a FIFO":   func(path string) error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)) },
		"a device": func(path string) error { return errors.Join(os.Remove(path), os.Symlink("/dev/zero", path)) },
		"endless":  func(path string) error { return os.Truncate(path, 1<<40) },
	}
	for name, put := range put {
		for _, suffix := range []string{"", ".json"} {
			store := &Store{Dir: t.TempDir()}
			if _, err := open(t, store, s.URL, time.Hour); err != nil {
				t.Fatal(err)
			}
			if err := put(store.path(s.URL) + suffix); err != nil {
				t.Fatal(err)
			}
			for range 2 { // what is fetched is kept
				if got, err := open(t, store, s.URL, time.Hour); err != nil || got != "192.0.2.1\n" {
					t.Errorf("%s%s: %q, %v", name, suffix, got, err)
				}
			}
		}
	}
}

// The clock may have been ahead when a list was fetched.
func TestCopyOfTheFuture(t *testing.T) {
	s := newServer(t, "192.0.2.1\n")
	store := &Store{Dir: t.TempDir() + "/lists"}
	if _, err := open(t, store, s.URL, time.Hour); err != nil {
		t.Fatal(err)
	}
	path := store.path(s.URL)
	info, err := store.info(path)
	if err != nil {
		t.Fatal(err)
	}
	due := func() bool {
		t.Helper()
		due, err := store.Due(s.URL, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return due
	}
	if due() {
		t.Error("a copy of this moment is due")
	}
	info.Fetched = time.Now().AddDate(10, 0, 0)
	if err := store.keepInfo(path, info); err != nil {
		t.Fatal(err)
	}
	if !due() {
		t.Error("a copy of the future is not due")
	}
	s.text = "198.51.100.0/24\n"
	if got, err := open(t, store, s.URL, time.Hour); err != nil || got != s.text || due() {
		t.Errorf("it is not asked for again: %q, %v", got, err)
	}
}
