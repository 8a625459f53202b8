package agent

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"

	"sluice/internal/agent/api"
	"sluice/internal/agent/work"
	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/language/bans"
	"sluice/internal/language/geo"
	"sluice/internal/words"
)

// operation is what is known of one before it begins.
type operation struct {
	right right
	body  int64 // bytes; 0: it has none
}

// Bodies of requests.
const (
	small = 64 << 10
	large = 16 << 20 // some 200,000 bans
)

// operations are those that are served.
var operations = map[string]operation{
	"GET /v1":                                {nothing, 0},
	"GET /metrics":                           {read, 0},
	"GET /v1/namespaces/{namespace}/metrics": {read, 0},
	"GET /v1/namespaces/{namespace}/generations":              {read, 0},
	"GET /v1/namespaces/{namespace}/generations/{generation}": {read, 0},
	"GET /v1/namespaces/{namespace}/status":                   {read, 0},
	"GET /v1/namespaces/{namespace}/log":                      {read, 0},
	"GET /v1/namespaces/{namespace}/samples":                  {read, 0},
	"POST /v1/namespaces/{namespace}/drops":                   {read, small},
	"POST /v1/namespaces/{namespace}/verify":                  {read, small},
	"GET /v1/namespaces/{namespace}/bans":                     {read, 0},
	"GET /v1/namespaces/{namespace}/bans/past":                {read, 0},
	"GET /v1/namespaces/{namespace}/allows":                   {read, 0},
	"POST /v1/namespaces/{namespace}/allows":                  {change, small},
	"POST /v1/namespaces/{namespace}/allows/lift":             {change, small},
	"POST /v1/namespaces/{namespace}/confirm":                 {change, 0},
	"POST /v1/namespaces/{namespace}/rollback":                {change, small},
	"POST /v1/namespaces/{namespace}/plan":                    {read, large},
	"POST /v1/namespaces/{namespace}/apply":                   {change, large},
	"POST /v1/namespaces/{namespace}/check":                   {read, large},
	"POST /v1/namespaces/{namespace}/diff":                    {read, large},
	"POST /v1/namespaces/{namespace}/map":                     {read, large},
	"POST /v1/namespaces/{namespace}/reach":                   {read, large},
	"GET /v1/namespaces/{namespace}/facts":                    {read, 0},
	"POST /v1/namespaces/{namespace}/doctor":                  {read, small},
	"POST /v1/namespaces/{namespace}/explain":                 {read, small},
	"POST /v1/namespaces/{namespace}/query":                   {read, small},
	"POST /v1/namespaces/{namespace}/entries":                 {read, small},
	"POST /v1/namespaces/{namespace}/entries/delete":          {change, small},
	"POST /v1/namespaces/{namespace}/entries/watch":           {read, small},
	"POST /v1/namespaces/{namespace}/top":                     {read, small},
	"POST /v1/namespaces/{namespace}/tuning":                  {change, small},
	"POST /v1/namespaces/{namespace}/tuning/plan":             {read, small},
	"POST /v1/namespaces/{namespace}/tuning/revert":           {change, small},
	"POST /v1/namespaces/{namespace}/remove":                  {change, 0},
	"POST /v1/namespaces/{namespace}/restore":                 {change, 0},
	"POST /v1/namespaces/{namespace}/refresh":                 {change, small},
	"POST /v1/namespaces/{namespace}/lists/plan":              {read, large},
	"POST /v1/namespaces/{namespace}/countries/update":        {change, small},
	"POST /v1/namespaces/{namespace}/countries/undo":          {change, 0},
	"POST /v1/namespaces/{namespace}/bans":                    {change, large},
	"POST /v1/namespaces/{namespace}/bans/lift":               {change, large},
	"POST /v1/namespaces/{namespace}/sync":                    {change, 0},
	"GET /v1/namespaces/{namespace}/sets":                     {read, 0},
	"POST /v1/namespaces/{namespace}/sets":                    {change, large},
	"POST /v1/namespaces/{namespace}/sets/remove":             {change, large},
}

// About says who answers.
func (s *server) About(w http.ResponseWriter, r *http.Request) {
	q := of(r)
	name, _ := os.Hostname() // a host without one is shown without
	out := api.About{Version: s.version, Host: name, Protocols: api.Levels, Namespaces: slices.Sorted(maps.Keys(s.spaces.all()))}
	if q.may(q.peer) >= read {
		for name, err := range s.spaces.whyNot() {
			out.NotServed = append(out.NotServed, api.NotServedNamespace{Namespace: name, Why: err.Error()})
		}
		sorting.By(out.NotServed, func(a, b api.NotServedNamespace) int { return strings.Compare(a.Namespace, b.Namespace) })
	}
	out.You = api.You{User: userName(q.peer.UID), May: api.YouMay(s.may(q.peer).String())}
	s.answer(w, r).End(out, nil)
}

// History lists generations.
func (s *server) History(_ http.ResponseWriter, r *http.Request, _ string) {
	seen(of(r), func(wall firewall) (*apply.History, error) { return wall.History() })
}

// Generation gives the text of one.
func (s *server) Generation(_ http.ResponseWriter, r *http.Request, _ string, n int) {
	seen(of(r), func(wall firewall) (*apply.Text, error) { return wall.Text(n) })
}

// longest is how long holds what ends by itself.
const longest = bans.Longest

// badTime says that nothing may end after so many seconds; 0 is no end.
func badTime(seconds float64) bool {
	return seconds != 0 && !(seconds >= 1 && seconds <= longest.Seconds())
}

// Ban bans.
func (s *server) Ban(_ http.ResponseWriter, r *http.Request, _ string) {
	q := of(r)
	asked, err := sent[api.BanRequest](q)
	switch {
	case err != nil:
	case len(asked.Bans) == 0:
		err = refused(api.BadRequest, "nothing to ban is named")
	case badTime(asked.For) || slices.ContainsFunc(asked.Bans, func(b api.ToBan) bool { return badTime(b.For) }):
		err = refused(api.BadRequest, "a ban holds for at least 1 and at most %.0f seconds", longest.Seconds())
	}
	var in apply.Banning
	if err == nil {
		in, err = work.Banning(asked)
	}
	if err != nil {
		q.answer(q.w, r).End(nil, err)
		return
	}
	if slices.ContainsFunc(in.List, func(n bans.Named) bool { return n.Country != "" }) {
		q.worked("ban", asked) // with country data
		return
	}
	awaited(q, func(ctx context.Context, tell func(api.Line)) (*apply.Banned, error, error) {
		a, waited := q.ban(ctx, apply.Asked{Banning: in, By: q.by, Session: q.session}, tell)
		return a.Banned, a.Err, waited
	})
}

// Unban lifts bans.
func (s *server) Unban(_ http.ResponseWriter, r *http.Request, _ string) {
	q := of(r)
	asked, err := sent[api.UnbanRequest](q)
	if err == nil && len(asked.What) == 0 {
		err = refused(api.BadRequest, "nothing to lift is named")
	}
	var what []bans.Named
	for _, text := range asked.What {
		if err != nil {
			break
		}
		var one bans.Named
		one, err = work.Named(text)
		what = append(what, one)
	}
	if err != nil {
		q.answer(q.w, r).End(nil, err)
		return
	}
	changed(q, func(ctx context.Context, wall firewall) (*apply.Banned, error) { return wall.Unban(ctx, what) })
}

func ranged(text string) (addrset.Range, error) {
	r, err := addrset.ParseRange(text)
	if err != nil {
		return r, refused(api.BadRequest, "%v", err)
	}
	return r, nil
}

// Sync applies what the host is.
func (s *server) Sync(_ http.ResponseWriter, r *http.Request, _ string) {
	changed(of(r), func(ctx context.Context, wall firewall) (*apply.Synced, error) { return wall.Sync(ctx) })
}

// Status reads what runs.
func (s *server) Status(_ http.ResponseWriter, r *http.Request, _ string, in api.StatusParams) {
	of(r).worked("status", in)
}

// Verify proves what runs.
func (s *server) Verify(_ http.ResponseWriter, r *http.Request, _ string) {
	workedWith[api.VerifyRequest](of(r), "verify", nil)
}

// Bans lists bans.
func (s *server) Bans(_ http.ResponseWriter, r *http.Request, _ string) { of(r).worked("bans", nil) }

// PastBans lists bans that ended.
func (s *server) PastBans(_ http.ResponseWriter, r *http.Request, _ string) {
	of(r).worked("pastBans", nil)
}

// Allows lists exceptions.
func (s *server) Allows(_ http.ResponseWriter, r *http.Request, _ string) {
	of(r).worked("allows", nil)
}

// Allow lets an address in.
func (s *server) Allow(_ http.ResponseWriter, r *http.Request, _ string) {
	q := of(r)
	in, err := sent[api.AllowRequest](q)
	if err == nil {
		_, err = ranged(in.What)
	}
	if err == nil && badTime(in.For) {
		err = refused(api.BadRequest, "an exception holds for at least 1 and at most %.0f seconds", longest.Seconds())
	}
	if err != nil {
		q.answer(q.w, r).End(nil, err)
		return
	}
	q.worked("allow", work.Allowing{AllowRequest: in, Bounded: q.peer.UID != 0})
}

// Disallow lifts exceptions.
func (s *server) Disallow(_ http.ResponseWriter, r *http.Request, _ string) {
	workedWith(of(r), "disallow", func(q *request, in api.DisallowRequest) error {
		_, err := ranged(in.What)
		return cmp.Or(err, q.overridden(api.ChangeOptions{Force: in.Force}))
	})
}

// LivingSets lists what commands have in sets.
func (s *server) LivingSets(_ http.ResponseWriter, r *http.Request, _ string) {
	of(r).worked("livingSets", nil)
}

// AddToSet adds to a living set.
func (s *server) AddToSet(_ http.ResponseWriter, r *http.Request, _ string) {
	of(r).setEdit("addToSet")
}

// RemoveFromSet removes from one.
func (s *server) RemoveFromSet(_ http.ResponseWriter, r *http.Request, _ string) {
	of(r).setEdit("removeFromSet")
}

func (q *request) setEdit(operation string) {
	workedWith(q, operation, func(q *request, in api.SetRequest) error {
		_, err := work.SetEdit(in)
		switch {
		case err != nil:
		case len(in.What) == 0:
			err = refused(api.BadRequest, "no address is named")
		case badTime(in.For):
			err = refused(api.BadRequest, "what is added stays for at least 1 and at most %.0f seconds", longest.Seconds())
		}
		return cmp.Or(err, q.overridden(api.ChangeOptions{Force: in.Force}))
	})
}

// Confirm keeps the policy that waits.
func (s *server) Confirm(_ http.ResponseWriter, r *http.Request, _ string) {
	of(r).worked("confirm", nil)
}

// Rollback goes back.
func (s *server) Rollback(_ http.ResponseWriter, r *http.Request, _ string) {
	workedWith(of(r), "rollback", func(q *request, in api.RollbackRequest) error { return q.overridden(in.Options) })
}

// Plan says what an apply would do.
func (s *server) Plan(_ http.ResponseWriter, r *http.Request, _ string) {
	workedWith(of(r), "plan", func(q *request, in api.PlanRequest) error { return q.asBuilt(in.Building) })
}

// PlanList says what would come of a live list that the controller has not given yet.
func (s *server) PlanList(_ http.ResponseWriter, r *http.Request, _ string) {
	q := of(r)
	in, err := sent[api.PlanListRequest](q)
	if err == nil && in.Gzip == nil {
		err = refused(api.BadRequest, "gzip is to have the list")
	}
	if err != nil {
		q.answer(q.w, r).End(nil, err)
		return
	}
	q.worked("takeLists", engine.Refreshing{DryRun: true, Given: []engine.GivenList{{Name: in.List, Gzip: in.Gzip}}})
}

// Apply loads a policy.
func (s *server) Apply(_ http.ResponseWriter, r *http.Request, _ string) {
	workedWith(of(r), "apply", func(q *request, in api.ApplyRequest) error {
		return cmp.Or(q.asBuilt(in.Building), q.overridden(in.Options), q.detached(in.Detach), q.ofFiles(in.Policy))
	})
}

// Check finds what is wrong with a policy.
func (s *server) Check(_ http.ResponseWriter, r *http.Request, _ string) {
	workedWith[api.CheckRequest](of(r), "check", nil)
}

// Diff compares a policy to the one that runs.
func (s *server) Diff(_ http.ResponseWriter, r *http.Request, _ string) {
	workedWith[api.DiffRequest](of(r), "diff", nil)
}

// Map says from which countries a service can be reached.
func (s *server) Map(_ http.ResponseWriter, r *http.Request, _ string) {
	workedWith(of(r), "map", func(_ *request, in api.MapRequest) error { return unnamed(in.Policy) })
}

// Reach says who reaches what.
func (s *server) Reach(_ http.ResponseWriter, r *http.Request, _ string) {
	workedWith(of(r), "reach", func(_ *request, in api.ReachRequest) error { return unnamed(in.Policy) })
}

// Facts says what the host is.
func (s *server) Facts(_ http.ResponseWriter, r *http.Request, _ string) { of(r).worked("facts", nil) }

// Doctor finds what is wrong with the host.
func (s *server) Doctor(_ http.ResponseWriter, r *http.Request, _ string) {
	workedWith[api.DoctorRequest](of(r), "doctor", nil)
}

// Explain says what the running policy does with a packet.
func (s *server) Explain(_ http.ResponseWriter, r *http.Request, _ string) {
	workedWith[api.ExplainRequest](of(r), "explain", nil)
}

// Entries lists and counts entries of the connection table.
func (s *server) Entries(_ http.ResponseWriter, r *http.Request, _ string) {
	workedWith[engine.EntryQuestion](of(r), "entries", nil)
}

// Top looks at the host until the caller hangs up.
func (s *server) Top(_ http.ResponseWriter, r *http.Request, _ string) {
	workedWith(of(r), "top", func(q *request, _ engine.TopQuestion) error {
		if !api.WantsLines(r) {
			return refused(api.BadRequest, "samples are given only in lines (Accept: %s)", api.Lines)
		}
		return nil
	})
}

// DeleteEntries deletes entries of the connection table.
func (s *server) DeleteEntries(_ http.ResponseWriter, r *http.Request, _ string) {
	workedWith[engine.EntryChoice](of(r), "deleteEntries", nil)
}

// PlanTable says how the connection table should be.
func (s *server) PlanTable(_ http.ResponseWriter, r *http.Request, _ string) {
	workedWith[engine.TableWish](of(r), "planTable", nil)
}

// Tune sets settings of the kernel beside any policy.
func (s *server) Tune(_ http.ResponseWriter, r *http.Request, _ string) {
	workedWith(of(r), "tune", func(q *request, in apply.Tuning) error {
		return q.overridden(api.ChangeOptions{Force: in.Force})
	})
}

// Untune takes them back.
func (s *server) Untune(_ http.ResponseWriter, r *http.Request, _ string) {
	workedWith(of(r), "untune", func(q *request, in apply.Untuning) error {
		return q.overridden(api.ChangeOptions{Force: in.Force})
	})
}

// Query says which packets it allows.
func (s *server) Query(_ http.ResponseWriter, r *http.Request, _ string) {
	workedWith[api.QueryRequest](of(r), "query", nil)
}

// Remove takes everything out of the kernel.
func (s *server) Remove(_ http.ResponseWriter, r *http.Request, _ string) {
	of(r).worked("remove", nil)
}

// Restore loads the confirmed policy.
func (s *server) Restore(_ http.ResponseWriter, r *http.Request, _ string) {
	of(r).worked("restore", nil)
}

// Refresh asks for lists.
func (s *server) Refresh(_ http.ResponseWriter, r *http.Request, _ string) {
	workedWith(of(r), "refresh", func(q *request, in api.RefreshRequest) error {
		return q.overridden(api.ChangeOptions{Force: in.Force})
	})
}

// UpdateCountries asks for country data.
func (s *server) UpdateCountries(_ http.ResponseWriter, r *http.Request, _ string) {
	q := of(r)
	in, err := sent[api.UpdateCountriesRequest](q)
	switch {
	case err != nil:
	case q.peer.UID != 0 && (len(in.From) > 0 || in.Sha256 != "" || in.Date != "" || in.Force):
		err = onlyRoot("may name of whom country data are taken, and on which terms")
	case slices.ContainsFunc(in.From, func(from string) bool { return !geo.Lasts(from) }):
		err = refused(api.BadRequest, "country data are taken from publishers and URLs, not from files")
	case len(in.From) == 0:
		in.From = s.publishers
	}
	if err != nil {
		q.answer(q.w, r).End(nil, err)
		return
	}
	q.worked("updateCountries", in)
}

// UndoCountries goes back from what was updated.
func (s *server) UndoCountries(_ http.ResponseWriter, r *http.Request, _ string) {
	of(r).worked("undoCountries", nil)
}

// workedWith is worked with what was sent, unless it is refused.
func workedWith[T any](q *request, operation string, refuse func(*request, T) error) {
	in, err := sent[T](q)
	if err == nil && refuse != nil {
		err = refuse(q, in)
	}
	if err != nil {
		q.answer(q.w, q.Request).End(nil, err)
		return
	}
	q.worked(operation, in)
}

// seen answers with what is recorded, for which nobody waits.
func seen[T any](q *request, read func(firewall) (T, error)) {
	answer := q.answer(q.w, q.Request)
	var out T
	err := q.at.Do(func() (err error) {
		out, err = read(q.wallFor(answer.Tell))
		return err
	})
	answer.End(out, work.Failed(err, q.Here, out))
}

// wallFor is the firewall as a command has it whose caller is told by tell.
func (q *request) wallFor(tell func(api.Line)) firewall {
	wall, h := *q.space.Host, *q.space.Host.Host
	wall.Host = &h
	h.Wait, h.Progress = 0, nil // who waits does so here, and not in everybody's way
	h.Words = func(err error) string { return words.Hinted(err, q.Here) }
	h.Note = func(text string) { tell(api.Line{Note: text}) }
	h.Shout = func(text string) { tell(api.Line{Shout: text}) }
	h.By, h.Session = q.by, q.session
	h.Restorer = q.restorer(q.by, q.session, tell)
	wall.Warn = func(text string) { tell(api.Line{Warning: text}) }
	return q.wall(wall)
}
