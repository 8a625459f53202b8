package replica

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"sluice/internal/system/kernel/netns"
)

// Copy is a namespace that does with packets what another one would.
type Copy struct {
	Space  *netns.Namespace // the copy itself
	Cables *netns.Namespace // the other ends of its devices
	Links  []Link           // by index, loopback among them
	Rules  *Rules
	// Legacy says that there are tables of legacy iptables.
	Legacy bool
	Notes  []string // what is not as in the source
}

// Make copies the network namespace of the calling thread. The caller closes the
// copy. Once the namespace has been read, which is not looked at again, read is called,
// where it is not nil. The error is fs.ErrPermission where the process may not make
// one.
func Make(ctx context.Context, read func()) (*Copy, error) {
	source, err := netns.Here()
	if err != nil {
		return nil, err
	}
	defer source.Close()
	var s state
	if err := source.Do(func() error { return s.read(ctx) }); err != nil {
		return nil, err
	}
	if read != nil {
		read()
	}
	c := &Copy{Links: s.links, Legacy: s.legacy != [2]string{}}
	if err := c.make(ctx, &s); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Close ends the copy.
func (c *Copy) Close() error {
	return errors.Join(c.Space.Close(), c.Cables.Close())
}

// Link is the device of a name.
func (c *Copy) Link(name string) (Link, bool) {
	i := slices.IndexFunc(c.Links, func(l Link) bool { return l.Name == name })
	if i < 0 {
		return Link{}, false
	}
	return c.Links[i], true
}

// Cable is the name of a device's other end in Cables.
func (l Link) Cable() string { return cableName(l.Index) }

// state is all that is copied.
type state struct {
	links   []Link
	routing routing
	sysctls []setting
	rules   *ruleset
	legacy  [2]string
}

func (s *state) read(ctx context.Context) error {
	conn, err := dialRoute()
	if err != nil {
		return err
	}
	defer conn.Close()
	if s.links, err = readLinks(conn); err != nil {
		return err
	}
	if s.routing, err = readRouting(conn); err != nil {
		return err
	}
	s.sysctls = readSysctls()
	if s.rules, err = readRuleset(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.legacy, err = Legacy(ctx)
	return err
}

func (c *Copy) make(ctx context.Context, s *state) error {
	var err error
	if c.Space, err = netns.New(); err == nil {
		c.Cables, err = netns.New()
	}
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w\nhint: run it as root", err)
		}
		return err
	}
	if err := c.Cables.Do(func() error { quiet(); return nil }); err != nil {
		return err
	}
	return c.Space.Do(func() error {
		if err := c.network(ctx, s); err != nil {
			return err
		}
		if err := s.rules.write(); err != nil {
			return err
		}
		var err error
		if c.Rules, err = s.rules.pair(); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := restoreLegacy(ctx, s.legacy); err != nil {
			return err
		}
		// The sysctls of connection tracking may not be there before its rules.
		writeSysctls(s.sysctls)
		return nil
	})
}

func (c *Copy) network(ctx context.Context, s *state) error {
	quiet()
	conn, err := dialRoute()
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, l := range s.links {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := makeLink(conn, l, c.Cables.Descriptor()); err != nil {
			return err
		}
		if l.XDP {
			c.Notes = append(c.Notes, "the XDP program on "+l.Name+" is not a part of the copy")
		}
	}
	writeSysctls(s.sysctls)
	if err := c.Cables.Do(func() error { return raiseCables(s.links) }); err != nil {
		return err
	}
	for _, l := range s.links {
		if err := raise(conn, l, s.links); err != nil {
			return err
		}
	}
	up := func(l Link) bool {
		return slices.ContainsFunc(s.links, func(of Link) bool {
			return of.Up && of.Name != loopback && of.Kind != "vrf" && (l.Name == of.Name || l.Name == of.Cable())
		})
	}
	if err := awaitCarrier(ctx, up); err != nil {
		return err
	}
	if err := c.Cables.Do(func() error { return awaitCarrier(ctx, up) }); err != nil {
		return err
	}
	notes, err := s.routing.write(ctx, conn)
	c.Notes = append(c.Notes, notes...)
	return err
}
