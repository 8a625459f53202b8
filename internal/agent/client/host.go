package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"sluice/internal/agent/api"
	"sluice/internal/base/exposition"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/language/bans"
	"sluice/internal/language/geo"
)

// Door is what commands ask of a host. What it answers survives JSON: commands print, and
// end with, what is in there and no more.
type Door interface {
	Status(ctx context.Context, contents bool) (*apply.Status, error)
	Metrics(ctx context.Context) ([]exposition.Family, error)
	Gauges() (*engine.Gauged, error)
	Verify(ctx context.Context, against *engine.Subject, own bool) (*engine.Verified, error)
	History() (*apply.History, error)
	Text(generation int) (*apply.Text, error)
	Bans(ctx context.Context) ([]apply.BanEntry, error)
	PastBans() ([]apply.PastBan, error)
	Ban(ctx context.Context, in apply.Banning) (*apply.Banned, error)
	Unban(ctx context.Context, what []bans.Named) (*apply.Banned, error)
	Allows(ctx context.Context) ([]engine.AllowEntry, error)
	Allow(ctx context.Context, in engine.Allowing) (*engine.Allowed, error)
	Disallow(ctx context.Context, in engine.Allowing) (*engine.Allowed, error)
	LivingSets(ctx context.Context) ([]engine.LivingSet, error)
	AddToSet(ctx context.Context, in engine.SetEdit) (*engine.SetEdited, error)
	RemoveFromSet(ctx context.Context, in engine.SetEdit) (*engine.SetEdited, error)
	Plan(ctx context.Context, r engine.Request) (*engine.Plan, error)
	Apply(ctx context.Context, r engine.Request, o apply.Options) (*apply.Outcome, error)
	Confirm(ctx context.Context) (int, error)
	Rollback(ctx context.Context, generation int, o apply.Options) (*apply.Outcome, error)
	Remove(ctx context.Context) (*apply.Outcome, error)
	Restore(ctx context.Context, r apply.Restoring) (*apply.Outcome, error)
	Sync(ctx context.Context) (*apply.Synced, error)
	Refresh(ctx context.Context, in engine.Refreshing) (*engine.Refreshed, error)
	UpdateCountries(ctx context.Context, in engine.UpdatingCountries) (*geo.UpdateResult, error)
	UndoCountries(ctx context.Context) (*geo.UpdateResult, error)
	Explain(ctx context.Context, q engine.Explaining) (*engine.Explained, error)
	Query(ctx context.Context, q engine.Querying) (*engine.Queried, error)
	Entries(ctx context.Context, q engine.EntryQuestion) (*engine.EntryAnswer, error)
	DeleteEntries(ctx context.Context, c engine.EntryChoice) (*engine.DeletedEntries, error)
	PlanTable(ctx context.Context, w engine.TableWish) (*engine.TablePlan, error)
	Tune(ctx context.Context, in apply.Tuning) (*apply.Tuned, error)
	Untune(ctx context.Context, u apply.Untuning) (*apply.Tuned, error)
	WatchEntries(ctx context.Context, q engine.EntryWatch, seen func(engine.WatchedEntry)) (*engine.WatchedEntries, error)
	Top(ctx context.Context, q engine.TopQuestion, seen func(*engine.Top)) (*engine.TopAnswer, error)
	Log(ctx context.Context, q engine.LogQuestion, seen func(engine.Logged)) (*engine.LogAnswer, error)
	Drops(ctx context.Context, c engine.DropChoice, seen func(engine.Dropped), counted func(engine.DropCounts)) (*engine.DropCounts, error)
}

// Status asks for the status.
func (h *Host) Status(ctx context.Context, contents bool) (*apply.Status, error) {
	path := "status"
	if !contents {
		path += "?fast=true"
	}
	return asked(ctx, h, http.MethodGet, path, nil, func() (*apply.Status, error) { return h.Door.Status(ctx, contents) })
}

// Metrics asks for the metrics.
func (h *Host) Metrics(ctx context.Context) ([]exposition.Family, error) {
	return asked(ctx, h, http.MethodGet, "metrics", nil, func() ([]exposition.Family, error) { return h.Door.Metrics(ctx) })
}

// Verify asks for a proof. What a file says is the business of who may read it.
func (h *Host) Verify(ctx context.Context, against *engine.Subject, own bool) (*engine.Verified, error) {
	here := func() (*engine.Verified, error) { return h.Door.Verify(ctx, against, own) }
	if against != nil {
		return here()
	}
	return asked(ctx, h, http.MethodPost, "verify", api.VerifyRequest{Own: own}, here)
}

// History asks for the generations.
func (h *Host) History() (*apply.History, error) {
	return asked(context.Background(), h, http.MethodGet, "generations", nil, h.Door.History)
}

// Text asks for the text of a generation.
func (h *Host) Text(generation int) (*apply.Text, error) {
	return asked(context.Background(), h, http.MethodGet, fmt.Sprint("generations/", generation), nil, func() (*apply.Text, error) { return h.Door.Text(generation) })
}

// Bans asks for the bans.
func (h *Host) Bans(ctx context.Context) ([]apply.BanEntry, error) {
	return asked(ctx, h, http.MethodGet, "bans", nil, func() ([]apply.BanEntry, error) { return h.Door.Bans(ctx) })
}

// PastBans asks for the bans that ended.
func (h *Host) PastBans() ([]apply.PastBan, error) {
	return asked(context.Background(), h, http.MethodGet, "bans/past", nil, func() ([]apply.PastBan, error) { return h.Door.PastBans() })
}

// Ban has addresses banned.
func (h *Host) Ban(ctx context.Context, in apply.Banning) (*apply.Banned, error) {
	r := api.BanRequest{For: in.For.Seconds(), Force: in.Force, KeepLonger: in.KeepLonger, Bans: make([]api.ToBan, len(in.List))}
	for i, n := range in.List {
		r.Bans[i] = api.ToBan{What: n.Name(), For: n.For.Seconds(), Reason: n.Reason}
	}
	return asked(ctx, h, http.MethodPost, "bans", r, func() (*apply.Banned, error) { return h.Door.Ban(ctx, in) })
}

// Unban has bans lifted.
func (h *Host) Unban(ctx context.Context, what []bans.Named) (*apply.Banned, error) {
	r := api.UnbanRequest{What: make([]string, len(what))}
	for i, w := range what {
		r.What[i] = w.Name()
	}
	return asked(ctx, h, http.MethodPost, "bans/lift", r, func() (*apply.Banned, error) { return h.Door.Unban(ctx, what) })
}

// Allows asks for the exceptions.
func (h *Host) Allows(ctx context.Context) ([]engine.AllowEntry, error) {
	return asked(ctx, h, http.MethodGet, "allows", nil, func() ([]engine.AllowEntry, error) { return h.Door.Allows(ctx) })
}

// Allow has an address let in.
func (h *Host) Allow(ctx context.Context, in engine.Allowing) (*engine.Allowed, error) {
	r := api.AllowRequest{What: in.What.String(), Service: in.Service, For: in.For.Seconds(), OverBan: in.OverBan}
	return asked(ctx, h, http.MethodPost, "allows", r, func() (*engine.Allowed, error) { return h.Door.Allow(ctx, in) })
}

// Disallow has that lifted.
func (h *Host) Disallow(ctx context.Context, in engine.Allowing) (*engine.Allowed, error) {
	r := api.DisallowRequest{What: in.What.String(), Service: in.Service, Force: in.Force}
	return asked(ctx, h, http.MethodPost, "allows/lift", r, func() (*engine.Allowed, error) { return h.Door.Disallow(ctx, in) })
}

// LivingSets asks for the living sets.
func (h *Host) LivingSets(ctx context.Context) ([]engine.LivingSet, error) {
	return asked(ctx, h, http.MethodGet, "sets", nil, func() ([]engine.LivingSet, error) { return h.Door.LivingSets(ctx) })
}

// AddToSet has addresses added to one.
func (h *Host) AddToSet(ctx context.Context, in engine.SetEdit) (*engine.SetEdited, error) {
	return asked(ctx, h, http.MethodPost, "sets", setRequest(in), func() (*engine.SetEdited, error) { return h.Door.AddToSet(ctx, in) })
}

// RemoveFromSet has them removed.
func (h *Host) RemoveFromSet(ctx context.Context, in engine.SetEdit) (*engine.SetEdited, error) {
	return asked(ctx, h, http.MethodPost, "sets/remove", setRequest(in), func() (*engine.SetEdited, error) { return h.Door.RemoveFromSet(ctx, in) })
}

func setRequest(in engine.SetEdit) api.SetRequest {
	r := api.SetRequest{Set: in.Set, What: make([]string, len(in.What)), For: in.For.Seconds(), Force: in.Force}
	for i, w := range in.What {
		r.What[i] = w.String()
	}
	return r
}

// Apply has a policy loaded, of a file that the agent reads.
func (h *Host) Apply(ctx context.Context, r engine.Request, o apply.Options) (*apply.Outcome, error) {
	here := func() (*apply.Outcome, error) { return h.Door.Apply(ctx, r, o) }
	file, err := policyFile(r)
	if err != nil {
		return here()
	}
	return asked(ctx, h, http.MethodPost, "apply", api.ApplyRequest{Policy: file, Building: building(r), Options: changeOptions(o), Detach: r.Detach}, here)
}

// Plan asks what Apply would do.
func (h *Host) Plan(ctx context.Context, r engine.Request) (*engine.Plan, error) {
	here := func() (*engine.Plan, error) { return h.Door.Plan(ctx, r) }
	file, err := policyFile(r)
	if err != nil {
		return here()
	}
	return asked(ctx, h, http.MethodPost, "plan", api.PlanRequest{Policy: file, Building: building(r)}, here)
}

// orders are those of rules, by their words.
var orders = map[engine.Order]api.BuildingOrder{engine.ByRunning: api.Running, engine.ByHits: api.Hits, engine.AsWritten: api.Written}

func policyFile(r engine.Request) (api.PolicyFile, error) {
	at, err := os.Getwd()
	return api.PolicyFile{File: r.File, Directory: at, Draft: r.Draft, DraftOf: r.DraftOf}, err
}

func building(r engine.Request) api.Building {
	return api.Building{Without: r.Without, Order: orders[r.Order], Hits: r.Hits, NoExpect: r.NoExpect}
}

func changeOptions(o apply.Options) api.ChangeOptions {
	return api.ChangeOptions{Confirm: o.Confirm.Seconds(), Keep: o.Keep, Force: o.Force, NoVerify: !o.Verify, Cut: o.Cut}
}

// Confirm has the policy that waits kept.
func (h *Host) Confirm(ctx context.Context) (int, error) {
	out, err := asked(ctx, h, http.MethodPost, "confirm", nil, func() (*apply.Outcome, error) {
		n, err := h.Door.Confirm(ctx)
		return &apply.Outcome{Generation: n}, err
	})
	if out == nil {
		return 0, err
	}
	return out.Generation, err
}

// Rollback goes back.
func (h *Host) Rollback(ctx context.Context, generation int, o apply.Options) (*apply.Outcome, error) {
	in := api.RollbackRequest{Options: changeOptions(o)}
	if generation != apply.Before {
		in.Generation = generation
	}
	return asked(ctx, h, http.MethodPost, "rollback", in, func() (*apply.Outcome, error) { return h.Door.Rollback(ctx, generation, o) })
}

// Sync has applied what the host is.
func (h *Host) Sync(ctx context.Context) (*apply.Synced, error) {
	return asked(ctx, h, http.MethodPost, "sync", nil, func() (*apply.Synced, error) { return h.Door.Sync(ctx) })
}

// Remove has everything taken out of the kernel.
func (h *Host) Remove(ctx context.Context) (*apply.Outcome, error) {
	return asked(ctx, h, http.MethodPost, "remove", nil, func() (*apply.Outcome, error) { return h.Door.Remove(ctx) })
}

// Restore has the confirmed policy loaded. The agent sees itself where ssh listens.
func (h *Host) Restore(ctx context.Context, r apply.Restoring) (*apply.Outcome, error) {
	return asked(ctx, h, http.MethodPost, "restore", nil, func() (*apply.Outcome, error) { return h.Door.Restore(ctx, r) })
}

// Refresh has lists asked for.
func (h *Host) Refresh(ctx context.Context, in engine.Refreshing) (*engine.Refreshed, error) {
	r := api.RefreshRequest{Sets: in.Sets, Countries: in.Countries, DryRun: in.DryRun, AllowCut: in.AllowCut, Force: in.Force}
	return asked(ctx, h, http.MethodPost, "refresh", r, func() (*engine.Refreshed, error) { return h.Door.Refresh(ctx, in) })
}

// UpdateCountries has country data updated. What a file says is the business of who may
// read it.
func (h *Host) UpdateCountries(ctx context.Context, in engine.UpdatingCountries) (*geo.UpdateResult, error) {
	here := func() (*geo.UpdateResult, error) { return h.Door.UpdateCountries(ctx, in) }
	if slices.ContainsFunc(in.From, func(from string) bool { return !geo.Lasts(from) }) {
		return here()
	}
	r := api.UpdateCountriesRequest{From: in.From, Sha256: in.SHA256, Force: in.Force}
	if !in.Date.IsZero() {
		r.Date = in.Date.Format(time.DateOnly)
	}
	return asked(ctx, h, http.MethodPost, "countries/update", r, here)
}

// UndoCountries has the country data gone back.
func (h *Host) UndoCountries(ctx context.Context) (*geo.UpdateResult, error) {
	return asked(ctx, h, http.MethodPost, "countries/undo", nil, func() (*geo.UpdateResult, error) { return h.Door.UndoCountries(ctx) })
}

// Explain asks what the running policy does with a packet. What a file says is the
// business of who may read it.
func (h *Host) Explain(ctx context.Context, q engine.Explaining) (*engine.Explained, error) {
	here := func() (*engine.Explained, error) { return h.Door.Explain(ctx, q) }
	if q.Subject != nil {
		return here()
	}
	p := q.Question
	return asked(ctx, h, http.MethodPost, "explain", api.ExplainRequest{
		Protocol: p.Protocol, Source: p.Source, Destination: p.Destination, SourcePort: p.SourcePort, Port: p.Port, In: p.In, Out: p.Out,
		ICMPType: p.ICMPType, Flags: p.Flags, User: p.User, Hook: p.Hook, State: p.State, Mark: p.Mark, Live: q.Live,
	}, here)
}

// Query asks which packets the running policy allows.
func (h *Host) Query(ctx context.Context, q engine.Querying) (*engine.Queried, error) {
	here := func() (*engine.Queried, error) { return h.Door.Query(ctx, q) }
	if q.Subject != nil {
		return here()
	}
	w := q.Words
	r := api.QueryRequest{Service: w.Service, From: w.From, To: w.To, In: w.In, Out: w.Out, Hook: api.QueryRequestHook(w.Hook)}
	for _, s := range w.States {
		r.States = append(r.States, string(s))
	}
	for _, v := range q.Verdicts {
		r.Verdicts = append(r.Verdicts, api.QueryRequestVerdicts(v))
	}
	return asked(ctx, h, http.MethodPost, "query", r, here)
}

// Entries asks for entries of the connection table.
func (h *Host) Entries(ctx context.Context, q engine.EntryQuestion) (*engine.EntryAnswer, error) {
	return asked(ctx, h, http.MethodPost, "entries", q, func() (*engine.EntryAnswer, error) { return h.Door.Entries(ctx, q) })
}

// DeleteEntries has entries of the connection table deleted.
func (h *Host) DeleteEntries(ctx context.Context, c engine.EntryChoice) (*engine.DeletedEntries, error) {
	return asked(ctx, h, http.MethodPost, "entries/delete", c, func() (*engine.DeletedEntries, error) { return h.Door.DeleteEntries(ctx, c) })
}

// PlanTable asks how the connection table should be.
func (h *Host) PlanTable(ctx context.Context, w engine.TableWish) (*engine.TablePlan, error) {
	return asked(ctx, h, http.MethodPost, "tuning/plan", w, func() (*engine.TablePlan, error) { return h.Door.PlanTable(ctx, w) })
}

// Tune has settings of the kernel set.
func (h *Host) Tune(ctx context.Context, in apply.Tuning) (*apply.Tuned, error) {
	return asked(ctx, h, http.MethodPost, "tuning", in, func() (*apply.Tuned, error) { return h.Door.Tune(ctx, in) })
}

// Untune has them taken back.
func (h *Host) Untune(ctx context.Context, u apply.Untuning) (*apply.Tuned, error) {
	return asked(ctx, h, http.MethodPost, "tuning/revert", u, func() (*apply.Tuned, error) { return h.Door.Untune(ctx, u) })
}

// WatchEntries asks what happens to entries of the connection table.
func (h *Host) WatchEntries(ctx context.Context, q engine.EntryWatch, seen func(engine.WatchedEntry)) (*engine.WatchedEntries, error) {
	h.Told.Entry = seen
	return asked(ctx, h, http.MethodPost, "entries/watch", q, func() (*engine.WatchedEntries, error) { return h.Door.WatchEntries(ctx, q, seen) })
}

// Top asks for looks at the host.
func (h *Host) Top(ctx context.Context, q engine.TopQuestion, seen func(*engine.Top)) (*engine.TopAnswer, error) {
	h.Told.Top = seen
	return asked(ctx, h, http.MethodPost, "top", q, func() (*engine.TopAnswer, error) { return h.Door.Top(ctx, q, seen) })
}

// Drops asks what the kernel drops.
func (h *Host) Drops(ctx context.Context, c engine.DropChoice, seen func(engine.Dropped), counted func(engine.DropCounts)) (*engine.DropCounts, error) {
	h.Told.Dropped, h.Told.Drops = seen, counted
	return asked(ctx, h, http.MethodPost, "drops", c, func() (*engine.DropCounts, error) { return h.Door.Drops(ctx, c, seen, counted) })
}

// Log asks for what was logged. What an agent does not keep is read here.
func (h *Host) Log(ctx context.Context, q engine.LogQuestion, seen func(engine.Logged)) (*engine.LogAnswer, error) {
	in := url.Values{}
	for name, text := range map[string]string{"source": q.Source, "service": q.Service, "country": q.Country, "line": q.Line} {
		if text != "" {
			in.Set(name, text)
		}
	}
	if !q.Since.IsZero() {
		in.Set("since", q.Since.Format(time.RFC3339Nano))
	}
	if q.Follow {
		in.Set("follow", "true")
	}
	if q.Number > 0 {
		in.Set("number", strconv.FormatUint(q.Number, 10))
	}
	path := "log"
	if len(in) > 0 {
		path += "?" + in.Encode()
	}
	h.Told.Logged = seen
	return asked(ctx, h, http.MethodGet, path, nil, func() (*engine.LogAnswer, error) { return h.Door.Log(ctx, q, seen) })
}
