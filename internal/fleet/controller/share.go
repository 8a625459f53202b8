package controller

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
	"sluice/internal/language/policy"
)

const (
	shareEvery  = time.Second
	shareAgain  = 5 * time.Second // where there was no room for all
	shareWithin = time.Hour
	// What one host has waiting here, and counted within shareWithin, at most: the newest.
	mostUnoffered = 1000
	mostOffered   = 5000
	// mostNamedHosts is how many hosts a reason names.
	mostNamedHosts = 4
	// shareOf is which part of the bans that a fleet may hold come of limits: people ban too.
	shareOf = 2
)

// sharer is who bans what limits of hosts have banned.
const sharer = "share-bans"

// offers are what limits of hosts have banned, until that is in the database.
type offers struct {
	mutex sync.Mutex
	of    map[string]map[netip.Prefix]bool // by host
}

// says keeps what a host tells.
func (o *offers) says(host string, m *wire.LimitBans) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.of == nil {
		o.of = map[string]map[netip.Prefix]bool{}
	}
	has := o.of[host]
	if has == nil {
		has = map[netip.Prefix]bool{}
		o.of[host] = has
	}
	for _, p := range m.What {
		if len(has) == mostUnoffered {
			break
		}
		has[p] = true
	}
}

// take gives what waits, of so many bans at a time about.
func (o *offers) take(most int) (out []store.Offer) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	for host, has := range o.of {
		if len(out) >= most {
			break
		}
		delete(o.of, host)
		for p := range has {
			out = append(out, store.Offer{What: addrset.PrefixRange(p).String(), Host: host})
		}
	}
	return out
}

// again takes back what the database could not take.
func (o *offers) again(all []store.Offer) {
	for _, is := range all {
		if r, err := addrset.ParseRange(is.What); err == nil {
			p, _ := r.Prefix()
			o.says(is.Host, &wire.LimitBans{What: []netip.Prefix{p}})
		}
	}
}

// shareBans bans on all hosts what limits of several have banned.
func (c *Controller) shareBans(ctx context.Context) {
	full, said, looked := true, false, time.Time{} // the controller before may have left some
	for range ticks(ctx, shareEvery) {
		all := c.offers.take(mostHolds)
		again := full && time.Since(looked) >= shareAgain
		if len(all) == 0 && !again {
			continue
		}
		if again {
			looked = time.Now()
		}
		err := c.shareThese(ctx, all, again)
		c.answered(err)
		noRoom := errors.Is(err, store.ErrTooLarge) || errors.Is(err, store.ErrRestored)
		if noRoom || again && err == nil {
			full = noRoom
		}
		if err == nil || ctx.Err() != nil || noRoom && said {
			said = said && full
			continue
		}
		said = noRoom
		if !store.Answered(err) {
			c.offers.again(all)
		}
		if c.away() == "" {
			c.Note(fmt.Errorf("what limits of hosts have banned is not banned on all: %w", err))
		}
	}
}

// shareThese bans what enough hosts have by now, of these or of all that they told of: the
// error is ErrTooLarge where there is no room for more.
func (c *Controller) shareThese(ctx context.Context, these []store.Offer, all bool) error {
	if len(c.view.Load().bundles) == 0 {
		return nil // no host can have been told to share
	}
	p, err := c.bounded(ctx)
	if err != nil || p.Fleet.ShareBans == nil {
		return err
	}
	share := p.Fleet.ShareBans
	offered, err := c.Store.Offer(ctx, these, all, shareWithin, max(shareWithin, share.For), share.After, mostOffered)
	if err != nil || len(offered) == 0 {
		return err
	}
	never := c.never(p)
	var holds []store.Hold
	var whats []string
	for _, o := range offered {
		what, err := addrset.ParseRange(o.What)
		if err != nil {
			return err
		}
		if never.Overlaps(addrset.Of(what)) || p.MayBan(what, share.For) != nil {
			whats = append(whats, o.What)
			continue
		}
		is := trust.Living{
			ID: trust.LivingID(trust.LivingBan, o.What, "", ""), Kind: trust.LivingBan, What: o.What, Reason: sharedReason(o.Hosts),
			Made: time.Unix(0, 0), Expires: time.Unix(0, 0).Add(share.For),
		}
		if err := is.Check(); err != nil {
			return err
		}
		holds = append(holds, store.Hold{Living: store.Living(is), For: share.For})
	}
	held, err := c.holdShared(ctx, max(1, p.Fleet.Bans.Max/shareOf), holds)
	for _, h := range holds[:held] {
		whats = append(whats, h.What)
	}
	return errors.Join(err, c.Store.Unoffer(ctx, whats))
}

// holdShared bans in order, as many as there is room for.
func (c *Controller) holdShared(ctx context.Context, most int, holds []store.Hold) (held int, err error) {
	for n := len(holds); held < len(holds); {
		some := holds[held:min(held+n, len(holds))]
		_, err := c.Store.Hold(ctx, sharer, most, true, some)
		switch {
		case err == nil:
			held += len(some)
		case errors.Is(err, store.ErrTooLarge) && len(some) > 1:
			n = len(some) / 2
		case errors.Is(err, store.ErrTooLarge):
			return held, fmt.Errorf("limits hold half of the bans that the fleet lets its controller hold, or people do: %w", err)
		default:
			return held, err
		}
	}
	return held, nil
}

// unnamed leaves hosts out of a reason, for whoever may not know of all.
func unnamed(by caller, h api.Holding) api.Holding {
	if by.Hosts != nil && h.Who == sharer {
		h.Reason, _, _ = strings.Cut(h.Reason, ":")
	}
	return h
}

// sharedReason names hosts, within what a reason has.
func sharedReason(hosts []string) string {
	reason := "limits of " + english.Plural(len(hosts), "host")
	for most := min(mostNamedHosts, len(hosts)); most > 0; most-- {
		if text := reason + ": " + english.Few(hosts, most); trust.CheckReason(text) == nil {
			return text
		}
	}
	return reason
}

// never is whom no limit bans for others: what a part of the fleet never bans, its hosts and
// guests, and its controllers. Each host judges by its own besides.
func (c *Controller) never(p *policy.Policy) addrset.Set {
	var all addrset.Builder
	for _, part := range p.Fleet.Parts {
		all.AddSet(part.Never)
	}
	addresses := func(of []netip.Addr) {
		for _, a := range of {
			all.AddAddr(a)
		}
	}
	v := c.view.Load()
	for _, h := range v.hosts {
		if h.Revoked.IsZero() {
			addresses(h.Addresses)
		}
	}
	for _, g := range v.guests {
		addresses(slices.Concat(g.Addresses, g.Public))
	}
	for _, at := range c.Controllers {
		host, _, err := net.SplitHostPort(at)
		if a, wrong := netip.ParseAddr(host); err == nil && wrong == nil {
			addresses([]netip.Addr{a.Unmap()})
		}
	}
	return all.Set()
}
