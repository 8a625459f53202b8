package work

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"sluice/internal/agent/api"
	"sluice/internal/agent/client"
	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/doctor"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/language/bans"
	"sluice/internal/language/geo"
	"sluice/internal/program"
	"sluice/internal/prove/explain"
	"sluice/internal/prove/query"
	"sluice/internal/system/host"
)

// door keeps what it is asked.
type door struct {
	client.Door
	asked []any
}

func (d *door) Status(_ context.Context, contents bool) (*apply.Status, error) {
	d.asked = []any{contents}
	return &apply.Status{}, nil
}

func (d *door) Verify(_ context.Context, s *engine.Subject, own bool) (*engine.Verified, error) {
	d.asked = []any{s == nil, own}
	return &engine.Verified{Verified: &apply.Verified{}}, nil
}

func (d *door) Bans(context.Context) ([]apply.BanEntry, error) {
	d.asked = []any{}
	return []apply.BanEntry{}, nil
}

func (d *door) Ban(_ context.Context, in apply.Banning) (*apply.Banned, error) {
	d.asked = []any{in}
	return &apply.Banned{}, nil
}

func (d *door) PastBans() ([]apply.PastBan, error) {
	d.asked = []any{}
	return []apply.PastBan{}, nil
}

func (d *door) Apply(_ context.Context, r engine.Request, o apply.Options) (*apply.Outcome, error) {
	d.asked = []any{disked(r), o}
	return &apply.Outcome{}, nil
}

func (d *door) Plan(_ context.Context, r engine.Request) (*engine.Plan, error) {
	d.asked = []any{disked(r)}
	return &engine.Plan{}, nil
}

func (d *door) Check(_ context.Context, r engine.Request) (*engine.Checked, error) {
	d.asked = []any{disked(r)}
	return &engine.Checked{}, nil
}

func (d *door) Diff(_ context.Context, r engine.Request) (*query.Report, error) {
	d.asked = []any{disked(r)}
	return &query.Report{}, nil
}

func (d *door) Map(_ context.Context, r *engine.Request, w query.Words) (*query.Map, error) {
	d.asked = []any{disk(r), w}
	return &query.Map{}, nil
}

func (d *door) Reach(_ context.Context, r *engine.Request, service string) (*query.Matrix, error) {
	d.asked = []any{disk(r), service}
	return &query.Matrix{}, nil
}

func (d *door) Facts(context.Context) (*host.Facts, error) {
	d.asked = []any{}
	return &host.Facts{}, nil
}

func (d *door) Doctor(_ context.Context, window time.Duration) (*doctor.Report, error) {
	d.asked = []any{window}
	return &doctor.Report{}, nil
}

func disk(r *engine.Request) *engine.Request {
	if r != nil {
		r.Files = nil
	}
	return r
}

// disked is a request without where its files are.
func disked(r engine.Request) engine.Request {
	r.Files = nil
	return r
}

func (d *door) Explain(_ context.Context, q engine.Explaining) (*engine.Explained, error) {
	d.asked = []any{q}
	return &engine.Explained{}, nil
}

func (d *door) Query(_ context.Context, q engine.Querying) (*engine.Queried, error) {
	d.asked = []any{q}
	return &engine.Queried{}, nil
}

func (d *door) Entries(_ context.Context, q engine.EntryQuestion) (*engine.EntryAnswer, error) {
	d.asked = []any{q}
	return &engine.EntryAnswer{}, nil
}

func (d *door) DeleteEntries(_ context.Context, c engine.EntryChoice) (*engine.DeletedEntries, error) {
	d.asked = []any{c}
	return &engine.DeletedEntries{}, nil
}

func (d *door) Top(_ context.Context, q engine.TopQuestion, seen func(*engine.Top)) (*engine.TopAnswer, error) {
	d.asked = []any{q}
	seen(&engine.Top{Generation: 7})
	return &engine.TopAnswer{}, nil
}

func (d *door) PlanTable(_ context.Context, w engine.TableWish) (*engine.TablePlan, error) {
	d.asked = []any{w}
	return &engine.TablePlan{}, nil
}

func (d *door) Tune(_ context.Context, in apply.Tuning) (*apply.Tuned, error) {
	d.asked = []any{in}
	return &apply.Tuned{}, nil
}

func (d *door) Untune(_ context.Context, u apply.Untuning) (*apply.Tuned, error) {
	d.asked = []any{u}
	return &apply.Tuned{}, nil
}

func (d *door) Remove(context.Context) (*apply.Outcome, error) {
	d.asked = []any{}
	return &apply.Outcome{}, nil
}

func (d *door) Restore(_ context.Context, r apply.Restoring) (*apply.Outcome, error) {
	d.asked = []any{r.Waiting}
	return &apply.Outcome{}, nil
}

func (d *door) Refresh(_ context.Context, in engine.Refreshing) (*engine.Refreshed, error) {
	d.asked = []any{in}
	return &engine.Refreshed{}, nil
}

func (d *door) UpdateCountries(_ context.Context, in engine.UpdatingCountries) (*geo.UpdateResult, error) {
	d.asked = []any{in}
	return &geo.UpdateResult{}, nil
}

func (d *door) UndoCountries(context.Context) (*geo.UpdateResult, error) {
	d.asked = []any{}
	return &geo.UpdateResult{}, nil
}

func (d *door) Confirm(context.Context) (int, error) {
	d.asked = []any{}
	return 3, nil
}

func (d *door) Allows(context.Context) ([]engine.AllowEntry, error) {
	d.asked = []any{}
	return nil, nil
}

func (d *door) Allow(_ context.Context, in engine.Allowing) (*engine.Allowed, error) {
	d.asked = []any{in}
	return &engine.Allowed{}, nil
}

func (d *door) Disallow(_ context.Context, in engine.Allowing) (*engine.Allowed, error) {
	d.asked = []any{in}
	return &engine.Allowed{}, nil
}

func (d *door) LivingSets(context.Context) ([]engine.LivingSet, error) {
	d.asked = []any{}
	return nil, nil
}

func (d *door) AddToSet(_ context.Context, in engine.SetEdit) (*engine.SetEdited, error) {
	d.asked = []any{in}
	return &engine.SetEdited{}, nil
}

func (d *door) RemoveFromSet(_ context.Context, in engine.SetEdit) (*engine.SetEdited, error) {
	d.asked = []any{in}
	return &engine.SetEdited{}, nil
}

func (d *door) Rollback(_ context.Context, n int, o apply.Options) (*apply.Outcome, error) {
	d.asked = []any{n, o}
	return &apply.Outcome{}, nil
}

// What a command asks of a client, the process is asked to do.
func TestDo(t *testing.T) {
	t.Chdir(t.TempDir())
	operations := map[string]string{
		"GET /v1/namespaces/-/status": "status", "POST /v1/namespaces/-/verify": "verify", "GET /v1/namespaces/-/bans": "bans", "GET /v1/namespaces/-/bans/past": "pastBans", "POST /v1/namespaces/-/bans": "ban",
		"POST /v1/namespaces/-/apply": "apply", "POST /v1/namespaces/-/confirm": "confirm", "POST /v1/namespaces/-/rollback": "rollback",
		"POST /v1/namespaces/-/plan": "plan", "POST /v1/namespaces/-/remove": "remove", "POST /v1/namespaces/-/explain": "explain", "POST /v1/namespaces/-/query": "query", "POST /v1/namespaces/-/restore": "restore", "POST /v1/namespaces/-/refresh": "refresh",
		"GET /v1/namespaces/-/allows": "allows", "POST /v1/namespaces/-/allows": "allow", "POST /v1/namespaces/-/allows/lift": "disallow",
		"GET /v1/namespaces/-/sets": "livingSets", "POST /v1/namespaces/-/sets": "addToSet", "POST /v1/namespaces/-/sets/remove": "removeFromSet",
		"POST /v1/namespaces/-/entries": "entries", "POST /v1/namespaces/-/top": "top", "POST /v1/namespaces/-/entries/delete": "deleteEntries",
		"POST /v1/namespaces/-/tuning/plan": "planTable", "POST /v1/namespaces/-/tuning": "tune", "POST /v1/namespaces/-/tuning/revert": "untune",
		"POST /v1/namespaces/-/countries/update": "updateCountries", "POST /v1/namespaces/-/countries/undo": "undoCountries",
	}
	d := &door{}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Query().Get("fast") == "true" {
			body = []byte(`{"fast":true}`)
		}
		root, _ := os.Open("/")
		defer root.Close()
		answer := api.NewAnswer(w, r)
		result, err := Order{Operation: operations[r.Method+" "+r.URL.Path], Request: body, Root: root, Seen: answer.Top}.Do(r.Context(), d)
		answer.End(result, err)
	})}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	h := &client.Host{Socket: socket}
	ctx := context.Background()
	request := engine.Request{File: "p.yaml", Draft: ".p.1.yaml", DraftOf: "part.yaml", Without: []string{"merge"}, Order: engine.AsWritten, NoExpect: true}
	explaining := engine.Explaining{Live: true, Question: explain.Question{
		Protocol: "1", Source: "2", Destination: "3", SourcePort: "4", Port: "5", In: "6", Out: "7", ICMPType: "8", Flags: "9", User: "10", Hook: "11", State: "12", Mark: "13",
	}}
	querying := engine.Querying{
		Words:    query.Words{Service: "1", From: "2", To: "3", In: "4", Out: "5", Hook: "input", States: []packet.State{packet.Established}},
		Verdicts: []program.Verdict{program.Drop, program.Reject},
	}
	banning := apply.Banning{List: []bans.Named{{Country: "DE", Reason: "a"}, {What: addrset.PrefixRange(netip.MustParsePrefix("192.0.2.0/24"))}}, For: 90 * time.Second, Force: true}
	refresh := engine.Refreshing{Sets: []string{"a"}, Countries: true, DryRun: true, AllowCut: true, Force: true}
	countries := engine.UpdatingCountries{From: []string{"dbip", "own=https://example.net/a.csv"}, SHA256: "1", Date: time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC), Force: true}
	what := addrset.MustParseRange("192.0.2.0/24")
	allowing := engine.Allowing{What: what, Service: "ssh", For: 90 * time.Second, OverBan: true}
	disallowing := engine.Allowing{What: what, Service: "ssh", Force: true}
	adding := engine.SetEdit{Set: "shop", What: []addrset.Range{what}, For: 90 * time.Second}
	removing := engine.SetEdit{Set: "shop", What: []addrset.Range{what}, Force: true}
	entries := engine.EntryQuestion{EntryChoice: engine.EntryChoice{Source: "192.0.2.1", Destination: "192.0.2.0/24", Protocol: "tcp", Port: 443, State: "time-wait", Family: 4, NAT: true}, By: []string{"source"}, Most: 7}
	top := engine.TopQuestion{Every: 2 * time.Second, Once: true}
	wish := engine.TableWish{Expect: 20000, Max: 7, TimeWait: 30}
	tuning := apply.Tuning{For: "a", Settings: []apply.Setting{{Name: "b", Value: "c"}}, Confirm: 90 * time.Second, Persist: true, Force: true}
	options := apply.Options{Confirm: 90 * time.Second, Keep: true, Force: true, Verify: true, Cut: true}
	for name, c := range map[string]struct {
		ask  func() (any, error)
		want []any
	}{
		"status":          {func() (any, error) { return h.Status(ctx, true) }, []any{true}},
		"status, fast":    {func() (any, error) { return h.Status(ctx, false) }, []any{false}},
		"verify":          {func() (any, error) { return h.Verify(ctx, nil, true) }, []any{true, true}},
		"bans":            {func() (any, error) { return h.Bans(ctx) }, []any{}},
		"ban":             {func() (any, error) { return h.Ban(ctx, banning) }, []any{banning}},
		"past bans":       {func() (any, error) { return h.PastBans() }, []any{}},
		"allows":          {func() (any, error) { return h.Allows(ctx) }, []any{}},
		"allow":           {func() (any, error) { return h.Allow(ctx, allowing) }, []any{allowing}},
		"disallow":        {func() (any, error) { return h.Disallow(ctx, disallowing) }, []any{disallowing}},
		"sets":            {func() (any, error) { return h.LivingSets(ctx) }, []any{}},
		"add to set":      {func() (any, error) { return h.AddToSet(ctx, adding) }, []any{adding}},
		"remove from set": {func() (any, error) { return h.RemoveFromSet(ctx, removing) }, []any{removing}},
		"apply":           {func() (any, error) { return h.Apply(ctx, request, options) }, []any{request, options}},
		"apply, plain":    {func() (any, error) { return h.Apply(ctx, engine.Request{File: "q"}, apply.Options{}) }, []any{engine.Request{File: "q"}, apply.Options{}}},
		"plan":            {func() (any, error) { return h.Plan(ctx, request) }, []any{request}},
		"explain":         {func() (any, error) { return h.Explain(ctx, explaining) }, []any{explaining}},
		"query":           {func() (any, error) { return h.Query(ctx, querying) }, []any{querying}},
		"entries":         {func() (any, error) { return h.Entries(ctx, entries) }, []any{entries}},
		"delete entries":  {func() (any, error) { return h.DeleteEntries(ctx, entries.EntryChoice) }, []any{entries.EntryChoice}},
		"top": {func() (any, error) {
			var seen []int
			_, err := h.Top(ctx, top, func(t *engine.Top) { seen = append(seen, t.Generation) })
			d.asked = append(d.asked, seen)
			return nil, err
		}, []any{top, []int{7}}},
		"plan table":      {func() (any, error) { return h.PlanTable(ctx, wish) }, []any{wish}},
		"tune":            {func() (any, error) { return h.Tune(ctx, tuning) }, []any{tuning}},
		"untune":          {func() (any, error) { return h.Untune(ctx, apply.Untuning{For: "a", Force: true}) }, []any{apply.Untuning{For: "a", Force: true}}},
		"remove":          {func() (any, error) { return h.Remove(ctx) }, []any{}},
		"restore":         {func() (any, error) { return h.Restore(ctx, apply.Restoring{}) }, []any{false}},
		"refresh":         {func() (any, error) { return h.Refresh(ctx, refresh) }, []any{refresh}},
		"geo update":      {func() (any, error) { return h.UpdateCountries(ctx, countries) }, []any{countries}},
		"geo undo":        {func() (any, error) { return h.UndoCountries(ctx) }, []any{}},
		"confirm":         {func() (any, error) { return h.Confirm(ctx) }, []any{}},
		"rollback":        {func() (any, error) { return h.Rollback(ctx, 7, options) }, []any{7, options}},
		"rollback, plain": {func() (any, error) { return h.Rollback(ctx, apply.Before, options) }, []any{apply.Before, options}},
	} {
		d.asked = nil
		if _, err := c.ask(); err != nil || !reflect.DeepEqual(d.asked, c.want) {
			t.Errorf("%s: %v, asked %+v, want %+v", name, err, d.asked, c.want)
		}
	}
	if _, err := (Order{Operation: "format"}).Do(ctx, d); err == nil {
		t.Error("an operation that there is not was done")
	}
}

// What no command asks an agent for is done too.
func TestAnswers(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	policy := `"policy":{"file":"p.yaml","directory":"` + dir + `","texts":{"part.yaml":"a: 1"}}`
	edited := engine.Request{File: "p.yaml", Texts: map[string][]byte{"part.yaml": []byte("a: 1")}}
	offline := edited
	offline.Offline = true
	for _, c := range []struct {
		operation, request string
		folder             string
		want               []any
	}{
		{"check", "{" + policy + "}", "", []any{edited}},
		{"check", "{" + policy + "}", dir, []any{offline}},
		{"diff", "{" + policy + "}", "", []any{edited}},
		{"plan", "{" + policy + "}", dir, []any{offline}},
		{"map", `{"service":"ssh","hook":"forward","to":"lan"}`, dir, []any{(*engine.Request)(nil), query.Words{Service: "ssh", Hook: "forward", To: "lan"}}},
		{"facts", "", "", []any{}},
		{"reach", `{"service":"ssh"}`, dir, []any{(*engine.Request)(nil), "ssh"}},
		{"reach", "{" + policy + "}", "", []any{&edited, ""}},
		{"doctor", "{}", "", []any{doctorTime}},
		{"map", "{" + policy + "}", "", []any{&edited, query.Words{}}},
	} {
		d := &door{}
		root, err := os.Open("/")
		if err != nil {
			t.Fatal(err)
		}
		_, err = Order{Operation: c.operation, Request: json.RawMessage(c.request), Root: root, Folder: c.folder}.Do(t.Context(), d)
		if err != nil || !reflect.DeepEqual(d.asked, c.want) {
			t.Errorf("%s: %v, asked %+v, want %+v", c.operation, err, d.asked, c.want)
		}
	}
	both := `{"policy":{"file":"p.yaml","draft":"q.yaml","texts":{"p.yaml":""}}}`
	if _, err := (Order{Operation: "check", Request: json.RawMessage(both)}).Do(t.Context(), &door{}); err == nil {
		t.Error("of a draft and a text one was chosen")
	}
}

// A process that ends without an answer is told of, and one that answers is believed
// however it ends.
func TestRun(t *testing.T) {
	for script, want := range map[string]string{
		`echo '{"note":"a"}'; echo '{"result":[1]}'; exit 3`:                   `[1]`,
		`echo '{"failure":{"error":"x","exit-status":1}}'`:                     "x",
		`echo '{"note":"a"}'; kill -9 $$`:                                      "what the agent started for this ended: signal: killed; sluice status shows what is in force",
		`read o; case $o in *'"operation":"bans"'*) echo '{"result":2}'; esac`: "2",
	} {
		result, err := Run(context.Background(), []string{"/bin/sh", "-c", script}, Order{Operation: "bans"}, func(api.Line) {})
		got := string(result)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
}

// Who gave the order up has the process end as by Ctrl-C, and hears what came of it.
func TestRunInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	result, err := Run(ctx, []string{"/bin/sh", "-c", `trap 'echo "{\"result\":\"undone\"}"; exit' INT; echo '{"note":"begun"}'; while :; do sleep 0.1; done`},
		Order{}, func(api.Line) { cancel() })
	if err != nil || string(result) != `"undone"` {
		t.Errorf("%s %v", result, err)
	}
}

// What has nothing to undo is killed.
func TestQuestionGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	result, err := Run(ctx, []string{"/bin/sh", "-c", `trap 'echo "{\"result\":\"undone\"}"; exit' INT; echo '{"note":"begun"}'; while :; do sleep 0.1; done`},
		Order{Operation: "map"}, func(api.Line) { cancel() })
	if err == nil {
		t.Errorf("it went on: %s", result)
	}
}

// A failure has the words, the exit status and what was done.
func TestFailed(t *testing.T) {
	for _, c := range []struct {
		err  error
		done any
		want string
	}{
		{&apply.BusyError{Holder: "process 7"}, nil, `{"error":"` + (&apply.BusyError{Holder: "process 7"}).Error() + `\n  hint: wait for it, or raise --wait","exit-status":2,"kind":"busy"}`},
		{os.ErrClosed, &apply.Refused{What: "a", Why: "b"}, `{"error":"file already closed","exit-status":2,"result":{"what":"a","why":"b"}}`},
		{&api.Failure{Text: "x", Exit: 1}, 1, `{"error":"x","exit-status":1}`},
	} {
		var f *api.Failure
		if !errors.As(Failed(c.err, "", c.done), &f) {
			t.Fatalf("%v is no failure", c.err)
		}
		if got, _ := json.Marshal(f); string(got) != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
	if Failed(nil, "", nil) != nil {
		t.Error("what did not fail failed")
	}
}

// A policy is read where it is the same file for the caller, and nowhere else.
func TestOtherFiles(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"p.yaml", "sub/x", "sub/agent.yaml"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("agent.yaml", "sub/link"); err != nil {
		t.Fatal(err)
	}
	reads := func(root, folder, directory, file string) error {
		o := Order{Operation: "plan", Folder: folder}
		o.Request, _ = json.Marshal(api.PlanRequest{Policy: api.PolicyFile{File: file, Directory: directory}})
		o.Root, _ = os.Open(root)
		_, err := o.Do(t.Context(), reader{})
		return err
	}
	for name, c := range map[string]struct {
		root, folder, directory, file string
		kind                          api.Kind
		ends                          bool
	}{
		"the same":             {"/", "", dir, "p.yaml", "", false},
		"below":                {"/", "", dir + "/sub", "../p.yaml", "", false},
		"another root":         {dir, "", "/", "/p.yaml", api.OtherFiles, true},
		"a folder of his own":  {"/", "", dir + "/none", dir + "/p.yaml", "", true},
		"each has his own":     {"/", "", dir, "/proc/self/cwd/p.yaml", api.OtherFiles, true},
		"relative":             {"/", "", "sub", "x", api.BadRequest, true},
		"in the folder":        {"/", dir + "/sub", dir + "/sub", "x", "", false},
		"by its whole name":    {"/", dir + "/sub", "/", dir + "/sub/x", "", false},
		"the agent's own":      {"/", dir + "/sub", dir + "/sub", "agent.yaml", "", true},
		"by a link":            {"/", dir + "/sub", dir + "/sub", "link", "", true},
		"the agent's, by root": {"/", "", dir + "/sub", "agent.yaml", "", false},
		"outside":              {"/", dir + "/sub", dir + "/sub", "../p.yaml", "", true},
		"in another's of them": {dir, dir + "/sub", "/", dir + "/sub/x", api.OtherFiles, true},
	} {
		err := reads(c.root, c.folder, c.directory, c.file)
		var f *api.Failure
		if (err != nil) != c.ends || errors.As(err, &f) && f.Kind != c.kind || c.kind != "" && f == nil {
			t.Errorf("%s: %v", name, err)
		}
		t.Chdir(dir)
	}
}

// reader opens a policy and does nothing else.
type reader struct{ Host }

func (reader) Plan(_ context.Context, r engine.Request) (*engine.Plan, error) {
	f, err := r.Files.Open(r.File)
	if err == nil {
		err = f.Close()
	}
	return &engine.Plan{}, err
}
