package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sluice/internal/base/regular"
	"sluice/internal/engine/apply"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// Enrolment is how a host becomes one of a fleet.
type Enrolment struct {
	Host       *apply.Host
	ID         string
	Controller string // HOST:PORT
	Token      trust.Token
	Addresses  []netip.Addr // of the host
	Dialer     Dialer
	// Waiting is told once what is waited for: somebody has to approve the host, with this
	// SHA-256 of its key.
	Waiting func(text, key string)
}

// MemberError says that the host is of a fleet already.
type MemberError struct{ Fleet, Host string }

func (e *MemberError) Error() string {
	return fmt.Sprintf("this host is already %s of fleet %s", e.Host, e.Fleet)
}

// ErrWaited says that it was ended while the host waited for approval. It goes on where it was
// when it begins again with the same token.
var ErrWaited = errors.New("this host still waits for approval")

// approvalTime is how often it is asked whether somebody has approved the host.
const approvalTime = 5 * time.Second

// Enrol makes a key, and has the controller certify it. What the controller says is believed
// only by the root.json that the token names, and nothing is sent before it. The agent finds
// the membership by itself.
func Enrol(ctx context.Context, e Enrolment) (*apply.Membership, error) {
	if m, err := e.Host.Membership(); err != nil || m != nil {
		if err == nil {
			err = &MemberError{m.Fleet, m.Host}
		}
		return nil, err
	}
	if err := trust.CheckHostID(e.ID); err != nil {
		return nil, err
	}
	base := "https://" + e.Controller
	chain, err := (&wire.Client{HTTP: clientOf(trust.RootTLS(), e.Dialer), Base: base}).Roots(ctx)
	if err != nil {
		return nil, err
	}
	root, err := trust.PinnedRoot(chain, e.Token.Root)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(e.Host.Dir, apply.FleetDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	believed, err := trust.NewHost(dir, root)
	if err != nil {
		return nil, err
	}
	m, err := e.certify(ctx, dir, &wire.Client{HTTP: clientOf(believed.ClientTLS(nil, Now), e.Dialer), Base: base})
	if err != nil {
		return nil, errors.Join(err, forget(dir, trustName, keyName))
	}
	return m, forget(dir, e.requestName())
}

// trustName is the file of package trust.
const trustName = "trust.json"

// requestName is a key with its request, kept for as long as no answer came: a token is good
// for one key.
func (e *Enrolment) requestName() string { return "request-" + e.ID + ".pem" }

const requestHead = "-----BEGIN CERTIFICATE REQUEST-----"

func (e *Enrolment) request(dir string) (key, request []byte, err error) {
	path := filepath.Join(dir, e.requestName())
	text, err := regular.Read(path, maxKey)
	if at := strings.Index(string(text), requestHead); err == nil && at > 0 {
		return text[:at], text[at:], nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	if key, request, err = trust.NewRequest(e.ID); err != nil {
		return nil, nil, err
	}
	return key, request, writeFile(path, slices.Concat(key, request))
}

func (e *Enrolment) certify(ctx context.Context, dir string, c *wire.Client) (*apply.Membership, error) {
	key, request, err := e.request(dir)
	if err != nil {
		return nil, err
	}
	hash, err := trust.RequestKey(request)
	if err != nil {
		return nil, err
	}
	var out *wire.Enrolled
	for told := false; ; {
		out, err = c.Enrol(ctx, &wire.Enrol{Secret: e.Token.Secret, Host: e.ID, Request: string(request), Addresses: e.Addresses})
		var f *wire.Failure
		refused := errors.As(err, &f)
		if refused && f.Kind == wire.KindPending && !told {
			e.Waiting(f.Text, hash)
			told = true
		}
		// A controller that is away for a while does not end what waits.
		away := told && err != nil && (!refused || f.Kind == wire.KindUnavailable || f.Kind == wire.KindBusy)
		if !away && !(refused && f.Kind == wire.KindPending) {
			break
		}
		sleep(ctx, approvalTime)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %w", ErrWaited, context.Cause(ctx))
		}
	}
	if err != nil {
		return nil, err
	}
	if err := keepKey(dir, key, out.Certificate); err != nil {
		return nil, err
	}
	controllers := slices.Concat([]string{e.Controller}, e.Token.Controllers, out.Controllers)
	slices.Sort(controllers)
	m := &apply.Membership{
		Fleet: out.Fleet, Host: e.ID, Labels: e.Token.Labels, Controllers: slices.Compact(controllers), Enrolled: Now().Truncate(time.Second),
	}
	return m, e.Host.KeepMembership(m)
}

// Leave has the host be of no fleet: what runs stays, and is nobody's but the host's.
func Leave(h *apply.Host) (*apply.Membership, error) {
	m, err := h.Membership()
	if err == nil && m == nil {
		err = apply.ErrUnmanaged
	}
	if err != nil {
		return nil, err
	}
	// Without the first one it is of no fleet, whatever happens to the others.
	return m, forget(filepath.Join(h.Dir, apply.FleetDir), "host.json", keyName, trustName, stateName, trust.KindMembers+".json", trust.KindGuests+".json", setsName, detachedName)
}
