package wire

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Most of what openapi.yaml bounds.
const (
	mostName     = 253
	mostShort    = 128
	mostProbe    = 1024
	mostID       = 64
	mostWhy      = 256
	mostRefused  = 512
	mostEnvelope = 1 << 20
	mostText     = 4096
	mostItems    = 64
	mostFailed   = 256 // guests
	mostRoots    = 256
	mostMetadata = 64 << 10
	mostTargets  = 256 << 10
	mostListed   = 4096
	mostPEM      = 64 << 10
	mostRequest  = 16 << 10
	mostSeconds  = 24 * 60 * 60
	mostDrain    = 60 * 60
	mostPath     = 2048
	mostStatus   = 599

	mostCountries = 32
	mostCode      = 2
	mostLines     = 16
	mostVerdict   = 16
)

var (
	hostShape = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)
	})
	sha256Shape = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{64}$`) })
	labelShape  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_./-]*[A-Za-z0-9])?$`) })
)

// Check says what openapi.yaml does not allow.
func (h *Hello) Check() error {
	err := errors.Join(text("version", h.Version, 1, mostShort), text("instance", h.Instance, 1, mostShort), text("kernel", h.Kernel, 0, mostShort), text("backend", h.Backend, 0, mostShort), number("language-level", int64(h.LanguageLevel)),
		h.Labels.Check(), number("root", h.Root), count("have", len(h.Have), mostItems), h.Order.Check(), sha("facts", h.Facts, true), sha("members", h.Members, true), sha("guests", h.Guests, true), addresses(h.Addresses))
	for _, n := range h.Have {
		if n < 1 {
			err = errors.Join(err, fmt.Errorf("have: there is no bundle %d", n))
		}
	}
	if h.Report != nil {
		err = errors.Join(err, h.Report.Check())
	}
	if h.Living != nil {
		err = errors.Join(err, h.Living.Check())
	}
	return first(err)
}

// Check says what openapi.yaml does not allow.
func (r *Report) Check() error {
	err := errors.Join(r.Order.Check(), number("rollout", r.Rollout), number("bundle", r.Bundle), number("running", r.Running),
		text("mark", r.Mark, 0, mostShort), text("generation", r.Generation, 0, mostShort), text("drift", r.Drift, 0, mostText), text("undone", r.Undone, 0, mostText), text("error", r.Error, 0, mostText),
		count("probes", len(r.Probes), mostItems), sha("labels", r.Labels, true), sha("members", r.Members, true), sha("guests", r.Guests, true))
	if !r.State.Valid() {
		err = errors.Join(err, fmt.Errorf("there is no state %.40q", r.State))
	}
	for _, at := range []time.Time{r.Proved, r.Verified, r.Restored} {
		if _, wrong := at.MarshalText(); wrong != nil {
			err = errors.Join(err, wrong)
		}
	}
	err = errors.Join(err, count("lists", len(r.Lists), mostItems), count("guests that failed", len(r.Failed), mostFailed))
	for id, why := range r.Failed {
		err = errors.Join(err, text("guest", id, 1, mostName), text("why it failed", why, 0, mostProbe))
	}
	for _, l := range r.Lists {
		err = errors.Join(err, text("list", l.Name, 1, mostShort), sha("list", l.Sha256, true), text("list's error", l.Error, 0, mostProbe))
	}
	for _, p := range r.Probes {
		err = errors.Join(err, text("probe", p.Probe, 1, mostProbe), text("probe's error", p.Error, 0, mostProbe))
	}
	return first(err)
}

// Check says what openapi.yaml does not allow.
func (f *Facts) Check() error {
	if t := bytes.TrimSpace(f.Facts); len(t) == 0 || t[0] != '{' {
		return errors.New("they are not an object")
	}
	return nil
}

// Check says what openapi.yaml does not allow.
func (t *Trust) Check() error {
	err := errors.Join(roots(t.Roots), bound("timestamp", len(t.Timestamp), mostMetadata), bound("snapshot", len(t.Snapshot), mostMetadata), bound("targets", len(t.Targets), mostTargets))
	return first(err)
}

// Check says what openapi.yaml does not allow.
func (r *Roots) Check() error { return first(roots(r.Roots)) }

func roots(rs [][]byte) error {
	err := count("roots", len(rs), mostRoots)
	for _, r := range rs {
		err = errors.Join(err, bound("root", len(r), mostMetadata))
	}
	return err
}

// Check says what openapi.yaml does not allow.
func (d *Desired) Check() error {
	err := errors.Join(d.Order.Check(), number("bundle", d.Bundle), number("rollout", d.Rollout), number("since", d.Since), bound("labels", len(d.Labels), mostMetadata), within("confirm-seconds", d.ConfirmSeconds, mostSeconds))
	if f := d.Prefetch; f != nil && (f.Bundle < 1 || f.Rollout < 1) {
		err = errors.Join(err, fmt.Errorf("prefetch: there is no bundle %d of roll-out %d", f.Bundle, f.Rollout))
	}
	for name, doc := range map[string]*Document{"members": d.Members, "guests": d.Guests} {
		if doc != nil {
			err = errors.Join(err, sha(name, doc.Sha256, false), number("size of "+name, doc.Size), sha("content of "+name, doc.Content, false))
		}
	}
	err = errors.Join(err, count("lists", len(d.Lists), mostItems), count("blobs", len(d.Blobs), mostItems))
	for _, l := range d.Lists {
		err = errors.Join(err, text("list", l.Name, 1, mostShort), envelope(l.Envelope))
	}
	for _, b := range d.Blobs {
		err = errors.Join(err, bound("blob", len(b), MostPushed))
	}
	return first(err)
}

// Check says what openapi.yaml does not allow.
func (l *Living) Check() error {
	return errors.Join(number("incarnation", l.Incarnation), number("seq", l.Seq))
}

// Check says what openapi.yaml does not allow.
func (l *Live) Check() error { return bound("envelope", len(l.Envelope), mostEnvelope) }

// Check says what openapi.yaml does not allow.
func (a *LiveApplied) Check() error {
	err := errors.Join(a.Living.Check(), text("waiting", a.Waiting, 0, mostProbe), count("refused", len(a.Refused), mostRefused))
	if _, wrong := a.Proved.MarshalText(); wrong != nil {
		err = errors.Join(err, wrong)
	}
	for _, r := range a.Refused {
		err = errors.Join(err, text("id", r.Id, 1, mostID), text("why", r.Why, 1, mostWhy))
	}
	return first(err)
}

// Check says what openapi.yaml does not allow.
func (b *LimitBans) Check() error {
	if len(b.What) == 0 {
		return errors.New("what is missing")
	}
	for _, p := range b.What {
		if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() {
			return fmt.Errorf("what: %q is not a prefix in canonical form", p)
		}
	}
	return count("what", len(b.What), MostLimitBans)
}

// Check says what openapi.yaml does not allow.
func (a *Ask) Check() error {
	if !a.What.Valid() {
		return fmt.Errorf("there is no question %.40q", a.What)
	}
	return nil
}

// Check says what openapi.yaml does not allow.
func (q *Question) Check() error {
	err := errors.Join(question(q.Id), text("path", q.Path, 1, mostPath), text("query", q.Query, 0, mostText), text("accept", q.Accept, 0, mostShort), bound("body", len(q.Body), MostQuestion))
	if !q.Method.Valid() {
		err = errors.Join(err, fmt.Errorf("there is no method %.40q", q.Method))
	}
	return first(err)
}

// Check says what openapi.yaml does not allow.
func (r *Restore) Check() error { return text("by", r.By, 1, mostName) }

// Check says what openapi.yaml does not allow.
func (p *Pace) Check() error {
	return first(errors.Join(question(p.Id), within("pieces", p.Pieces, Pieces)))
}

// Check says what openapi.yaml does not allow.
func (a *Piece) Check() error {
	return first(errors.Join(question(a.Id), within("status", a.Status, mostStatus), text("type", a.Type, 0, mostShort), bound("body", len(a.Body), MostPiece)))
}

// Check says what openapi.yaml does not allow.
func (f *Findings) Check() error {
	err := count("findings", len(f.Findings), MostFindings)
	for _, is := range f.Findings {
		err = errors.Join(err, text("check", is.Check, 0, mostShort), text("severity", is.Severity, 0, mostShort), text("text", is.Text, 0, MostFindingText))
	}
	return first(err)
}

// Check says what openapi.yaml does not allow.
func (s *Sample) Check() error {
	err := errors.Join(within("seconds", s.Seconds, mostSeconds), number("new", s.New), number("dropped", s.Dropped), number("entries", s.Entries),
		count("countries", len(s.Countries), mostCountries), count("lines", len(s.Lines), mostLines))
	if s.Seconds == 0 {
		err = errors.Join(err, errors.New("seconds is missing"))
	}
	for _, c := range s.Countries {
		err = errors.Join(err, text("country", c.Country, 0, mostCode), number("packets", c.Packets))
	}
	for _, l := range s.Lines {
		err = errors.Join(err, text("file", l.File, 0, MostSampledFile), number("line", int64(l.Line)), text("verdict", l.Verdict, 0, mostVerdict), number("packets", l.Packets))
	}
	return first(err)
}

func question(id int64) error {
	if id < 1 {
		return fmt.Errorf("there is no question %d", id)
	}
	return nil
}

func within(name string, n, most int) error {
	if n < 0 || n > most {
		return fmt.Errorf("%s is %d, not one of 0 to %d", name, n, most)
	}
	return nil
}

// Check says what openapi.yaml does not allow.
func (d *Drain) Check() error {
	return within("within-seconds", d.WithinSeconds, mostDrain)
}

// Check says what openapi.yaml does not allow.
func (f *Failure) Check() error { return text("error", f.Text, 1, mostText) }

// Check says what openapi.yaml does not allow.
func (e *Enrol) Check() error {
	err := errors.Join(text("secret", e.Secret, 1, mostShort), CheckHost(e.Host), text("request", e.Request, 1, mostRequest), addresses(e.Addresses))
	return first(err)
}

func addresses(all []netip.Addr) error {
	for _, a := range all {
		if !a.IsValid() || a.Zone() != "" || a.Is4In6() {
			return fmt.Errorf("addresses: %q is not one of a host", a)
		}
	}
	return count("addresses", len(all), mostItems)
}

// Check says what openapi.yaml does not allow.
func (e *Enrolled) Check() error {
	err := errors.Join(text("fleet", e.Fleet, 1, mostName), CheckHost(e.Host), e.Labels.Check(), text("certificate", e.Certificate, 1, mostPEM), count("controllers", len(e.Controllers), mostItems))
	for _, c := range e.Controllers {
		err = errors.Join(err, text("controller", c, 1, mostName+len(":65535")))
	}
	return first(err)
}

// Check says what openapi.yaml does not allow.
func (r *Renew) Check() error { return text("request", r.Request, 1, mostRequest) }

// Check says what openapi.yaml does not allow.
func (r *Renewed) Check() error { return text("certificate", r.Certificate, 1, mostPEM) }

// Check says what openapi.yaml does not allow.
func (o *Order) Check() error {
	return errors.Join(number("incarnation", o.Incarnation), number("revision", o.Revision))
}

// Check says what openapi.yaml does not allow.
func (ls Labels) Check() error {
	if err := count("labels", len(ls), mostItems); err != nil {
		return err
	}
	for k, v := range ls {
		if len(k) > mostName || !labelShape().MatchString(k) {
			return fmt.Errorf("labels: %.80q is not a name", k)
		}
		if v != "" && (len(v) > mostName || !labelShape().MatchString(v)) {
			return fmt.Errorf("labels: %.80q is not a value of %s", v, k)
		}
	}
	return nil
}

// CheckHost says why something is not the id of a host.
func CheckHost(id string) error {
	if len(id) > mostName || !hostShape().MatchString(id) {
		return fmt.Errorf("%.80q is not the name of a host, which has small letters, digits, dots and hyphens", id)
	}
	return nil
}

// CheckSHA256 says why something is not the SHA-256 of a blob.
func CheckSHA256(hash string) error { return sha("blob", hash, false) }

func first(err error) error {
	if joined, is := err.(interface{ Unwrap() []error }); is {
		return first(joined.Unwrap()[0])
	}
	return err
}

func text(name, v string, least, most int) error {
	switch {
	case len(v) < least:
		return fmt.Errorf("%s is missing", name)
	case len(v) > most:
		return fmt.Errorf("%s has %d bytes, %d at most", name, len(v), most)
	case strings.ContainsRune(v, 0):
		return fmt.Errorf("%s has a byte 0", name)
	}
	return nil
}

func number(name string, n int64) error {
	if n < 0 {
		return fmt.Errorf("%s is %d, below 0", name, n)
	}
	return nil
}

func count(name string, n, most int) error {
	if n > most {
		return fmt.Errorf("%s: there are %d, %d at most", name, n, most)
	}
	return nil
}

func bound(name string, n, most int) error {
	if n > most {
		return fmt.Errorf("%s has %d bytes, %d at most", name, n, most)
	}
	return nil
}

func envelope(is []byte) error {
	if len(is) == 0 {
		return errors.New("envelope is missing")
	}
	return bound("envelope", len(is), mostListed)
}

func sha(name, v string, none bool) error {
	if none && v == "" || sha256Shape().MatchString(v) {
		return nil
	}
	return fmt.Errorf("%s: %.80q is not a SHA-256", name, v)
}
