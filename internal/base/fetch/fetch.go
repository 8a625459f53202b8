// Package fetch brings what a URL serves or a file holds: country data and the lists
// of policies. Only what arrived whole, within its limit and with the checksum that
// was asked for is handed over. apart calls it, in a process without rights;
// the others name what is to be fetched.
package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"sluice/internal/base/regular"
)

// Request says what to fetch and what it has to be.
type Request struct {
	From     string   // an http or https URL, or the path of a file
	File     *os.File // that is read where From is no URL, see Open; closed behind it
	MaxBytes int64    // a larger one is refused; 0 is no limit
	SHA256   string   // 64 hexadecimal digits that it has to have; "" is any

	// What an earlier Result of the same URL said; when the server says that
	// nothing has changed since, the result is NotModified.
	ETag, Modified string

	// Progress, if set, is told how many bytes have come of how many; total is
	// -1 while it is unknown. It is called from the goroutine of Stream.
	Progress func(done, total int64)

	// Idle is how long nothing may arrive before it is given up; 0 is a minute.
	Idle time.Duration

	// Whole is how long all of it may take, however steadily it drips; 0 is an hour.
	Whole time.Duration

	// Client is used for URLs; nil is one that takes no longer than Idle to
	// connect and never goes from https to http.
	Client *http.Client
}

// Result is what was fetched.
type Result struct {
	Name           string // of the file, without folders
	Size           int64
	SHA256         string // hexadecimal
	ETag, Modified string // for the next Request; Modified is an HTTP date
	NotModified    bool   // nothing was written, since the one of before still holds
}

// IsURL reports whether from is fetched from the network.
func IsURL(from string) bool {
	return strings.HasPrefix(from, "http://") || strings.HasPrefix(from, "https://")
}

// Redact returns from without the password that a URL may carry.
func Redact(from string) string {
	if !IsURL(from) {
		return from
	}
	if u, err := url.Parse(from); err == nil {
		return u.Redacted()
	}
	return from
}

// source is an opened file or response.
type source struct {
	body           io.ReadCloser
	name           string
	size           int64 // -1 where unknown
	etag, modified string
}

// Stream fetches into a writer. What was written before an error is of no use.
func Stream(ctx context.Context, w io.Writer, r Request) (*Result, error) {
	res, err := stream(ctx, w, r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Redact(r.From), err)
	}
	return res, nil
}

func stream(ctx context.Context, w io.Writer, r Request) (*Result, error) {
	if r.SHA256 != "" {
		if b, err := hex.DecodeString(r.SHA256); err != nil || len(b) != sha256.Size {
			return nil, fmt.Errorf("%q is not a SHA-256 sum of 64 hexadecimal digits", r.SHA256)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := r.Idle
	if idle == 0 {
		idle = time.Minute
	}
	// The error says what it waited for, not that a context ended.
	stalled := fmt.Errorf("nothing has arrived for %v", idle)
	watch := time.AfterFunc(idle, func() { cancel(stalled) })
	defer watch.Stop()

	whole := r.Whole
	if whole == 0 {
		whole = time.Hour
	}
	limit := time.AfterFunc(whole, func() { cancel(fmt.Errorf("it has not come whole after %v", whole)) })
	defer limit.Stop()

	src, notModified, err := open(ctx, r)
	if err != nil {
		return nil, cause(ctx, err)
	}
	if notModified {
		return &Result{NotModified: true, ETag: r.ETag, Modified: r.Modified}, nil
	}
	defer func() { _ = src.body.Close() }()
	if r.MaxBytes > 0 && src.size > r.MaxBytes {
		return nil, tooLarge(r.MaxBytes)
	}
	res := &Result{Name: src.name, ETag: src.etag, Modified: src.modified}
	if err := pass(ctx, r, src, res, w, func() { watch.Reset(idle) }); err != nil {
		return nil, cause(ctx, err)
	}
	return res, nil
}

func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil && errors.Is(err, context.Canceled) {
		return c
	}
	return err
}

func tooLarge(limit int64) error {
	return fmt.Errorf("larger than the limit of %d bytes", limit)
}

func open(ctx context.Context, r Request) (src source, notModified bool, err error) {
	if IsURL(r.From) {
		return openURL(ctx, r)
	}
	if scheme, _, ok := strings.Cut(r.From, "://"); ok {
		return source{}, false, fmt.Errorf("scheme %q is not known\nhint: use http, https or the path of a file", scheme)
	}
	if r.File == nil {
		if r.File, err = Open(r.From); err != nil {
			return source{}, false, err
		}
	}
	st, err := r.File.Stat()
	if err != nil {
		return source{}, false, err
	}
	return source{body: r.File, name: filepath.Base(r.From), size: st.Size(), modified: st.ModTime().UTC().Format(http.TimeFormat)}, false, nil
}

// Open opens a file for a Request, a regular one. The error does not name the path.
func Open(path string) (*os.File, error) {
	f, err := regular.Open(path)
	if p := (*os.PathError)(nil); errors.As(err, &p) {
		err = p.Err
	}
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && st.IsDir() {
		err = errors.New("is a directory")
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func openURL(ctx context.Context, r Request) (src source, notModified bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.From, nil)
	if err != nil {
		return source{}, false, err
	}
	req.Header.Set("User-Agent", "sluice")
	// The checksum is of the file, so it has to come as it is.
	req.Header.Set("Accept-Encoding", "identity")
	if r.ETag != "" {
		req.Header.Set("If-None-Match", r.ETag)
	}
	if r.Modified != "" {
		req.Header.Set("If-Modified-Since", r.Modified)
	}
	client := r.Client
	if client == nil {
		in := &insider{}
		client, ctx = in.client(), in.trace(ctx)
		req = req.WithContext(ctx)
	}
	resp, err := client.Do(req)
	if err != nil {
		// The URL is in front of the message already.
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return source{}, false, err
	}
	switch {
	case resp.StatusCode == http.StatusNotModified && (r.ETag != "" || r.Modified != ""):
		_ = resp.Body.Close()
		return source{}, true, nil
	case resp.StatusCode != http.StatusOK:
		_ = resp.Body.Close()
		return source{}, false, fmt.Errorf("the server answers %s", strings.TrimSpace(fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))))
	}
	return source{
		body: resp.Body, name: nameOf(resp), size: resp.ContentLength,
		etag: resp.Header.Get("ETag"), modified: resp.Header.Get("Last-Modified"),
	}, false, nil
}

// nameOf returns the name that the server gives the file, else the last part of
// the URL's path.
func nameOf(resp *http.Response) string {
	if _, params, err := mime.ParseMediaType(resp.Header.Get("Content-Disposition")); err == nil && params["filename"] != "" {
		return path.Base(path.Clean("/" + strings.ReplaceAll(params["filename"], `\`, "/")))
	}
	if name := path.Base(resp.Request.URL.Path); name != "/" && name != "." {
		return name
	}
	return resp.Request.URL.Host
}

// pass copies src to w and checks it.
func pass(ctx context.Context, r Request, src source, res *Result, w io.Writer, alive func()) error {
	sum := sha256.New()
	body := io.Reader(src.body)
	if r.MaxBytes > 0 {
		body = io.LimitReader(body, r.MaxBytes+1)
	}
	in := &counter{ctx: ctx, r: body, total: src.size, progress: r.Progress, alive: alive}
	if _, err := io.Copy(io.MultiWriter(w, sum), in); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("cut off after %d bytes: %w", in.done, err)
		}
		return err
	}
	res.Size, res.SHA256 = in.done, hex.EncodeToString(sum.Sum(nil))
	switch {
	case r.MaxBytes > 0 && res.Size > r.MaxBytes:
		return tooLarge(r.MaxBytes)
	case src.size >= 0 && res.Size != src.size:
		return fmt.Errorf("%d bytes arrived of %d", res.Size, src.size)
	case r.SHA256 != "" && !strings.EqualFold(r.SHA256, res.SHA256):
		return fmt.Errorf("its SHA-256 is %s and not %s as asked for", res.SHA256, strings.ToLower(r.SHA256))
	}
	return nil
}

// counter reports what is read through it.
type counter struct {
	ctx         context.Context
	r           io.Reader
	done, total int64
	progress    func(done, total int64)
	alive       func()
}

func (c *counter) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(p)
	c.done += int64(n)
	if n > 0 {
		c.alive()
		if c.progress != nil {
			c.progress(c.done, c.total)
		}
	}
	return n, err
}
