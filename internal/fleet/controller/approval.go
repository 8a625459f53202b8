package controller

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"sluice/internal/base/selector"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/wire"
	"sluice/internal/language/policy"
)

// mostSuspended bounds the body of a request that waits for approval, and the answer that is kept, in
// bytes.
const mostSuspended = api.MostRequest

// mostWords bounds the words of a request that are kept with it and in the audit, in bytes.
const mostWords = 1000

// approvedKey is in the context of a request that somebody has approved: when it was asked for.
type approvedKey struct{}

// ends is when what a request makes ends. It says so for the moment at which it is asked for: what
// waited for approval is good for as long as it would have been then.
func (o operator) ends(r *http.Request, asked time.Time) time.Time {
	since, waited := r.Context().Value(approvedKey{}).(time.Time)
	if later := asked.Add(o.Now().Sub(since)); waited && later.After(asked) && later.Year() <= 9999 { // as JSON has years
		return later
	}
	return asked
}

// wantsApproval says whether the newest fleet.yaml has a second person approve a request.
func (c *Controller) wantsApproval(r *http.Request, o api.Operation) (bool, error) {
	if o.Approve == "" || r.Context().Value(approvedKey{}) != nil {
		return false, nil
	}
	if o.ID == "command" && slices.Contains([]string{string(api.Pause), string(api.Hold), string(api.Halt)}, segment(r.URL, 5)) {
		return false, nil // what stops waits for nobody
	}
	fleet, err := c.newestFleet(r.Context())
	return err == nil && slices.Contains(fleet.Approve, o.Approve), err
}

// segment is a part of a path, from 1.
func segment(u *url.URL, n int) string {
	all := strings.Split(u.EscapedPath(), "/")
	if n >= len(all) {
		return ""
	}
	text, err := url.PathUnescape(all[n])
	if err != nil {
		return ""
	}
	return text
}

// suspendable is a new value of the body of an operation that may want approval, and whether there
// is such an operation.
func suspendable(operation string) (body any, has bool) {
	switch operation {
	case "publish":
		return &api.Publish{}, true
	case "ban", "allow":
		return &api.NewHoldings{}, true
	case "unban", "disallow":
		return &api.Lift{}, true
	case "command", "revoke", "rollOutDraft":
		return &api.Why{}, true
	case "setLabels":
		return &api.LabelOrder{}, true
	case "putGuest":
		return &api.NewGuest{}, true
	case "refreshList":
		return &api.ListRefresh{}, true
	case "createToken":
		return &api.NewToken{}, true
	case "createAccess":
		return &api.NewAccess{}, true
	case "createLink":
		return &api.NewLink{}, true
	case "removeGuest", "undoList":
		return nil, true
	}
	return nil, false
}

// concern is which hosts a request is for: those of hosts, nil being all, unless it names some,
// or the labels of some that are to come.
type concern struct {
	hosts  *selector.Selector
	named  []string
	labels map[string]string
}

// concerns says which hosts a request is for, of whom it is.
func (c *Controller) concerns(operation string, at *url.URL, body any, asker caller) (of concern, err error) {
	of.hosts = asker.Hosts
	switch is := body.(type) {
	case *api.NewHoldings:
		of.hosts, err = asker.hosts(is.Hosts)
	case *api.Lift:
		of.hosts, err = asker.hosts(is.Hosts)
	case *api.NewAccess:
		of.hosts, err = asker.hosts(is.Hosts)
	case *api.NewLink:
		of.hosts, err = asker.hosts(is.Hosts)
	case *api.NewToken:
		of.labels = named("", is.Labels)
	case *api.NewGuest:
		of.named = append(of.named, is.Host)
	}
	switch operation {
	case "revoke", "setLabels":
		of.named = append(of.named, segment(at, 4))
	case "putGuest", "removeGuest":
		if g := c.view.Load().guests[segment(at, 4)]; g != nil {
			of.named = append(of.named, g.Host)
		}
	}
	return of, err
}

// covers says that the role of a caller holds for all hosts that are concerned.
func (c *Controller) covers(who caller, of concern) bool {
	switch {
	case who.Hosts == nil:
		return true
	case of.labels != nil:
		return who.Hosts.Match(of.labels)
	case of.named != nil:
		return !slices.ContainsFunc(of.named, func(host string) bool { return c.host(who, host) != nil })
	}
	return of.hosts.Implies(who.Hosts)
}

// suspend keeps a request until somebody approves it. It is tried first: what would change nothing
// is answered at once, and so is what the operation refuses. What is kept is what the operation
// will read and people are shown.
func (o operator) suspend(w http.ResponseWriter, r *http.Request, who caller, op api.Operation) {
	body, known := suspendable(op.ID)
	if !known {
		wire.Fail(w, unpermitted("%s requires approval, which it cannot have", op.ID))
		return
	}
	var text []byte
	if body != nil {
		err := strictly(http.MaxBytesReader(w, r.Body, mostSuspended), body)
		if err == nil {
			text, err = json.Marshal(body) // what people are shown is what is read then
		}
		if err != nil {
			wire.Fail(w, wrong("the request is wrong, or has more than the %d bytes of one that waits for approval: %v", mostSuspended, err))
			return
		}
	}
	if _, err := o.concerns(op.ID, r.URL, body, who); err != nil {
		o.done(w, nil, err)
		return
	}
	would := false
	tried, err := o.perform(store.Trial(r.Context(), &would), who, r.Method, r.URL, text, o.Now())
	if err != nil { // it is not a URL
		wire.Fail(w, wrong("%v", err))
		return
	}
	if !would {
		maps.Copy(w.Header(), tried.header)
		w.WriteHeader(tried.status)
		_, _ = w.Write(tried.body.Bytes())
		return
	}
	is := store.Request{
		What: op.Approve, Operation: op.ID, Method: r.Method, Path: r.URL.RequestURI(), Body: text, Who: who.Who, Access: who.session, Asked: o.Now(),
	}
	if is.Asks = asks(is); len(is.Asks) > mostWords {
		is.Asks = is.Asks[:mostWords] + "…"
	}
	kept, err := o.Store.Ask(r.Context(), is)
	o.answered(err)
	if err != nil {
		o.done(w, nil, err)
		return
	}
	wire.Answer(w, http.StatusAccepted, shownRequest(kept, true))
}

// isAnother says that two are not one: neither is the other, nor was made by the other, nor both
// by a third. Who is on the controller's own machine is one, whoever it is, and counts as maker
// of nobody.
func (who caller) isAnother(than caller) bool {
	if who.session == "" || than.session == "" {
		return who.session != than.session
	}
	mine := who.lineage()
	return !slices.ContainsFunc(than.lineage(), func(name string) bool { return slices.Contains(mine, name) })
}

// is says that two are one by what they show: the same session or token, or the same person. Who
// was given a token by somebody is not them.
func (who caller) is(other caller) bool {
	if who.session == other.session {
		return true
	}
	return who.session != "" && other.session != "" && !who.program && !other.program && policy.WhoKey(who.Who) == policy.WhoKey(other.Who)
}

// lineage is who somebody is, and who made what they show, and what those showed.
func (who caller) lineage() []string {
	if who.session == "" {
		return nil
	}
	return append([]string{policy.WhoKey(who.Who)}, who.makers...)
}

// mostMakers bounds of how many names a lineage is.
const mostMakers = 32

// makersOf are who makes an access that a caller gives.
func (who caller) makersOf() ([]string, error) {
	all := who.lineage()
	slices.Sort(all)
	if all = slices.Compact(all); len(all) > mostMakers {
		return nil, unpermitted("%s was given access by one who was given it by another, and so on for %d names: it gives none", who.Who, mostMakers)
	}
	return all, nil
}
