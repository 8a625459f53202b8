// Package work does one operation of the local API in a process of its own, whose memory
// goes with it, and which holds the firewall's lock in place of the agent: Run is for
// the agent, and Order.Do for that process. Callers: the agent, cli.
package work

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sluice/internal/agent/api"
	"sluice/internal/agent/client"
	"sluice/internal/base/addrset"
	"sluice/internal/base/view"
	"sluice/internal/doctor"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/language/bans"
	"sluice/internal/program"
	"sluice/internal/prove/explain"
	"sluice/internal/prove/query"
	"sluice/internal/system/host"
	"sluice/internal/words"
)

// Order is what such a process has to do, and for whom.
type Order struct {
	Operation string          `json:"operation"` // its operationId
	Request   json.RawMessage `json:"request,omitempty"`
	Wait      time.Duration   `json:"wait"` // for another change
	Beside    bool            `json:"beside,omitempty"`
	By        apply.Author    `json:"by"`
	Session   *host.SSHClient `json:"session,omitempty"`
	// Folder is the one that the caller may name files in; "" is any.
	Folder string `json:"folder,omitempty"`
	// Reader is the caller where he may only read: he has no file read that is closed to him.
	Reader *view.Reader `json:"reader,omitempty"`
	// Root is the caller's root folder, of what names files; nil is that of the process.
	Root *os.File `json:"-"`
	// Bounded says that the process may take no more than who is not root is given.
	Bounded bool `json:"bounded,omitempty"`
	// Seen is where looks go of "top".
	Seen func(*engine.Top) `json:"-"`
	// Files says to the process that Root is its descriptor 3.
	Files bool `json:"files,omitempty"`
}

// AllowFleet is the operation by which the agent lets in whom the fleet does; nobody asks for it
// from outside.
const AllowFleet = "allowFleet"

// Host is what does it: a Door, and what no command asks an agent for.
type Host interface {
	client.Door
	Check(ctx context.Context, r engine.Request) (*engine.Checked, error)
	Diff(ctx context.Context, r engine.Request) (*query.Report, error)
	Map(ctx context.Context, r *engine.Request, w query.Words) (*query.Map, error)
	Reach(ctx context.Context, r *engine.Request, service string) (*query.Matrix, error)
	Facts(ctx context.Context) (*host.Facts, error)
	Doctor(ctx context.Context, window time.Duration) (*doctor.Report, error)
}

// doctorTime is for how long the doctor counts rates.
const doctorTime = 2 * time.Second

// Do does it. The process is there for nothing else: it goes to the caller's directory.
func (o Order) Do(ctx context.Context, d Host) (any, error) {
	switch o.Operation {
	case "status":
		return with(o, func(in api.StatusParams) (any, error) { return d.Status(ctx, !in.Fast) })
	case "gauges":
		return d.Gauges()
	case "verify":
		return with(o, func(in api.VerifyRequest) (any, error) { return d.Verify(ctx, nil, in.Own) })
	case "bans":
		return d.Bans(ctx)
	case "ban":
		return with(o, func(in api.BanRequest) (any, error) {
			asked, err := Banning(in)
			if err != nil {
				return nil, err
			}
			return d.Ban(ctx, asked)
		})
	case "pastBans":
		return d.PastBans()
	case "allows":
		return d.Allows(ctx)
	case "allow":
		return with(o, func(in Allowing) (any, error) {
			what, err := addrset.ParseRange(in.What)
			if err != nil {
				return nil, err
			}
			return d.Allow(ctx, engine.Allowing{What: what, Service: in.Service, For: time.Duration(in.For * float64(time.Second)), OverBan: in.OverBan, Bounded: in.Bounded})
		})
	case "disallow":
		return with(o, func(in api.DisallowRequest) (any, error) {
			what, err := addrset.ParseRange(in.What)
			if err != nil {
				return nil, err
			}
			return d.Disallow(ctx, engine.Allowing{What: what, Service: in.Service, Force: in.Force})
		})
	case AllowFleet:
		return with(o, func(in engine.FleetAllowing) (any, error) {
			h, is := d.(interface {
				AllowFleet(ctx context.Context, in engine.FleetAllowing) (*engine.FleetAllowed, error)
			})
			if !is {
				return nil, fmt.Errorf("%T lets nobody in for a fleet", d)
			}
			return h.AllowFleet(ctx, in)
		})
	case "livingSets":
		return d.LivingSets(ctx)
	case "addToSet":
		return with(o, func(in api.SetRequest) (any, error) {
			edit, err := SetEdit(in)
			if err != nil {
				return nil, err
			}
			return d.AddToSet(ctx, edit)
		})
	case "removeFromSet":
		return with(o, func(in api.SetRequest) (any, error) {
			edit, err := SetEdit(in)
			if err != nil {
				return nil, err
			}
			return d.RemoveFromSet(ctx, edit)
		})
	case "apply":
		return with(o, func(in Applying) (any, error) {
			return o.built(in.Policy, in.Building, func(r engine.Request) (any, error) {
				r.Detach, r.NoMeaning = in.Detach, in.NoMeaning
				options := optionsOf(in.Options)
				options.KeepEdits = in.KeepEdits
				return d.Apply(ctx, r, options)
			})
		})
	case "plan":
		return with(o, func(in api.PlanRequest) (any, error) {
			return o.built(in.Policy, in.Building, func(r engine.Request) (any, error) { return d.Plan(ctx, r) })
		})
	case "check":
		return with(o, func(in api.CheckRequest) (any, error) {
			return o.built(in.Policy, api.Building{}, func(r engine.Request) (any, error) { return d.Check(ctx, r) })
		})
	case "diff":
		return with(o, func(in api.DiffRequest) (any, error) {
			return o.built(in.Policy, api.Building{}, func(r engine.Request) (any, error) { return d.Diff(ctx, r) })
		})
	case "map":
		return with(o, func(in api.MapRequest) (any, error) {
			w := query.Words{Service: in.Service, Hook: string(in.Hook), To: in.To}
			return o.meant(in.Policy, func(r *engine.Request) (any, error) { return d.Map(ctx, r, w) })
		})
	case "reach":
		return with(o, func(in api.ReachRequest) (any, error) {
			return o.meant(in.Policy, func(r *engine.Request) (any, error) { return d.Reach(ctx, r, in.Service) })
		})
	case "facts":
		return d.Facts(ctx)
	case "doctor":
		return d.Doctor(ctx, doctorTime)
	case "explain":
		return with(o, func(in api.ExplainRequest) (any, error) {
			return d.Explain(ctx, engine.Explaining{Live: in.Live, Question: explain.Question{
				Protocol: in.Protocol, Source: in.Source, Destination: in.Destination, SourcePort: in.SourcePort, Port: in.Port, In: in.In, Out: in.Out,
				ICMPType: in.ICMPType, Flags: in.Flags, User: in.User, Hook: in.Hook, State: in.State, Mark: in.Mark,
			}})
		})
	case "query":
		return with(o, func(in api.QueryRequest) (any, error) {
			states, err := query.States(strings.Join(in.States, ","))
			if len(in.States) == 0 {
				states, err = query.States("new")
			}
			if err != nil {
				return nil, &api.Failure{Text: err.Error(), Exit: 2, Kind: api.BadRequest}
			}
			q := engine.Querying{Words: query.Words{Service: in.Service, From: in.From, To: in.To, In: in.In, Out: in.Out, Hook: string(in.Hook), States: states}}
			for _, v := range in.Verdicts {
				q.Verdicts = append(q.Verdicts, program.Verdict(v))
			}
			return d.Query(ctx, q)
		})
	case "entries":
		return with(o, func(in engine.EntryQuestion) (any, error) { return d.Entries(ctx, in) })
	case "top":
		return with(o, func(in engine.TopQuestion) (any, error) { return d.Top(ctx, in, o.Seen) })
	case "deleteEntries":
		return with(o, func(in engine.EntryChoice) (any, error) { return d.DeleteEntries(ctx, in) })
	case "planTable":
		return with(o, func(in engine.TableWish) (any, error) { return d.PlanTable(ctx, in) })
	case "tune":
		return with(o, func(in apply.Tuning) (any, error) { return d.Tune(ctx, in) })
	case "untune":
		return with(o, func(in apply.Untuning) (any, error) { return d.Untune(ctx, in) })
	case "remove":
		return d.Remove(ctx)
	case "restore":
		return with(o, func(in Restoring) (any, error) {
			return d.Restore(ctx, apply.Restoring{SSHPorts: apply.SSHPorts(), Waiting: in.Waiting})
		})
	case "refresh":
		return with(o, func(in api.RefreshRequest) (any, error) {
			return d.Refresh(ctx, engine.Refreshing{Sets: in.Sets, Countries: in.Countries, DryRun: in.DryRun, AllowCut: in.AllowCut, Force: in.Force})
		})
	case "takeLists": // of a fleet, by the agent alone
		return with(o, func(in engine.Refreshing) (any, error) { return d.Refresh(ctx, in) })
	case "confirm":
		n, err := d.Confirm(ctx)
		if err != nil {
			return nil, err
		}
		return &apply.Outcome{Generation: n}, nil
	case "rollback":
		return with(o, func(in api.RollbackRequest) (any, error) {
			n := apply.Before
			if in.Generation != 0 {
				n = in.Generation
			}
			return d.Rollback(ctx, n, optionsOf(in.Options))
		})
	case "updateCountries":
		return with(o, func(in api.UpdateCountriesRequest) (any, error) {
			asked := engine.UpdatingCountries{From: in.From, SHA256: in.Sha256, Force: in.Force}
			if in.Date != "" {
				var err error
				if asked.Date, err = time.Parse(time.DateOnly, in.Date); err != nil {
					return nil, &api.Failure{Text: fmt.Sprintf("%.40q is not a date such as 2026-06-01", in.Date), Exit: 2, Kind: api.BadRequest}
				}
			}
			return d.UpdateCountries(ctx, asked)
		})
	case "undoCountries":
		return d.UndoCountries(ctx)
	}
	return nil, &api.Failure{Text: fmt.Sprintf("there is no operation %q", o.Operation), Exit: 2, Kind: api.NotServed}
}

// Banning is what a request asks to be banned.
func Banning(in api.BanRequest) (apply.Banning, error) {
	out := apply.Banning{For: time.Duration(in.For * float64(time.Second)), Force: in.Force, KeepLonger: in.KeepLonger, List: make([]bans.Named, len(in.Bans))}
	for i, b := range in.Bans {
		n, err := Named(b.What)
		if err != nil {
			return out, err
		}
		n.For = time.Duration(b.For * float64(time.Second))
		n.Reason = bans.Reason(b.Reason)
		out.List[i] = n
	}
	return out, nil
}

// Named is what a request names that is banned, or to be.
func Named(text string) (bans.Named, error) {
	n, err := bans.ParseNamed(text)
	if err != nil {
		return n, &api.Failure{Text: err.Error(), Exit: 2, Kind: api.BadRequest}
	}
	return n, nil
}

// SetEdit is what a request asks of a living set.
func SetEdit(in api.SetRequest) (engine.SetEdit, error) {
	out := engine.SetEdit{Set: in.Set, What: make([]addrset.Range, len(in.What)), For: time.Duration(in.For * float64(time.Second)), Force: in.Force}
	for i, text := range in.What {
		var err error
		if out.What[i], err = addrset.ParseRange(text); err != nil {
			return out, &api.Failure{Text: err.Error(), Exit: 2, Kind: api.BadRequest}
		}
	}
	return out, nil
}

// with reads the request, which may be empty.
func with[T any](o Order, do func(T) (any, error)) (any, error) {
	var in T
	if len(o.Request) > 0 {
		if err := json.Unmarshal(o.Request, &in); err != nil {
			return nil, err
		}
	}
	return do(in)
}

// Applying is the request of "apply", with what nobody asks for from outside.
type Applying struct {
	api.ApplyRequest
	NoMeaning bool `json:"noMeaning,omitempty"` // as engine.Request has it
	KeepEdits bool `json:"keepEdits,omitempty"` // as apply.Options has it
}

// Allowing is the request of "allow".
type Allowing struct {
	api.AllowRequest
	Bounded bool `json:"bounded,omitempty"` // who asks is not root; nobody says so from outside
}

// Restoring is the request of "restore".
type Restoring struct {
	Waiting bool `json:"waiting,omitempty"` // as apply.Restoring has it; nobody asks for it from outside
}

// orders are those of rules, by their words; "" is as the running policy has them.
var orders = map[api.BuildingOrder]engine.Order{api.Running: engine.ByRunning, api.Hits: engine.ByHits, api.Written: engine.AsWritten}

// built has something done with a policy that the caller names. Where it, or something
// that it names, is another file for the caller than here, nothing is done.
func (o Order) built(p api.PolicyFile, b api.Building, do func(engine.Request) (any, error)) (any, error) {
	r := engine.Request{File: p.File, Draft: p.Draft, DraftOf: p.DraftOf, Without: b.Without, Order: orders[b.Order], Hits: b.Hits, NoExpect: b.NoExpect}
	if len(p.Texts) > 0 {
		if p.Draft != "" {
			return nil, &api.Failure{Text: "texts and draft exclude each other", Exit: 2, Kind: api.BadRequest}
		}
		r.Texts = map[string][]byte{}
		for name, text := range p.Texts {
			r.Texts[name] = []byte(text)
		}
		r.Offline = o.Folder != "" // he names no URL for the agent to ask
	}
	files, err := o.files(p.Directory)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	r.Files = files
	out, err := do(r)
	if err != nil && o.Folder == "" && files.Left() {
		return nil, errOtherFiles
	}
	return out, err
}

// meant has something said of a policy that the caller names, or of the one that runs.
func (o Order) meant(p api.PolicyFile, do func(*engine.Request) (any, error)) (any, error) {
	if p.File == "" {
		return do(nil)
	}
	return o.built(p, api.Building{}, func(r engine.Request) (any, error) { return do(&r) })
}

var errOtherFiles = &api.Failure{Text: "the caller has other files below the same names than the agent", Exit: 2, Kind: api.OtherFiles}

// files are those that the caller may name, as he sees them, from his directory on.
func (o Order) files(directory string) (*view.View, error) {
	var err error
	if directory == "" {
		directory, err = os.Getwd()
	} else if !filepath.IsAbs(directory) {
		err = &api.Failure{Text: fmt.Sprintf("the directory %q is not absolute", directory), Exit: 2, Kind: api.BadRequest}
	}
	if err == nil && o.Root == nil {
		o.Root, err = os.Open("/")
	}
	if err != nil {
		return nil, err
	}
	theirs := view.Of(o.Root, directory)
	if o.Folder == "" {
		for _, name := range []string{"/", directory} {
			if same, err := theirs.Same(name); err != nil || !same {
				return nil, errOtherFiles
			}
		}
		return theirs, goTo(directory, directory)
	}
	if same, err := theirs.Same(o.Folder); err != nil || !same {
		return nil, errOtherFiles
	}
	files, err := view.In(o.Folder, directory, "agent.yaml", o.Reader) // which may have the secret of a webhook
	if err != nil {
		return nil, err
	}
	if at, err := files.Open(directory); err == nil { // else no name is relative to it
		defer at.Close()
		return files, goTo(fmt.Sprint("/proc/self/fd/", at.Fd()), directory)
	}
	return files, nil
}

// goTo goes to a folder that is known by a name.
func goTo(folder, name string) error {
	if err := os.Chdir(folder); err != nil {
		return err
	}
	return os.Setenv("PWD", name)
}

func optionsOf(in api.ChangeOptions) apply.Options {
	return apply.Options{Confirm: time.Duration(in.Confirm * float64(time.Second)), Keep: in.Keep, Force: in.Force, Verify: !in.NoVerify, Cut: in.Cut}
}

// Failed is an error as the API has it, in the words of the commands. Here is the flags
// that lead a command to the host, and done is what was done before, or nil.
func Failed(err error, here string, done any) error {
	var f *api.Failure
	if err == nil || errors.As(err, &f) {
		return err
	}
	f = &api.Failure{}
	f.Text, f.Exit = words.Ended(err, here)
	if busy := (*apply.BusyError)(nil); errors.As(err, &busy) {
		f.Kind = api.Busy
	} else if errors.Is(err, apply.ErrNoPolicy) {
		f.Kind = api.NoPolicy
	}
	if result, err := json.Marshal(done); err == nil && string(result) != "null" {
		f.Result = result
	}
	return f
}

// endTime is how long a process may take to undo what it has begun, once the context ends.
const endTime = time.Minute

// questions are the operations that have nothing to undo.
var questions = map[string]bool{"check": true, "diff": true, "map": true, "reach": true, "query": true, "facts": true}

// Run has a process do an order, and passes on what it tells. Command is the program with
// the flags that lead it to the host. When the context ends the process is asked to end,
// as by Ctrl-C, or killed where it has nothing to undo.
func Run(ctx context.Context, command []string, o Order, told func(api.Line)) (json.RawMessage, error) {
	o.Files = o.Root != nil
	order, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, command[0], append(command[1:len(command):len(command)], "work")...)
	if !questions[o.Operation] {
		c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	}
	c.WaitDelay = endTime
	c.Stdin, c.Stderr = bytes.NewReader(order), os.Stderr
	if o.Files {
		c.ExtraFiles = []*os.File{o.Root}
	}
	lines, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	result, err := api.ReadLines(lines, told)
	ended := c.Wait()
	if errors.Is(err, api.ErrEnded) && ended != nil && o.Bounded && ctx.Err() == nil {
		err = tooMuch(ended)
	} else if errors.Is(err, api.ErrEnded) && ended != nil {
		err = &api.Failure{Text: fmt.Sprintf("what the agent started for this ended: %v; sluice status shows what is in force", ended), Exit: 2}
	}
	return result, err
}
