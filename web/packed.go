package web

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"sync"
)

// packers are writers that pack nothing at the moment. A new one takes nearly a megabyte.
var packers = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
	return z
}}

// Packed compresses what next answers in JSON, for whoever takes that: ten thousand hosts are
// more than a megabyte. Streams, and what others compressed, it leaves alone.
func Packed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			next.ServeHTTP(w, r)
			return
		}
		p := &packing{ResponseWriter: w}
		next.ServeHTTP(p, r)
		if p.to != nil {
			_ = p.to.Close()       // who reads no more hears nothing of it
			p.to.Reset(io.Discard) // keeps nothing of the answer
			packers.Put(p.to)
		}
	})
}

// packing is an answer that is compressed once its head says that it is JSON.
type packing struct {
	http.ResponseWriter
	to   *gzip.Writer // nil: as it is
	head bool         // was written
}

func (p *packing) WriteHeader(status int) {
	h := p.Header()
	if !p.head && status == http.StatusOK && h.Get("Content-Type") == "application/json" && h.Get("Content-Encoding") == "" {
		h.Set("Content-Encoding", "gzip")
		h.Add("Vary", "Accept-Encoding")
		h.Del("Content-Length")
		p.to, _ = packers.Get().(*gzip.Writer)
		p.to.Reset(p.ResponseWriter)
	}
	p.head = true
	p.ResponseWriter.WriteHeader(status)
}

func (p *packing) Write(text []byte) (int, error) {
	if !p.head {
		p.WriteHeader(http.StatusOK)
	}
	if p.to != nil {
		return p.to.Write(text)
	}
	return p.ResponseWriter.Write(text)
}

// FlushError is asked by http.ResponseController, also where an answer in JSON comes in pieces.
func (p *packing) FlushError() error {
	if p.to != nil {
		if err := p.to.Flush(); err != nil {
			return err
		}
	}
	return http.NewResponseController(p.ResponseWriter).Flush()
}

// Unwrap is for http.ResponseController.
func (p *packing) Unwrap() http.ResponseWriter { return p.ResponseWriter }
