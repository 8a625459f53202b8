package controller

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"time"
	"unicode/utf8"

	"sluice/internal/base/english"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/rollout"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// operator answers commands.
type operator struct{ *Controller }

// listen makes the socket of commands, over one that nobody listens on.
func (c *Controller) listen() (net.Listener, error) {
	path := api.Socket(c.Dir)
	if conn, err := net.Dial("unix", path); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%s: another controller runs in this directory", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	return l, os.Chmod(path, 0o600)
}

// in reads a request, or answers why not.
func in[T any](w http.ResponseWriter, r *http.Request) (v T, fine bool) {
	if err := strictly(http.MaxBytesReader(w, r.Body, api.MostRequest), &v); err != nil {
		wire.Fail(w, wrong("the request is wrong: %v", err))
		return v, false
	}
	return v, true
}

// How many characters a reason has that goes into the audit, and the title of a draft.
const mostWhy, mostTitle = 1024, 200

// sound says what of a body is wrong whoever asks and whatever fleet.yaml allows: nobody is
// asked to approve it.
func sound(body any) error {
	why := ""
	switch is := body.(type) {
	case *api.NewHoldings:
		return holdable(*is)
	case *api.Lift:
		_, err := liftable(*is)
		return err
	case *api.NewToken:
		_, err := usable(*is)
		return err
	case *api.NewDraft:
		if n := utf8.RuneCountInString(is.Title); n > mostTitle {
			return fmt.Errorf("the title has %d characters, more than %d", n, mostTitle)
		}
	case *api.Why:
		why = is.Why
	case *api.Approval:
		why = is.Why
	}
	if n := utf8.RuneCountInString(why); n > mostWhy {
		return fmt.Errorf("why has %d characters, more than %d", n, mostWhy)
	}
	return nil
}

// strictly reads one value of JSON that has no key and no null that is not known.
func strictly(body io.Reader, into any) error {
	text, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more follows the value")
	}
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		switch token, err := d.Token(); {
		case err != nil:
			return sound(into)
		case token == nil:
			return fmt.Errorf("null at byte %d is not a value: leave the key out", d.InputOffset())
		}
	}
}

// done answers with what came of it.
func (o operator) done(w http.ResponseWriter, v any, err error) {
	switch {
	case err != nil:
		wire.Fail(w, refusal(err))
	case v == nil:
		w.WriteHeader(http.StatusNoContent)
	default:
		wire.Answer(w, http.StatusOK, v)
	}
}

// refusal is a failure for people who can see the controller's machine.
func refusal(err error) *wire.Failure {
	f := failure(err)
	if f.Kind == wire.KindUnavailable {
		f.Text = err.Error()
	}
	return f
}

func wrong(format string, args ...any) *wire.Failure {
	return &wire.Failure{Text: fmt.Sprintf(format, args...), Kind: wire.KindBadRequest}
}

func (o operator) Status(w http.ResponseWriter, r *http.Request) {
	v, online := o.view.Load(), o.hub.Online()
	out := &api.Status{
		Version: o.Version, Fleet: o.online.State().Fleet, Listens: o.listens, Controllers: o.Controllers,
		Incarnation: v.position.Incarnation, Revision: v.position.Revision, Database: o.away(),
	}
	if o.Web != nil {
		out.Web = o.Web.URL
	}
	who := as(r)
	for id, h := range v.hosts {
		if !who.sees(id, h.Labels) {
			continue
		}
		out.Hosts++
		if _, is := online[id]; is {
			out.Online++
		}
	}
	o.done(w, out, nil)
}

func (o operator) Hosts(w http.ResponseWriter, r *http.Request, params api.HostsParams) {
	only, err := as(r).hosts(params.Selector)
	if err != nil {
		o.done(w, nil, err)
		return
	}
	o.done(w, o.hosts(only), nil)
}

func (o operator) Revoke(w http.ResponseWriter, r *http.Request, host string) {
	why, fine := in[api.Why](w, r)
	if !fine {
		return
	}
	err := o.host(as(r), host)
	if err == nil {
		err = o.Store.Revoke(r.Context(), as(r).Who, host, why.Why)
	}
	if err == nil {
		err = o.refresh(r.Context())
	}
	o.done(w, nil, err)
}

func (o operator) SetLabels(w http.ResponseWriter, r *http.Request, host string) {
	asked, fine := in[api.LabelOrder](w, r)
	if !fine {
		return
	}
	if err := o.host(as(r), host); err != nil {
		o.done(w, nil, err)
		return
	}
	made, err := o.label(r.Context(), as(r).Who, host, asked.Order)
	o.done(w, made, err)
}

func (o operator) Missing(w http.ResponseWriter, r *http.Request) {
	asked, fine := in[api.Hashes](w, r)
	if !fine {
		return
	}
	if asked.Hashes == nil {
		wire.Fail(w, wrong("hashes is missing"))
		return
	}
	for _, hash := range asked.Hashes {
		if err := wire.CheckSHA256(hash); err != nil {
			wire.Fail(w, wrong("%v", err))
			return
		}
	}
	missing, err := o.Store.MissingBlobs(r.Context(), asked.Hashes)
	if missing == nil {
		missing = []string{}
	}
	o.done(w, api.Hashes{Hashes: missing}, err)
}

func (o operator) PutBlob(w http.ResponseWriter, r *http.Request, hash string) {
	if err := wire.CheckSHA256(hash); err != nil {
		wire.Fail(w, wrong("%v", err))
		return
	}
	o.done(w, nil, o.Store.PutBlob(r.Context(), hash, wire.MostBlob, r.Body))
}

func (o operator) Publish(w http.ResponseWriter, r *http.Request) {
	p, fine := in[api.Publish](w, r)
	if !fine {
		return
	}
	made, err := o.Controller.Publish(r.Context(), as(r).Who, p)
	o.done(w, made, err)
}

// mostRollouts is how many are told of at once.
const mostRollouts = 100

func (o operator) Rollouts(w http.ResponseWriter, r *http.Request, params api.RolloutsParams) {
	limit := cmp.Or(params.Limit, mostRollouts)
	if limit < 1 || limit > mostRollouts {
		wire.Fail(w, wrong("limit is %d, and may be 1 to %d", limit, mostRollouts))
		return
	}
	all, err := o.summarize(r.Context(), as(r), limit)
	o.done(w, api.Rollouts{Rollouts: all}, err)
}

func (o operator) Rollout(w http.ResponseWriter, r *http.Request, id int64) {
	row, err := o.Store.Rollout(r.Context(), id)
	var is rollout.Rollout
	if err == nil {
		is, err = o.current(row)
	}
	if err != nil {
		o.done(w, nil, err)
		return
	}
	is = o.within(as(r), is)
	o.done(w, &is, nil)
}

// within is what of a roll-out is told to whom has a role for some hosts: reasons are left
// out, since they name others.
func (o operator) within(who caller, r rollout.Rollout) rollout.Rollout {
	if who.Hosts == nil {
		return r
	}
	hosts := o.view.Load().hosts
	hidden := func(id string) bool { return !who.sees(id, hosts[id].Labels) }
	is := &r.State
	is.Reason, is.History = "", slices.Clone(is.History)
	for i := range is.History {
		is.History[i].Reason = ""
	}
	is.Hosts, is.Asked = maps.Clone(is.Hosts), maps.Clone(is.Asked)
	maps.DeleteFunc(is.Hosts, func(id string, _ rollout.Host) bool { return hidden(id) })
	maps.DeleteFunc(is.Asked, func(id string, _ time.Time) bool { return hidden(id) })
	is.LeftOut = slices.DeleteFunc(slices.Clone(is.LeftOut), func(l rollout.LeftOut) bool { return hidden(l.Host) })
	return r
}

func (o operator) Command(w http.ResponseWriter, r *http.Request, id int64, command api.Command) {
	why, fine := in[api.Why](w, r)
	if !fine {
		return
	}
	kinds := []rollout.Kind{rollout.Pause, rollout.Resume, rollout.Hold, rollout.Halt, rollout.Revert}
	if !slices.Contains(kinds, rollout.Kind(command)) {
		wire.Fail(w, wrong("a roll-out knows no command %.40q", command))
		return
	}
	made, err := o.Controller.Command(r.Context(), id, rollout.Command{Kind: rollout.Kind(command), Who: as(r).Who, Why: why.Why})
	var refused *rollout.RefusedError
	if errors.As(err, &refused) {
		err = wrong("%v", err)
	}
	o.done(w, made, err)
}

// Publish takes what was signed, as a host would, and begins the bundle's roll-out. Blobs
// have been put into the store.
func (c *Controller) Publish(ctx context.Context, who string, p api.Publish) (*rollout.Rollout, error) {
	c.publishes.Lock()
	defer c.publishes.Unlock()
	signed := trust.Metadata{Roots: p.Roots, Targets: p.Targets}
	is, err := c.online.Published(signed, c.Now())
	if err == nil && !store.IsTrial(ctx) {
		err = c.online.Publish(signed, c.Now())
	}
	if err != nil {
		c.meter.verified(err)
		return nil, wrong("%v", err)
	}
	listed := is.Bundles
	i := slices.IndexFunc(listed, func(b trust.Bundle) bool { return b.Number == p.Bundle })
	if i < 0 {
		return nil, wrong("targets.json lists no bundle %d", p.Bundle)
	}
	b := listed[i]
	if !b.Expires.After(c.Now()) {
		return nil, wrong("bundle %d expired at %s; sign it again", b.Number, english.Moment(b.Expires))
	}
	manifest, m, err := c.manifest(ctx, b)
	if err != nil {
		return nil, err
	}
	read, _, err := c.policyOf(ctx, m)
	if err != nil {
		return nil, err
	}
	how, err := planOf(read, m)
	if err != nil {
		return nil, wrong("the roll-out of bundle %d: %v", b.Number, err)
	}
	how.NotBefore = p.NotBefore
	if err := c.addOlder(ctx, who, listed, b.Number); err != nil {
		return nil, err
	}
	publication := store.Publication{Bundle: bundleOf(b, manifest, m)}
	if publication.Metadata, err = c.unpublished(ctx, p); err != nil {
		return nil, err
	}
	if err := c.Store.Publish(ctx, who, publication); err != nil {
		return nil, err
	}
	if err := c.sign(ctx); err != nil {
		return nil, err
	}
	if err := c.incarnate(ctx); err != nil { // of which hosts have been told that it is signed
		return nil, err
	}
	if err := c.refresh(ctx); err != nil {
		return nil, err
	}
	c.askListsSoon()
	c.fillPublished(ctx)
	return c.start(ctx, who, b.Number, how)
}

func bundleOf(b trust.Bundle, manifest []byte, m *trust.Manifest) *store.Bundle {
	return &store.Bundle{Number: b.Number, SHA256: b.SHA256, Manifest: manifest, Level: b.Level, Blobs: blobs(b, m)}
}

// addOlder gives the store those listed bundles that it does not have and whose blobs it
// has: hosts may run them, where an older database was restored.
func (c *Controller) addOlder(ctx context.Context, who string, listed []trust.Bundle, but int64) error {
	has, err := c.Store.Bundles(ctx)
	if err != nil {
		return err
	}
	for _, b := range listed {
		if b.Number == but || slices.ContainsFunc(has, func(h store.Bundle) bool { return h.Number == b.Number }) {
			continue
		}
		manifest, m, err := c.manifest(ctx, b)
		if err == nil {
			err = c.Store.Publish(ctx, who, store.Publication{Bundle: bundleOf(b, manifest, m)})
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrMissing) {
			return err
		}
	}
	return nil
}

// manifest reads the manifest of a bundle, which was given as a blob.
func (c *Controller) manifest(ctx context.Context, b trust.Bundle) ([]byte, *trust.Manifest, error) {
	text, err := c.read(ctx, b.SHA256, trust.MaxManifest)
	if err != nil {
		return nil, nil, err
	}
	m, err := b.Manifest(text)
	if err != nil {
		return nil, nil, wrong("%v", err)
	}
	return text, m, nil
}

func (c *Controller) read(ctx context.Context, hash string, most int64) ([]byte, error) {
	blob, err := c.Store.OpenBlob(ctx, hash)
	if err != nil {
		return nil, err
	}
	if blob.Size > most {
		return nil, fmt.Errorf("blob %.12s: %w: %d bytes", hash, store.ErrTooLarge, blob.Size)
	}
	return io.ReadAll(blob)
}

// blobs are those that hosts fetch of a bundle.
func blobs(b trust.Bundle, m *trust.Manifest) []string {
	all := []string{b.SHA256}
	for _, f := range m.Files() {
		all = append(all, f.SHA256)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// unpublished is the metadata that the store does not have.
func (c *Controller) unpublished(ctx context.Context, p api.Publish) ([]store.Metadata, error) {
	has, err := c.Store.Metadata(ctx)
	if err != nil {
		return nil, err
	}
	newest := map[string]int64{}
	for _, m := range has {
		newest[m.Role] = max(newest[m.Role], m.Version)
	}
	var out []store.Metadata
	add := func(role string, body []byte) error {
		var is struct{ Signed struct{ Version int64 } }
		if err := json.Unmarshal(body, &is); err != nil {
			return err
		}
		if is.Signed.Version > newest[role] {
			newest[role] = is.Signed.Version
			out = append(out, store.Metadata{Role: role, Version: is.Signed.Version, Body: body})
		}
		return nil
	}
	for _, root := range p.Roots {
		if err := add("root", root); err != nil {
			return nil, err
		}
	}
	return out, add("targets", p.Targets)
}
