package controller

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
	"sluice/internal/language/policy"
)

const (
	shareEvery  = time.Second
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
	for range ticks(ctx, shareEvery) {
		all := c.offers.take(mostHolds)
		if len(all) == 0 {
			continue
		}
		err := c.shareThese(ctx, all)
		c.answered(err)
		if err == nil || ctx.Err() != nil {
			continue
		}
		if !store.Answered(err) {
			c.offers.again(all)
		}
		if c.away() == "" {
			c.Note(fmt.Errorf("what limits of hosts have banned is not banned on all: %w", err))
		}
	}
}

func (c *Controller) shareThese(ctx context.Context, all []store.Offer) error {
	if len(c.view.Load().bundles) == 0 {
		return nil // no host can have been told to share
	}
	p, err := c.bounded(ctx)
	if err != nil || p.Fleet.ShareBans == nil {
		return err
	}
	share := p.Fleet.ShareBans
	offered, err := c.Store.Offer(ctx, all, shareWithin, share.After, mostOffered)
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
		whats = append(whats, o.What)
		if never.Overlaps(addrset.Of(what)) || p.MayBan(what, share.For) != nil {
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
	if _, err := c.Store.Hold(ctx, sharer, max(1, p.Fleet.Bans.Max/shareOf), true, holds); err != nil {
		if errors.Is(err, store.ErrTooLarge) {
			return fmt.Errorf("half of the bans that the fleet lets its controller hold are there: %w", err)
		}
		return err
	}
	return c.Store.Unoffer(ctx, whats)
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
		addresses(h.Addresses)
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
