package fetch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"
)

func checkRedirect(req *http.Request, via []*http.Request) error {
	switch {
	case len(via) >= 10:
		return errors.New("redirected ten times")
	case req.URL.Scheme != "https" && via[len(via)-1].URL.Scheme == "https":
		return fmt.Errorf("redirected from https to %s", req.URL.Redacted())
	}
	return nil
}

// insider keeps a server of the Internet from having something asked of the own network, which
// it cannot reach itself: services of cloud providers, or of the machine, answer whoever comes
// from there. It judges addresses as they are connected to, whatever names they have; behind a
// proxy they are those of the proxy, which decides itself where it goes.
type insider struct {
	public     atomic.Bool // the first server is of the Internet
	redirected atomic.Bool
}

// client is that of one request.
func (in *insider) client() *http.Client {
	transport, _ := http.DefaultTransport.(*http.Transport)
	transport = transport.Clone()
	transport.DisableKeepAlives = true
	transport.DialContext = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second, Control: in.control}).DialContext // as that of http.DefaultTransport
	return &http.Client{Transport: transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		in.redirected.Store(true)
		return checkRedirect(r, via)
	}}
}

// trace looks whom the first connection is to.
func (in *insider) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(is httptrace.GotConnInfo) {
		if to, err := netip.ParseAddrPort(is.Conn.RemoteAddr().String()); err == nil && !in.redirected.Load() {
			in.public.Store(!own(to.Addr()))
		}
	}})
}

func (in *insider) control(_, address string, _ syscall.RawConn) error {
	if !in.redirected.Load() || !in.public.Load() {
		return nil
	}
	if to, err := netip.ParseAddrPort(address); err != nil || own(to.Addr()) {
		return fmt.Errorf("redirected to %s, a private address", address)
	}
	return nil
}

// shared is what providers number their own networks by (RFC 6598).
var shared = netip.MustParsePrefix("100.64.0.0/10")

// Addresses of IPv6 that lead to one of IPv4: by NAT64 (RFC 6052), of which the second prefix is
// for translators of its own network (RFC 8215), and by 6to4 (RFC 3056).
var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	nat64Local = netip.MustParsePrefix("64:ff9b:1::/48")
	sixToFour  = netip.MustParsePrefix("2002::/16")
)

// own says of an address that it is not of the Internet.
func own(a netip.Addr) bool {
	a = a.Unmap()
	switch b := a.As16(); {
	case nat64.Contains(a):
		return own(netip.AddrFrom4([4]byte(b[12:])))
	case sixToFour.Contains(a):
		return own(netip.AddrFrom4([4]byte(b[2:6])))
	}
	return !a.IsGlobalUnicast() || a.IsPrivate() || shared.Contains(a) || nat64Local.Contains(a)
}
