package controller

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"sluice/internal/base/english"
	"sluice/internal/base/selector"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/hub"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/wire"
)

// hosts says which policy is proved where.
func (c *Controller) hosts(only *selector.Selector) *api.Hosts {
	v, online := c.view.Load(), c.hub.Online()
	out := &api.Hosts{Hosts: []api.Host{}, Database: c.away()}
	for _, id := range slices.Sorted(maps.Keys(v.hosts)) {
		h := v.hosts[id]
		if !h.Revoked.IsZero() || only != nil && !only.Match(named(id, h.Labels)) {
			continue
		}
		is := c.picture(h, v, online)
		if is.State == api.Proved {
			out.Proved++
		}
		out.Hosts = append(out.Hosts, is)
	}
	return out
}

// named are the labels of a host as selectors see them.
func named(id string, labels map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, labels)
	all["host"] = id
	return all
}

// claimTime is how long a second claim to a name is shown: who claims it comes again and
// again.
const claimTime = 10 * time.Minute

func (c *Controller) picture(h store.Host, v *view, online map[string]hub.Presence) api.Host {
	d := v.desired[h.ID]
	k := c.statuses.read(h.ID)
	there, connected := online[h.ID]
	out := api.Host{
		Host: h.ID, Labels: h.Labels, Running: k.report.Running, Desired: d.Bundle, Mark: k.report.Mark, Verified: k.report.Verified,
		Online: connected, Seen: k.seen, Version: k.version, Kernel: k.kernel, Backend: k.backend, Drift: k.report.Drift,
	}
	if connected {
		out.Address = there.From.String()
		out.Seen = c.Now()
	}
	out.State, out.Reason, out.Since = stateOf(k, h, v, there, connected, c.Now())
	return out
}

// stateOf says how a host is, and why it is not proved.
func stateOf(k known, h store.Host, v *view, there hub.Presence, connected bool, now time.Time) (state api.HostState, reason string, since time.Time) {
	r, d, at := &k.report, v.desired[h.ID], v.position
	switch {
	case k.claimed.After(h.Enrolled) && now.Sub(k.claimed) < claimTime:
		return api.Claimed, fmt.Sprintf("two hosts claim this name, the other one at %s: enrol one of them again, under a name of its own", k.claimant), k.claimed
	case !connected && k.seen.IsZero():
		return api.Offline, "it has never connected", time.Time{}
	case !connected:
		return api.Offline, fmt.Sprintf("not heard from for %s", english.Span(now.Sub(k.seen))), k.seen
	case k.heard.Incarnation == at.Incarnation && k.heard.Revision > at.Revision:
		return api.Restored, fmt.Sprintf("it has heard of revision %d, and this database, an older copy, ends at %d: %s", k.heard.Revision, at.Revision, signRestore), there.Since
	case d.Bundle == 0:
		return api.None, "no roll-out has reached it", there.Since
	case k.at.IsZero():
		return api.Stale, "it has not reported yet", there.Since
	case r.Drift != "":
		return api.Drift, r.Drift, k.drifts
	case unlabelled(h, r) != "":
		return api.Stale, unlabelled(h, r), k.since
	case r.Bundle == d.Bundle && r.Rollout == d.Rollout && (r.State == wire.StateRefused || r.State == wire.StateReverted):
		return api.Refused, fmt.Sprintf("bundle %d was %s: %s", r.Bundle, r.State, said(r.Error)), k.since
	case r.Running != d.Bundle && r.Bundle == d.Bundle:
		return api.Stale, fmt.Sprintf("bundle %d is %s, %s%s", d.Bundle, r.State, runs(r.Running), because(r.Error)), k.since
	case r.Running != d.Bundle:
		return api.Stale, fmt.Sprintf("it has not reported on bundle %d, %s%s", d.Bundle, runs(r.Running), because(r.Error)), k.since
	case r.Bundle == d.Bundle && (r.State == wire.StateNone || r.State == wire.StateFetched || r.State == wire.StateChecked):
		return api.Stale, fmt.Sprintf("bundle %d is %s again, and its earlier version for this host is in force%s", d.Bundle, begun(r.State), because(r.Error)), k.since
	case tried(r):
		return api.Stale, fmt.Sprintf("bundle %d is in force and not confirmed yet", d.Bundle), k.since
	case r.Proved.IsZero():
		return api.Stale, fmt.Sprintf("bundle %d is in force and not proved: %s", d.Bundle, said(r.Error)), k.since
	case v.restored:
		return api.Restored, fmt.Sprintf("bundle %d is in force and proved, and the database is an older copy: %s", d.Bundle, signRestore), r.Proved
	}
	switch {
	case r.Error != "":
		reason = "it takes nothing new: " + r.Error
	case !r.Restored.IsZero() && now.Sub(r.Restored) < undoneTime:
		reason = fmt.Sprintf("%s ago it put back what somebody had changed: %s", english.Span(now.Sub(r.Restored)), r.Undone)
	}
	return api.Proved, reason, r.Proved
}

// signRestore is what ends the state of a fleet whose database is an older copy.
const signRestore = "sluice-controller sign --restore and publish have the fleet go on"

// undoneTime is how long hosts are shown with the change that they put back.
const undoneTime = 24 * time.Hour

func begun(s wire.State) string {
	if s == wire.StateNone {
		return "to be fetched"
	}
	return string(s)
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

func said(why string) string {
	if why == "" {
		return "it does not say why"
	}
	return why
}

func runs(bundle int64) string {
	if bundle == 0 {
		return "and it runs none"
	}
	return fmt.Sprintf("and it runs %d", bundle)
}
