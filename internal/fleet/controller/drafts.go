package controller

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
)

// hashes are those of the files of a bundle, by path.
func hashes(m *trust.Manifest) map[string]string {
	out := map[string]string{}
	for _, f := range m.Files() {
		out[f.Path] = f.SHA256
	}
	return out
}

// shownDraft is a draft as people see it, against the newest bundle.
func shownDraft(d *store.Draft, newest int64, now map[string]string) api.Draft {
	out := api.Draft{
		Id: d.ID, Title: d.Title, By: d.Who, At: d.Made, Bundle: d.Bundle, Opens: d.Opens, Files: []api.DraftFile{},
		Summary: append([]string{}, d.Summary...), Texts: d.Texts,
	}
	published := newest > d.Bundle
	for _, f := range d.Files {
		is := api.DraftFile{Name: f.Name, Before: f.Before, Change: api.DraftChanged, Moved: now[f.Name] != f.Before && now[f.Name] != f.SHA256}
		switch {
		case f.Before == "":
			is.Change = api.DraftAdded
		case f.SHA256 == "":
			is.Change = api.DraftRemoved
		}
		published = published && now[f.Name] == f.SHA256
		out.Files = append(out.Files, is)
	}
	if published {
		out.Published = newest
	}
	return out
}

// mayDraft says that a caller may know of a draft.
func mayDraft(who caller, d *store.Draft) bool { return who.Hosts == nil || who.Who == d.Who }

func (o operator) Drafts(w http.ResponseWriter, r *http.Request) {
	all, err := o.Store.Drafts(r.Context())
	o.answered(err)
	m, wrong := o.published(r.Context())
	if err == nil {
		err = wrong
	}
	out, now := api.Drafts{Drafts: []api.Draft{}}, hashes(&m)
	for i := range all {
		if mayDraft(as(r), &all[i]) {
			out.Drafts = append(out.Drafts, shownDraft(&all[i], m.Number, now))
		}
	}
	o.done(w, out, err)
}

// draft is one that a caller may know of.
func (o operator) draft(ctx context.Context, who caller, id string) (store.Draft, error) {
	d, err := o.Store.Draft(ctx, id)
	o.answered(err)
	if err == nil && !mayDraft(who, &d) {
		err = fmt.Errorf("draft %.64q: %w", id, store.ErrNotFound)
	}
	return d, err
}

func (o operator) Draft(w http.ResponseWriter, r *http.Request, id string) {
	d, err := o.draft(r.Context(), as(r), id)
	var m trust.Manifest
	if err == nil {
		m, err = o.published(r.Context())
	}
	if err != nil {
		o.done(w, nil, err)
		return
	}
	o.done(w, shownDraft(&d, m.Number, hashes(&m)), nil)
}

func (o operator) RemoveDraft(w http.ResponseWriter, r *http.Request, id string) {
	who := as(r)
	d, err := o.draft(r.Context(), who, id)
	if err == nil && d.Who != who.Who && !who.Role.Includes(api.Admin) {
		err = unpermitted("draft %s is of %s, and the role %s removes one's own", d.ID, d.Who, who.Role)
	}
	if err == nil {
		err = o.Store.RemoveDraft(r.Context(), who.Who, id)
	}
	o.done(w, nil, err)
}

func (o operator) CreateDraft(w http.ResponseWriter, r *http.Request) {
	asked, fine := in[api.NewDraft](w, r)
	if !fine {
		return
	}
	who := as(r)
	for path := range asked.Texts {
		if err := trust.CheckDraftPath(path); err != nil {
			o.done(w, nil, wrong("%v", err))
			return
		}
	}
	every := who
	every.Hosts = nil // what it does to others has to be known
	out, err := o.judged(w, r, every, asked.Texts, func(is *judging) (any, error) {
		now := hashes(&is.manifest)
		d := store.Draft{Title: asked.Title, Who: who.Who, Bundle: is.manifest.Number, Texts: map[string]string{}}
		for _, path := range slices.Sorted(maps.Keys(asked.Texts)) {
			text, hash := asked.Texts[path], ""
			if text != "" {
				hash = trust.HashOf([]byte(text))
			}
			if hash != now[path] {
				d.Texts[path] = text
				d.Files = append(d.Files, store.DraftFile{Name: path, Before: now[path], SHA256: hash})
			}
		}
		if len(d.Files) == 0 {
			return nil, wrong("the draft changes no file of bundle %d", d.Bundle)
		}
		diff, err := o.diff(is)
		if err != nil {
			return nil, err
		}
		if err := o.proposes(who, diff); err != nil {
			return nil, err
		}
		d.ID, d.Opens, d.Summary = api.DraftID(d.Bundle, d.Texts), diff.Opens, summary(diff)
		kept, err := o.Store.Propose(r.Context(), d)
		if err != nil {
			return nil, err
		}
		return shownDraft(&kept, d.Bundle, now), nil
	})
	o.done(w, out, err)
}

// proposes refuses a draft of who has a role for some hosts and changes what is of others.
func (o operator) proposes(who caller, diff *api.PolicyDiff) error {
	if who.Hosts == nil {
		return nil
	}
	all, hosts := false, 0
	for _, c := range diff.Changes {
		for _, h := range c.Hosts {
			hosts++
			all = all || o.host(who, h) != nil
		}
	}
	if all || hosts == 0 {
		return unpermitted("%s has the role %s for hosts of %s: a draft of theirs changes what passes on these, and on no other host", who.Who, who.Role, who.Hosts)
	}
	return nil
}

// mostSummary is how many lines the summary of a draft has.
const mostSummary = 50

// summary says in a few lines what a diff has.
func summary(d *api.PolicyDiff) (lines []string) {
	for _, c := range d.Changes {
		for _, l := range c.Brief {
			lines = append(lines, c.For+": "+l.Text)
		}
		for _, s := range c.Settings {
			lines = append(lines, c.For+": setting: "+s)
		}
	}
	if more := len(lines) - mostSummary; more > 0 {
		lines = append(lines[:mostSummary], fmt.Sprintf("and %d more", more))
	}
	return lines
}

// signs says why the controller does not sign policies; nil where it does.
func (c *Controller) signs(ctx context.Context) error {
	fleet, err := c.newestFleet(ctx)
	switch {
	case err != nil:
		return err
	case !fleet.OnlineSigning:
		return wrong("signing is offline, as fleet.yaml has it: an operator signs the draft, by sluice-controller sign")
	case c.Sign == nil:
		return wrong("this controller has no key to sign with: it was started without --sign-in")
	}
	return nil
}

// signTime bounds how long a draft is checked for all hosts, signed and published.
const signTime = 3 * time.Minute

func (o operator) RollOutDraft(w http.ResponseWriter, r *http.Request, id string) {
	if _, fine := in[api.Why](w, r); !fine {
		return
	}
	d, err := o.draft(r.Context(), as(r), id)
	if err == nil {
		err = o.signs(r.Context())
	}
	if err == nil && store.IsTrial(r.Context()) { // what is signed cannot be undone
		err = store.Tried(r.Context())
	}
	if err != nil {
		o.done(w, nil, err)
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(signTime)) // a recorder has none
	// Who asked may go meanwhile: what is signed is to be published.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), signTime)
	defer cancel()
	signed, err := o.Sign(ctx, d.ID)
	if err != nil {
		o.done(w, nil, wrong("%v", err))
		return
	}
	made, err := o.Controller.Publish(ctx, as(r).Who, *signed)
	o.done(w, made, err)
}
