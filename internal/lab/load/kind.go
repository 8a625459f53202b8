package load

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/valyala/fasthttp"
)

// Kind is what went wrong with a request, in words for a table.
type Kind string

// Kinds of errors; responses with a status of 400 and more have one each, see
// [statusKind].
const (
	ConnectTimeout Kind = "time-out while connecting"
	Refused        Kind = "connection refused"
	Unreachable    Kind = "unreachable"
	NoPort         Kind = "no local port free"
	NoFile         Kind = "no file descriptor free"
	NotPermitted   Kind = "not permitted" // a rule of output that rejects or drops
	ConnectFailed  Kind = "cannot connect"
	Certificate    Kind = "certificate not accepted"
	TLS            Kind = "TLS failed"
	Timeout        Kind = "time-out"
	Reset          Kind = "connection reset"
	Closed         Kind = "connection closed early"
	Malformed      Kind = "no HTTP response"
)

// statusKind is the kind of a response with such a status.
func statusKind(status int) Kind { return Kind("status " + strconv.Itoa(status)) }

// kinds in the order in which reports name them.
var kinds = []Kind{
	ConnectTimeout, Refused, Unreachable, NoPort, NoFile, NotPermitted, ConnectFailed,
	Certificate, TLS, Timeout, Reset, Closed, Malformed,
}

// Kinds are the kinds that were counted, in a fixed order.
func Kinds(errors map[Kind]uint64) []Kind {
	rank := func(k Kind) int {
		if i := slices.Index(kinds, k); i >= 0 {
			return i
		}
		return len(kinds)
	}
	var out []Kind
	for k, n := range errors {
		if n > 0 {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b Kind) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(string(a), string(b))
	})
	return out
}

// stage is how far a request came.
type stage int

const (
	connecting stage = iota
	shakingHands
	asking
)

// kindOf names an error by the stage at which it came.
func kindOf(err error, at stage) Kind {
	timedOut := isTimeout(err)
	switch {
	case timedOut && at == connecting:
		return ConnectTimeout
	case timedOut:
		return Timeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return Unreachable
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EADDRINUSE):
		return NoPort
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return NoFile
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return NotPermitted
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNABORTED):
		return Reset
	case at == connecting:
		return ConnectFailed
	case at == shakingHands:
		return tlsKind(err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.Is(err, io.ErrClosedPipe):
		return Closed
	}
	var record tls.RecordHeaderError
	var alert tls.AlertError
	if errors.As(err, &record) || errors.As(err, &alert) {
		return TLS
	}
	return Malformed
}

func tlsKind(err error) Kind {
	var verification *tls.CertificateVerificationError
	var host x509.HostnameError
	if errors.As(err, &verification) || errors.As(err, &host) {
		return Certificate
	}
	return TLS
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, fasthttp.ErrTimeout) || errors.As(err, &timeout) && timeout.Timeout()
}

// tooSmall says that a response's header does not fit into the reader's buffer.
func tooSmall(err error) bool {
	var small *fasthttp.ErrSmallBuffer
	return errors.As(err, &small) || errors.Is(err, bufio.ErrBufferFull)
}
