package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"sluice/internal/base/regular"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

const (
	keyName = "key.pem"
	maxKey  = 1 << 20
)

// Dialer connects as net.Dialer does, from where the host is.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// Network is Controllers over TLS. Its fields are set before it is used.
type Network struct {
	Dir       string // has the key
	Host      string // its id
	Trust     *trust.Host
	Addresses []string // HOST:PORT of controllers
	Dialer    Dialer
	Clock     func() time.Time // the host's; nil: [Now]

	mu          sync.Mutex
	certificate *tls.Certificate
	client      *http.Client // whose connections are used again
}

// Open reads the host's key.
func (n *Network) Open() error {
	text, err := regular.Read(filepath.Join(n.Dir, keyName), maxKey)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(n.Dir, keyName), err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.client != nil {
		n.client.CloseIdleConnections()
	}
	n.certificate, n.client = &pair, clientOf(n.Trust.ClientTLS(&pair, n.clock()), n.Dialer)
	return nil
}

func (n *Network) clock() func() time.Time {
	if n.Clock == nil {
		return Now
	}
	return n.Clock
}

// idleTime is how long a connection stays that nothing is asked on. A host asks for what it lacks,
// one after the other, and then for minutes nothing: to the controller each connection is some
// 50 KiB, as much as the stream.
const idleTime = 2 * time.Second

// clientOf speaks HTTP/1.1, which a stream needs.
func clientOf(config *tls.Config, dial Dialer) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: dial, TLSClientConfig: config, MaxIdleConns: 4, IdleConnTimeout: idleTime, ResponseHeaderTimeout: time.Minute,
	}}
}

func (n *Network) now() (*http.Client, *tls.Certificate) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.client, n.certificate
}

// any asks controllers until one answers, in no order, each for its share of the time: one that is
// silent leaves some for the next. What one does not have, such as members that another one has
// signed, the next one may.
func (n *Network) any(ctx context.Context, ask func(ctx context.Context, base string) error) error {
	var failed []error
	for asked, i := range rand.Perm(len(n.Addresses)) { //nolint:forbidigo,gosec // hosts have to differ, and nobody gains by guessing it
		one, stop := ctx, func() {}
		if until, is := ctx.Deadline(); is {
			one, stop = context.WithTimeout(ctx, time.Until(until)/time.Duration(len(n.Addresses)-asked))
		}
		err := ask(one, "https://"+n.Addresses[i])
		stop()
		if err == nil {
			return nil
		}
		var f *wire.Failure
		if ctx.Err() != nil || errors.As(err, &f) && !slices.Contains([]wire.Kind{wire.KindBusy, wire.KindUnavailable, wire.KindNotFound}, f.Kind) {
			return err
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// Dial opens a stream.
func (n *Network) Dial(ctx context.Context) (s Stream, err error) {
	client, _ := n.now()
	err = n.any(ctx, func(ctx context.Context, base string) error {
		c, err := wire.Dial(ctx, client, base)
		if err == nil {
			s = c
		}
		return err
	})
	return s, err
}

func asked[T any](ctx context.Context, n *Network, ask func(context.Context, *wire.Client) (T, error)) (out T, err error) {
	client, _ := n.now()
	err = n.any(ctx, func(ctx context.Context, base string) (err error) {
		out, err = ask(ctx, &wire.Client{HTTP: client, Base: base})
		return err
	})
	return out, err
}

// Desired asks for what is desired.
func (n *Network) Desired(ctx context.Context) (*wire.Desired, error) {
	return asked(ctx, n, func(ctx context.Context, c *wire.Client) (*wire.Desired, error) { return c.Desired(ctx) })
}

// Living asks for bans and allows.
func (n *Network) Living(ctx context.Context, has wire.Living, from string) (*wire.Live, error) {
	return asked(ctx, n, func(ctx context.Context, c *wire.Client) (*wire.Live, error) { return c.Living(ctx, has, from) })
}

// Metadata asks for what is signed.
func (n *Network) Metadata(ctx context.Context) (*wire.Trust, error) {
	return asked(ctx, n, func(ctx context.Context, c *wire.Client) (*wire.Trust, error) { return c.Trust(ctx) })
}

// Blob asks for a blob.
func (n *Network) Blob(ctx context.Context, hash string, most int64, from []byte) ([]byte, error) {
	return asked(ctx, n, func(ctx context.Context, c *wire.Client) ([]byte, error) { return c.Blob(ctx, hash, most, from) })
}

// Reach asks over a connection that is made for it.
func (n *Network) Reach(ctx context.Context) error {
	_, certificate := n.now()
	fresh := clientOf(n.Trust.ClientTLS(certificate, n.clock()), n.Dialer)
	defer fresh.CloseIdleConnections()
	return n.any(ctx, func(ctx context.Context, base string) error {
		_, err := (&wire.Client{HTTP: fresh, Base: base}).Desired(ctx)
		return err
	})
}

// Renew gets a new key and certificate where the certificate is in the second half of its
// time.
func (n *Network) Renew(ctx context.Context) error {
	_, have := n.now()
	if n.clock()().Before(trust.HalfLife(have.Leaf)) {
		return nil
	}
	key, request, err := trust.NewRequest(n.Host)
	if err != nil {
		return err
	}
	out, err := asked(ctx, n, func(ctx context.Context, c *wire.Client) (*wire.Renewed, error) {
		return c.Renew(ctx, &wire.Renew{Request: string(request)})
	})
	if err != nil {
		return err
	}
	if err := keepKey(n.Dir, key, out.Certificate); err != nil {
		return err
	}
	return n.Open()
}

// keepKey writes a key with its certificate, which have to be each other's.
func keepKey(dir string, key []byte, chain string) error {
	if _, err := tls.X509KeyPair([]byte(chain), key); err != nil {
		return fmt.Errorf("the certificate that the controller made: %w", err)
	}
	return writeFile(filepath.Join(dir, keyName), append(append([]byte{}, key...), chain...))
}

// forget removes what a host has of a fleet, except for the policies.
func forget(dir string, names ...string) error {
	var errs []error
	for _, name := range names {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
