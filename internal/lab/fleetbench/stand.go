package fleetbench

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"sluice/internal/fleet/store"
)

// Standing is a fleet that somebody looks at.
type Standing struct {
	URL string `json:"url"` // for people
	Dir string `json:"dir"` // of the controller
}

// kinds is how many kinds the hosts have that never were there.
const kinds = 30

// Stand makes a fleet of so many agents, as Run measures it, with more rows up to rows: hosts that
// were enrolled and never connected. It is there for as long as act takes.
func Stand(ctx context.Context, o Options, agents, rows int, act func(Standing) error) error {
	if o.Progress == nil {
		o.Progress = func(string, ...any) {}
	}
	b := &bench{Context: ctx, Options: o}
	return b.within(func() (*fleet, error) {
		f, err := b.stand(agents)
		if err == nil {
			err = f.enrolAbsent(rows - agents)
		}
		return f, err
	}, func(f *fleet) error { return act(Standing{f.web, f.controllerDir()}) })
}

// enrolAbsent has n hosts be in the database.
func (f *fleet) enrolAbsent(n int) (err error) {
	s, err := store.OpenExisting(f, "sqlite:"+f.path("controller", "fleet.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for kind := range min(kinds, n) {
		k := store.Token{
			ID: fmt.Sprint("kind-", kind), Secret: sha256.Sum256([]byte(rand.Text())), Uses: n, Expires: time.Now().Add(time.Hour),
			Labels: map[string]string{"role": fmt.Sprint("r", kind), "env": "prod", "site": fmt.Sprint("s", kind%7)},
		}
		if err := s.CreateToken(f, "bench", k); err != nil {
			return err
		}
		for i := kind; i < n; i += kinds {
			key := sha256.Sum256([]byte(rand.Text()))
			e := store.Enrolment{
				Secret: k.Secret, Host: fmt.Sprintf("absent-%05d", i), Key: hex.EncodeToString(key[:]),
				Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})},
			}
			if _, err := s.Enrol(f, e); err != nil {
				return err
			}
		}
	}
	return nil
}
