package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
	"sluice/internal/language/lists"
)

const (
	// listTick is how often it is looked which lists are due.
	listTick = 10 * time.Second
	// listClaim is how long another controller leaves a list alone that this one asks for: longer
	// than a list may take.
	listClaim = 5 * time.Minute
	// listRetry is after how long a server is asked again that gave nothing good, if its list is
	// not due sooner.
	listRetry = 5 * time.Minute
	// askedAtOnce is how many lists are asked for at once.
	askedAtOnce = 4
)

// keepLists asks for live lists as they are due, and signs what they hold.
func (c *Controller) keepLists(ctx context.Context) {
	for {
		if err := c.listRound(ctx); err != nil && ctx.Err() == nil && c.away() == "" {
			c.Note(fmt.Errorf("live lists stay as they are: %w", err))
		}
		select {
		case <-c.lists.wake:
		case <-time.After(listTick):
		case <-ctx.Done():
			return
		}
	}
}

// askListsSoon looks which lists are due: a policy may have new ones.
func (c *Controller) askListsSoon() {
	select {
	case c.lists.wake <- struct{}{}:
	default:
	}
}

func (c *Controller) listRound(ctx context.Context) error {
	v := c.view.Load()
	wanted, err := c.wantedLists(ctx, v)
	if err != nil {
		return err
	}
	if err := c.readLists(ctx); err != nil {
		return err
	}
	rows := *c.lists.rows.Load()
	if len(wanted)+len(rows) == 0 {
		return nil
	}
	var asking errgroup.Group
	asking.SetLimit(askedAtOnce)
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		row := c.lists.row(name)
		if row.Undone || row.Next.After(c.Now()) {
			continue
		}
		mine, err := c.Store.ClaimList(ctx, name, c.Now().Add(listClaim))
		if err != nil {
			return err
		}
		if mine {
			asking.Go(func() error {
				_, err := c.askList(ctx, self, wanted[name], row, asked{})
				return err
			})
		}
	}
	err = asking.Wait()
	for name := range rows {
		if _, is := wanted[name]; !is {
			err = errors.Join(err, c.Store.DropList(ctx, name))
		}
	}
	return errors.Join(err, c.readLists(ctx))
}

func (c *Controller) readLists(ctx context.Context) error {
	all, err := c.Store.Lists(ctx)
	c.answered(err)
	if err != nil {
		return err
	}
	rows := map[string]store.List{}
	for _, l := range all {
		rows[l.Name] = l
	}
	c.lists.rows.Store(&rows)
	return nil
}

// asked is how somebody asks for a list by command.
type asked struct{ force, allowCut bool }

// askList asks the server of a list, and keeps what came of it. The error is of the database:
// what is wrong with the list is in the result.
func (c *Controller) askList(ctx context.Context, who string, l liveList, row store.List, how asked) (store.List, error) {
	before := row
	now := c.Now()
	err := c.takeList(ctx, l, &row, how)
	if ctx.Err() != nil {
		return before, ctx.Err()
	}
	if of := (*databaseError)(nil); errors.As(err, &of) {
		return before, of.error
	}
	wait := l.refresh
	if err != nil {
		row = before
		if row.Failure = err.Error(); row.Failing.IsZero() {
			row.Failing = now
		}
		wait = min(wait, listRetry)
	} else {
		row.Failure, row.Failing, row.Undone = "", time.Time{}, false
		row.Checked = now
	}
	row.Next = now.Add(wait*9/10 + rand.N(wait/5+1)) //nolint:forbidigo,gosec // so that lists are not asked for all at once
	return row, c.Store.PutList(ctx, who, row)
}

// databaseError tells what the database said from what is wrong with a list.
type databaseError struct{ error }

// fetchedList is what the server of a list has, and what hosts are to have until it is taken.
// Who has one keeps or discards what was staged.
type fetchedList struct {
	staging        *lists.Staging
	current        bool // the server has nothing else
	old, all, next addrset.Set
	text           []byte // of next
}

// left is how many ranges are not within what the set may hold.
func (f *fetchedList) left() int {
	left := f.all.Difference(f.next)
	return left.Len4() + left.Len6()
}

// fetchList asks the server of a list.
func (c *Controller) fetchList(ctx context.Context, l liveList, row store.List, force bool) (*fetchedList, error) {
	files := lists.Store{Dir: filepath.Join(c.Dir, "lists"), Context: ctx, Child: c.Fetch, Unconfined: c.lists.lack}
	has, err := c.listText(ctx, l, row)
	if err != nil {
		return nil, &databaseError{err}
	}
	// What hosts have is what a new list is held against, whoever asked for that.
	bound := func(s addrset.Set) addrset.Set {
		if len(l.within) > 0 {
			return s.Intersect(addrset.Of(l.within...))
		}
		return s
	}
	out := &fetchedList{staging: files.Stage()}
	if has != nil {
		copied, err := files.Addresses(l.url)
		if out.old = bound(copied); err != nil || !bytes.Equal(out.old.Lines(), has) {
			if err := files.Put(l.url, has); err != nil {
				return nil, err
			}
			if copied, err = files.Addresses(l.url); err != nil {
				return nil, err
			}
			out.old = bound(copied)
		}
	}
	state, err := out.staging.Fetch(ctx, l.url, force)
	if err != nil {
		return nil, err
	}
	if state == lists.Current {
		out.current, out.all, out.next, out.text = true, out.old, out.old, has
		return out, nil
	}
	if out.all, err = out.staging.Addresses(l.url); err == nil {
		if out.next = bound(out.all); out.next.IsEmpty() {
			err = errors.New("nothing of it is within what the set may hold")
		}
	}
	if err != nil {
		out.staging.Discard()
		return nil, err
	}
	out.text = out.next.Lines()
	return out, nil
}

// takeList changes the row of a list to what its server has.
func (c *Controller) takeList(ctx context.Context, l liveList, row *store.List, how asked) error {
	got, err := c.fetchList(ctx, l, *row, how.force)
	if err != nil {
		return err
	}
	defer got.staging.Discard()
	if got.current {
		return got.staging.Keep()
	}
	hash := trust.HashOf(got.text)
	if hash == row.SHA256 {
		row.AllowCut = row.AllowCut || how.allowCut
		return got.staging.Keep()
	}
	if !how.allowCut {
		whom, err := c.wouldCut(ctx, l, got.next.Difference(got.old))
		if err != nil {
			return &databaseError{err}
		}
		if len(whom) > 0 {
			return &cutError{english.Few(whom, 5)}
		}
	}
	if err := c.Store.PutBlob(ctx, hash, trust.MaxList, bytes.NewReader(got.text)); err != nil {
		return &databaseError{err}
	}
	if row.SHA256 != "" || l.signed != "" {
		row.Previous = row.SHA256
		if row.Previous == "" {
			row.Previous = l.signed
		}
	}
	row.SHA256, row.Size, row.Prefixes, row.Left = hash, int64(len(got.text)), bytes.Count(got.text, []byte{'\n'}), got.left()
	row.Changed, row.AllowCut = c.Now(), how.allowCut
	return got.staging.Keep()
}

// listText is what hosts are to have of a list; nil where that is not known.
func (c *Controller) listText(ctx context.Context, l liveList, row store.List) ([]byte, error) {
	hash := row.SHA256
	if hash == "" {
		hash = l.signed
	}
	if hash == "" {
		return nil, nil
	}
	text, err := c.read(ctx, hash, trust.MaxList)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return text, err
}

// cutError refuses a list that bans what the fleet needs.
type cutError struct{ whom string }

func (e *cutError) Error() string { return "it would cut " + e.whom }

// wouldCut says whom a list would cut, where it may only ban, of those that the fleet is known to need:
// controllers, its hosts, and their routers and name servers by the facts that they have sent.
// Who is logged in, and what is connected, each host judges by itself.
func (c *Controller) wouldCut(ctx context.Context, l liveList, added addrset.Set) ([]string, error) {
	if added.IsEmpty() || len(l.within) > 0 {
		return nil, nil
	}
	found := map[string]bool{}
	look := func(what string, a netip.Addr) {
		if a = a.Unmap(); a.IsValid() && added.Contains(a) {
			found[fmt.Sprintf("%s (%s)", what, a)] = true
		}
	}
	for _, name := range names(c.Controllers) {
		if a, err := netip.ParseAddr(name); err == nil {
			look("a controller", a)
		}
	}
	hosts, err := c.Store.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, h := range hosts {
		id := h.ID
		if !h.Revoked.IsZero() {
			continue
		}
		for _, a := range h.Addresses {
			look("host "+id, a)
		}
		if h.Facts == "" || seen[h.Facts] || !l.used(named(id, h.Labels)) {
			continue
		}
		seen[h.Facts] = true
		text, err := c.Store.Facts(ctx, h.Facts)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var facts struct {
			Gateways, Resolvers []netip.Addr
		}
		if json.Unmarshal(text, &facts) != nil {
			continue // a host may say what it likes
		}
		for _, a := range facts.Gateways {
			look("a router of "+id, a)
		}
		for _, a := range facts.Resolvers {
			look("a name server of "+id, a)
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// list finds a list by the name of its set, or of its file where sets of several URLs have one.
func (c *Controller) list(ctx context.Context, name string) (liveList, error) {
	wanted, err := c.wantedLists(ctx, c.view.Load())
	if err != nil {
		return liveList{}, err
	}
	var found []string
	for n, l := range wanted {
		if n == name || l.set == name {
			found = append(found, n)
		}
	}
	slices.Sort(found)
	switch len(found) {
	case 0:
		return liveList{}, &wire.Failure{Text: fmt.Sprintf("no policy that hosts should run has a live list %.80q", name), Kind: wire.KindNotFound}
	case 1:
		return wanted[found[0]], nil
	}
	return liveList{}, wrong("sets of several URLs are called %s: name one of %s", name, strings.Join(found, ", "))
}

// RefreshList asks the server of a list now.
func (c *Controller) RefreshList(ctx context.Context, who, name string, how asked) (liveList, error) {
	return c.changeList(ctx, name, func(l liveList, row store.List) error {
		after, err := c.askList(ctx, who, l, row, how)
		if err == nil && after.Failure != "" {
			return wrong("the list %s stays as it is: %s", l.set, after.Failure)
		}
		return err
	})
}

// UndoList goes back to what a list held before.
func (c *Controller) UndoList(ctx context.Context, who, name string) (liveList, error) {
	return c.changeList(ctx, name, func(l liveList, row store.List) error {
		if row.Previous == "" {
			return wrong("the list %s has not changed since it was signed with the policy", l.set)
		}
		text, err := c.read(ctx, row.Previous, trust.MaxList)
		if err != nil {
			return err
		}
		row.SHA256, row.Previous = row.Previous, row.SHA256
		row.Size, row.Prefixes, row.Changed, row.Undone, row.Left = int64(len(text)), bytes.Count(text, []byte{'\n'}), c.Now(), true, 0
		row.Failure, row.Failing = "", time.Time{}
		return c.Store.PutList(ctx, who, row)
	})
}

func (c *Controller) changeList(ctx context.Context, name string, change func(l liveList, row store.List) error) (liveList, error) {
	c.lists.asks.Lock()
	defer c.lists.asks.Unlock()
	l, err := c.list(ctx, name)
	if err != nil {
		return l, err
	}
	// Whoever else asks for it now gives way: what is kept last counts.
	if _, err := c.Store.ClaimList(ctx, l.name, c.Now().Add(listClaim)); err != nil {
		return l, err
	}
	if err := c.readLists(ctx); err != nil {
		return l, err
	}
	if err = change(l, c.lists.row(l.name)); err == nil {
		err = c.refresh(ctx)
	}
	return l, errors.Join(err, c.readLists(ctx))
}
