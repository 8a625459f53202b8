package load

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/net/http/httpguts"
)

// target is what is asked.
type target struct {
	host    string           // as the URL has it, without port
	port    uint16           // of the URL, or that of its scheme
	tls     *tls.Config      // nil for http
	request []byte           // as it is sent
	head    bool             // the response has no body
	addrs   []netip.AddrPort // of the host
}

// userAgent names the asker to the server's log.
const userAgent = "sluice-load"

// newTarget reads a URL and composes the request.
func newTarget(o *Options) (*target, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, fmt.Errorf("%q is no URL: %w\nhint: give one such as http://192.0.2.1/page", o.URL, errors.Unwrap(err))
	}
	t := &target{host: u.Hostname()}
	switch {
	case u.Scheme == "http":
		t.port = 80
	case u.Scheme == "https":
		t.port = 443
		t.tls = &tls.Config{
			ServerName: t.host, InsecureSkipVerify: o.Insecure, //nolint:gosec // where it is asked for
			NextProtos: []string{"http/1.1"},
		}
		if !o.Insecure {
			// Read here, they are no part of the first handshakes. Without any, those fail.
			t.tls.RootCAs, _ = x509.SystemCertPool()
		}
	default:
		return nil, fmt.Errorf("%q is no URL of http or https\nhint: give one such as http://192.0.2.1/page", o.URL)
	}
	if t.host == "" {
		return nil, fmt.Errorf("%q names no host", o.URL)
	}
	if u.User != nil {
		return nil, fmt.Errorf("%q has a user in it\nhint: give --header 'Authorization: …'", u.Redacted())
	}
	if text := u.Port(); text != "" {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			return nil, fmt.Errorf("%q: port %s is not one of 1 to 65535", o.URL, text)
		}
		t.port = uint16(port)
	}
	return t, t.compose(o, u)
}

// compose writes the request once; every connection sends the same bytes.
func (t *target) compose(o *Options, u *url.URL) error {
	var req fasthttp.Request
	method := cmp.Or(o.Method, http.MethodGet)
	if !httpguts.ValidHeaderFieldName(method) {
		return fmt.Errorf("%q is no HTTP method", method)
	}
	t.head = method == http.MethodHead
	req.Header.DisableNormalizing()
	req.Header.SetMethod(method)
	req.Header.SetUserAgent(userAgent)
	req.Header.SetRequestURI(u.RequestURI())
	req.Header.SetHost(u.Host)
	req.UseHostHeader = true
	for _, line := range o.Header {
		name, value, colon := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if !colon || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return fmt.Errorf("%q is no header\nhint: write 'Name: value'", line)
		}
		switch strings.ToLower(name) {
		case "host":
			if !httpguts.ValidHostHeader(value) || value == "" {
				return fmt.Errorf("%q names no host", line)
			}
			req.Header.SetHost(value)
		case "connection", "content-length", "transfer-encoding":
			return fmt.Errorf("the header %s is set by itself\nhint: --new-connections closes each connection", name)
		case "user-agent":
			req.Header.SetUserAgent(value)
		default:
			req.Header.Add(name, value)
		}
	}
	if len(o.Body) > 0 {
		if method == http.MethodGet || t.head {
			return fmt.Errorf("%s sends no body\nhint: give --method POST", method)
		}
		req.SetBodyRaw(o.Body)
	}
	if o.NewConnections {
		req.SetConnectionClose()
	}
	var buf bytes.Buffer
	w := bufio.NewWriter(&buf)
	if err := errors.Join(req.Write(w), w.Flush()); err != nil {
		return fmt.Errorf("compose the request: %w", err)
	}
	t.request = buf.Bytes()
	return nil
}

// resolve finds the addresses of the host.
func (t *target) resolve(ctx context.Context) error {
	if addr, err := netip.ParseAddr(t.host); err == nil {
		t.addrs = []netip.AddrPort{netip.AddrPortFrom(addr, t.port)}
		return nil
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", t.host)
	if err != nil {
		return fmt.Errorf("find the address of %s: %w", t.host, err)
	}
	for _, a := range addrs {
		t.addrs = append(t.addrs, netip.AddrPortFrom(a.Unmap(), t.port))
	}
	return nil
}

// tryTime is how long each address of a name is tried for.
const tryTime = 2 * time.Second

// choose takes the first address of the host that accepts a connection, so that
// all the load goes to one. A single address is not tried.
func (t *target) choose(ctx context.Context, dial func(context.Context, netip.AddrPort) (net.Conn, error)) netip.AddrPort {
	if len(t.addrs) > 1 {
		for _, addr := range t.addrs {
			ctx, cancel := context.WithTimeout(ctx, tryTime)
			conn, err := dial(ctx, addr)
			cancel()
			if err == nil {
				_ = conn.Close()
				return addr
			}
		}
	}
	return t.addrs[0]
}
