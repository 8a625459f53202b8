package geo

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"sluice/internal/language/apart"
)

// The test's own program, started under this name, is what fetches and reads.
const apartName = "countries-apart"

func TestMain(m *testing.M) {
	if os.Args[0] == apartName {
		lacks := []string{fmt.Sprint("user ", os.Geteuid())}
		if err := apart.Serve(context.Background(), os.Stdin, os.Stdout, apart.Readers{Kind: ReadRows}, lacks); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// What a server sends, and a file that somebody brought, is read by another user than
// root, who may not even open the file.
func TestUpdateApart(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/page":
			fmt.Fprint(w, "<html>\x1b[2J")
		case "/cut.csv":
			fmt.Fprint(w, ten[:len(ten)-4]+"\x1b[2J")
		default:
			w.Header().Set("ETag", `"one"`)
			w.Header().Set("Content-Disposition", `attachment; filename="dbip-country-lite-2026-06.csv"`)
			fmt.Fprint(w, ten)
		}
	}))
	defer server.Close()
	mine := write(t, "ten.csv", ten)
	if err := os.Chmod(mine, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{"a server": server.URL + "/data", "a file": mine} {
		t.Run(name, func(t *testing.T) {
			var said []string
			var done int64
			o := UpdateOptions{
				StateDir: t.TempDir(), From: []string{from}, Force: true,
				Progress: func(_ string, d, _ int64) { done = d },
				Process:  apart.Process{Command: []string{apartName}, Unconfined: func(text string) { said = append(said, text) }},
			}
			r, err := Update(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := inUse(t, o.StateDir); got != "192.0.2.0-192.0.2.9" || r.Info.Total.Ranges6 != 1 {
				t.Errorf("in use are %s and %+v", got, r.Info.Total)
			}
			if from != mine && (r.Info.Licence != "CC-BY-4.0" || r.Info.ETag != `"one"` || r.Info.Date.Month() != 6) {
				t.Errorf("of the source is known %+v", r.Info.Origin)
			}
			if done != int64(len(ten)) {
				t.Errorf("progress ends at %d of %d", done, len(ten))
			}
			if len(said) != 1 || (os.Geteuid() == 0) == strings.Contains(said[0], "user 0") {
				t.Errorf("told %q", said)
			}
			for path, want := range map[string]string{"/page": "is a web page", "/cut.csv": "cut.csv:2: "} {
				o.From = []string{server.URL + path}
				_, err := Update(t.Context(), o)
				if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\x1b") {
					t.Errorf("%s: %q", path, err)
				}
			}
		})
	}
}

// A process that a source has taken over cannot hand back what is not a country.
func TestTagsThatAreNoCountries(t *testing.T) {
	for tag, want := range map[uint32]string{tagOf("NO"): "NO", 0: "\x00\x00", 1<<16 | tagOf("NO"): ""} {
		if got := codeOf(tag); got != want || isCode(got) != (want == "NO") {
			t.Errorf("%d is %q, a country: %v", tag, got, isCode(got))
		}
	}
}
