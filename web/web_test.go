package web_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"sluice/web"
)

func get(t *testing.T, path string, headers ...string) (status int, head http.Header, text string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	web.Handler().ServeHTTP(w, r)
	out := w.Result()
	defer out.Body.Close()
	var body io.Reader = out.Body
	if out.Header.Get("Content-Encoding") == "gzip" {
		var err error
		if body, err = gzip.NewReader(out.Body); err != nil {
			t.Fatal(err)
		}
	}
	all, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return out.StatusCode, out.Header, string(all)
}

// The page is served at the path of each of its pages, with all that it names.
func TestHandler(t *testing.T) {
	_, _, page := get(t, "/hosts/web-1")
	named := regexp.MustCompile(`(?:src|href)="(/[^"]+)"`).FindAllStringSubmatch(page, -1)
	if len(named) < 2 {
		t.Fatalf("the page names %d files:\n%s", len(named), page)
	}
	for _, n := range named {
		status, plain, text := get(t, n[1])
		if status != http.StatusOK || plain.Get("Content-Type") == "" {
			t.Errorf("%s: status %d", n[1], status)
		}
		_, small, same := get(t, n[1], "Accept-Encoding", "gzip, br")
		if small.Get("Content-Encoding") != "gzip" || same != text {
			t.Errorf("%s: compressed it is another text", n[1])
		}
		if known, _, _ := get(t, n[1], "If-None-Match", plain.Get("ETag")); known != http.StatusNotModified {
			t.Errorf("%s: asked again: status %d", n[1], known)
		}
	}
	if inline := regexp.MustCompile(`<script(>|[^>]* on\w+=)|style="`).FindString(page); inline != "" {
		t.Errorf("the page has %q, which its policy forbids", inline)
	}
	if none, _, _ := get(t, "/assets/none.js"); none != http.StatusNotFound {
		t.Errorf("a file that is not there: status %d", none)
	}
}

func TestEvents(t *testing.T) {
	w := httptest.NewRecorder()
	if err := web.Events(w, strings.NewReader("{\"note\":\"a\"}\n{\"result\":1}\n")); err != nil {
		t.Fatal(err)
	}
	if got := w.Body.String(); got != "data: {\"note\":\"a\"}\n\ndata: {\"result\":1}\n\n" {
		t.Errorf("%q", got)
	}
}

func TestOwn(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
	if web.Own(r, "secret") {
		t.Error("a request that shows nothing is the page's own")
	}
	r.Header.Set(web.CSRFHeader, web.CSRF("another"))
	if web.Own(r, "secret") {
		t.Error("a request that shows another session's is the page's own")
	}
	r.Header.Set(web.CSRFHeader, web.CSRF("secret"))
	if !web.Own(r, "secret") {
		t.Error("the page's own request is not")
	}
}

func TestPacked(t *testing.T) {
	text := strings.Repeat("a host, ", 1000)
	h := web.Packed(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.URL.Query().Get("type"))
		_, _ = io.WriteString(w, text)
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, "the end")
	}))
	for _, c := range []struct {
		kind, takes string
		packed      bool
	}{
		{"application/json", "gzip, br", true},
		{"application/json", "", false},
		{web.EventStream, "gzip", false},
		{"application/x-ndjson", "gzip", false},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/?type="+url.QueryEscape(c.kind), http.NoBody)
		r.Header.Set("Accept-Encoding", c.takes)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var body io.Reader = w.Body
		if is := w.Header().Get("Content-Encoding") == "gzip"; is != c.packed {
			t.Errorf("%+v: packed %v", c, is)
		}
		if c.packed {
			if w.Body.Len() > len(text)/10 {
				t.Errorf("%+v: %d bytes", c, w.Body.Len())
			}
			z, err := gzip.NewReader(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			body = z
		}
		if got, err := io.ReadAll(body); err != nil || string(got) != text+"the end" {
			t.Errorf("%+v: %d bytes, %v", c, len(got), err)
		}
	}
}
