// Package web is the page of sluice-controller: one application in a browser, for one host and
// for a fleet. Its source is in src, and what that builds, by scripts/page, in dist, which
// the program holds; Handler serves it. Callers: internal/fleet/local and
// internal/fleet/controller, which serve beside it what the page asks.
package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

//go:embed dist
var dist embed.FS

// Policy is the Content-Security-Policy of all that a server of the page answers: nothing from
// elsewhere, nothing inline, no evaluated text, in nobody's frame, and no text that becomes
// markup by other ways than the page's own templates.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types svelte-trusted-html"

// Secure sets the headers of every answer.
func Secure(h http.Header) {
	h.Set("Content-Security-Policy", Policy)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// file is one that is served.
type file struct {
	kind   string // its media type
	tag    string // ETag
	plain  []byte
	zipped []byte
}

var files = sync.OnceValue(func() map[string]*file {
	out := map[string]*file{}
	_ = fs.WalkDir(dist, "dist", func(name string, e fs.DirEntry, err error) error { // what is embedded can be read
		if err != nil || e.IsDir() {
			return err
		}
		text, err := dist.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(text)
		var zipped bytes.Buffer
		z, _ := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
		_, _ = z.Write(text)
		_ = z.Close()
		out[strings.TrimPrefix(name, "dist")] = &file{mime.TypeByExtension(path.Ext(name)), `"` + hex.EncodeToString(sum[:8]) + `"`, text, zipped.Bytes()}
		return nil
	})
	return out
})

// Handler serves the files of the page, and at every other path that names no file the page
// itself, which knows its pages by their paths. It compresses once, when it is made.
func Handler() http.Handler {
	files()
	return http.HandlerFunc(serve)
}

func serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	f := files()[r.URL.Path]
	if f == nil && path.Ext(r.URL.Path) == "" {
		f = files()["/index.html"]
	}
	if f == nil {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Cache-Control", "no-cache") // the names are stable: the tag says whether it is the same
	h.Set("ETag", f.tag)
	h.Set("Vary", "Accept-Encoding")
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", f.kind)
	body := f.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = f.zipped
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(body)
	}
}
