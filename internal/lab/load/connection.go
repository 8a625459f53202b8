package load

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"
)

const (
	smallBuffer = 4 << 10  // holds the header of most responses
	largeBuffer = 64 << 10 // holds any that is not out of bounds
	// closeTime is how long a server that says it closes the connection is given.
	closeTime = time.Second
)

// connection is one slot for connections that follow one another.
type connection struct {
	conn   net.Conn // nil when closed
	failed error    // what the last read ended with
	reader *bufio.Reader
	header fasthttp.ResponseHeader

	sent, received uint64 // since they were last asked for
}

// Read counts, and keeps the error, which fasthttp makes an end of file.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.conn.Read(p)
	c.received += uint64(n)
	if err != nil {
		c.failed = err
	}
	return n, err
}

func (c *connection) use(conn net.Conn) {
	c.conn, c.failed = conn, nil
	if c.reader == nil {
		c.reader = bufio.NewReaderSize(c, smallBuffer)
	} else {
		c.reader.Reset(c)
	}
}

func (c *connection) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// response is what is kept of one.
type response struct {
	status int
	close  bool // the server closes the connection
}

// ask sends the request and reads the response to its end.
func (c *connection) ask(t *target) (response, error) {
	n, err := c.conn.Write(t.request)
	c.sent += uint64(n)
	if err != nil {
		return response{}, err
	}
	r, err := c.read(t.head)
	if err != nil && c.failed != nil && !errors.Is(c.failed, io.EOF) {
		err = c.failed
	}
	return r, err
}

// read takes a response in, without what it says.
func (c *connection) read(head bool) (response, error) {
	for {
		if _, err := c.reader.Peek(1); err != nil {
			return response{}, err
		}
		err := c.header.Read(c.reader)
		if err != nil && tooSmall(err) && c.reader.Size() < largeBuffer {
			c.grow()
			continue
		}
		if err != nil {
			return response{}, err
		}
		if status := c.header.StatusCode(); status < 100 || status >= 200 || status == http.StatusSwitchingProtocols {
			break
		}
	}
	r := response{status: c.header.StatusCode(), close: c.header.ConnectionClose()}
	length := c.header.ContentLength()
	switch {
	case head || r.status == http.StatusNoContent || r.status == http.StatusNotModified || r.status < 200:
		return r, nil
	case length >= 0:
		return r, c.discard(int64(length))
	case length == -1:
		return r, c.discardChunks()
	}
	r.close = true
	_, err := io.Copy(io.Discard, c.reader)
	return r, err
}

// grow gives the reader a larger buffer, with what is in the one that it has.
func (c *connection) grow() {
	held, _ := c.reader.Peek(c.reader.Buffered())
	c.reader = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(held)), c), largeBuffer)
}

// scratch is where long bodies are read to.
var scratch = sync.Pool{New: func() any { return new([largeBuffer]byte) }}

// discard reads n bytes past the header. Long bodies go by the reader, in large
// steps.
func (c *connection) discard(n int64) error {
	if rest := n - int64(c.reader.Buffered()); rest < smallBuffer {
		_, err := c.reader.Discard(int(n))
		return unexpected(err)
	}
	n -= int64(c.reader.Buffered())
	_, _ = c.reader.Discard(c.reader.Buffered())
	buf := scratch.Get().(*[largeBuffer]byte)
	defer scratch.Put(buf)
	for n > 0 {
		got, err := c.Read(buf[:min(n, largeBuffer)])
		n -= int64(got)
		if err != nil && n > 0 {
			return unexpected(err)
		}
	}
	return nil
}

func (c *connection) discardChunks() error {
	if _, err := io.Copy(io.Discard, httputil.NewChunkedReader(c.reader)); err != nil {
		return err
	}
	// The trailer ends with an empty line.
	for {
		line, err := c.reader.ReadSlice('\n')
		if err != nil {
			return unexpected(err)
		}
		if len(bytes.TrimRight(line, "\r\n")) == 0 {
			return nil
		}
	}
}

// unexpected is an end of file inside of a response.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// awaitClose waits until the server has closed the connection, since the side
// that closes first keeps the connection's ports in TIME_WAIT for a minute: here
// the local ports would run out.
func (c *connection) awaitClose() {
	_ = c.conn.SetReadDeadline(time.Now().Add(closeTime))
	_, _ = c.reader.ReadByte()
}

// dialer opens connections from local addresses in turn.
type dialer struct {
	options *Options
	net     net.Dialer
	local   []netip.AddrPort // none is any
}

func newDialer(o *Options) *dialer {
	d := &dialer{options: o, net: net.Dialer{KeepAlive: -1}}
	for _, a := range o.Bind {
		d.local = append(d.local, netip.AddrPortFrom(a, 0))
	}
	if len(d.local) > 0 {
		d.net.Control = bindLate
	}
	return d
}

// bindLate leaves the choice of the local port to connect, which knows the
// destination and may use a port again that another destination has; bind alone
// does not, and has 28,232 ports (IP_BIND_ADDRESS_NO_PORT, ip(7)).
func bindLate(_, _ string, raw syscall.RawConn) (err error) {
	ctlErr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	})
	return errors.Join(ctlErr, err)
}

func (d *dialer) dial(ctx context.Context, to netip.AddrPort, turn int) (net.Conn, error) {
	if d.options.Dialer != nil {
		return d.options.Dialer(ctx, "tcp", to.String())
	}
	if len(d.local) == 0 {
		// DialTCP would bind to any address, and thereby choose the local port.
		return d.net.DialContext(ctx, "tcp", to.String())
	}
	conn, err := d.net.DialTCP(ctx, "tcp", d.local[turn%len(d.local)], to)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// try is dial for an address that is only tried.
func (d *dialer) try(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	return d.dial(ctx, to, 0)
}

// checkBind says whether the local addresses can be used.
func (o *Options) checkBind(to netip.Addr) error {
	for _, a := range o.Bind {
		if a.Is4() != to.Is4() {
			return fmt.Errorf("%s cannot reach %s: one is IPv4, the other IPv6", a, to)
		}
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(a, 0)))
		if err != nil {
			return fmt.Errorf("%s is no address of this host: %w", a, err)
		}
		_ = l.Close()
	}
	return nil
}

// shakeHands makes a connection one of TLS.
func shakeHands(conn net.Conn, config *tls.Config) (net.Conn, error) {
	secure := tls.Client(conn, config)
	return secure, secure.Handshake()
}
