package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"sluice/internal/backend"
	"sluice/internal/compile"
	"sluice/internal/estimate"
	"sluice/internal/geo"
	"sluice/internal/host"
	"sluice/internal/lists"
	"sluice/internal/optimize"
	"sluice/internal/policy"
	"sluice/internal/program"
	"sluice/internal/resolve"
)

// pipeline is the way of a policy from its file to what a kernel runs, with
// everything that a command may want to show on the way.
type pipeline struct {
	options  options
	facts    host.Facts
	policy   *policy.Policy
	resolved *resolve.Resolved
	program  *program.Program
	warn     io.Writer // where an old copy of a list is told of; nil: nowhere
	offline  bool      // no list is fetched
	lists    *listsOnce
	geo      func() (*geo.Database, error)
	staging  *lists.Staging    // where lists come from instead, in a refresh
	without  []string          // passes of the optimizer that are left out
	profile  map[string]uint64 // packets that counters have counted; nil: rules stay in the policy's order
	explain  *explanation      // is told what the optimizer does
	costs    costs             // what is estimated by
	priced   bool              // packetCosts will be asked
	mix      []estimate.Class  // of the packets of the policy, with priced
	dump     *dumper
}

// readFacts takes the facts of a host from the file that "sluice facts --json"
// wrote, or describes this one.
func readFacts(ctx context.Context, file string, o options) (host.Facts, error) {
	if file == "" {
		facts, err := host.Describe(ctx)
		facts.Namespace = o.netns
		return facts, err
	}
	var facts host.Facts
	data, err := os.ReadFile(file)
	if err != nil {
		return facts, err
	}
	if err := json.Unmarshal(data, &facts); err != nil {
		return facts, fmt.Errorf("%s: no facts of a host: %w\nhint: write them there with sluice facts --json", file, err)
	}
	return facts, nil
}

// resolve reads the policy, unless it is read already, and resolves its names.
func (p *pipeline) resolve(ctx context.Context, file string) error {
	var err error
	if p.policy == nil {
		if p.policy, err = policy.Load(file); err != nil {
			return err
		}
	}
	p.resolved, err = resolve.Resolve(p.policy, p.sources(ctx))
	return err
}

// sources is where the names of a policy are resolved from.
func (p *pipeline) sources(ctx context.Context) resolve.Options {
	if p.lists == nil {
		p.lists = &listsOnce{store: lists.Store{
			Dir: filepath.Join(p.options.stateDir, "lists"), Context: ctx, Offline: p.offline,
			Warn: func(text string) {
				if p.warn != nil {
					warn(p.warn, text)
				}
			},
		}}
	}
	if p.geo == nil {
		p.geo = sync.OnceValues(func() (*geo.Database, error) { return geo.Open(p.options.stateDir) })
	}
	out := resolve.Options{
		Facts: p.facts,
		Geo:   p.geo,
		Lists: p.lists,
	}
	if p.staging != nil {
		out.Lists = p.staging
	}
	return out
}

// listsOnce asks for each list once: who asks again gets the copy, and no second
// warning that it is old.
type listsOnce struct {
	store lists.Store
	asked map[string]bool
}

// Open gives the copy of a list.
func (l *listsOnce) Open(url string, refresh time.Duration) (io.ReadCloser, string, error) {
	store := l.store
	store.Offline = store.Offline || l.asked[url]
	text, name, err := store.Open(url, refresh)
	if err == nil {
		if l.asked == nil {
			l.asked = map[string]bool{}
		}
		l.asked[url] = true
	}
	return text, name, err
}

// compile makes the program of what was resolved, for a host that can do so
// much.
func (p *pipeline) compile(can backend.Capabilities) error {
	var err error
	if p.program, err = compile.Compile(p.resolved); err != nil {
		return err
	}
	opt := optimize.Options{
		Without: p.without, Profile: p.profile, NoElementCounters: can[backend.SetElementCounters] == backend.No,
	}
	if p.priced {
		p.mix = estimate.MixOf(p.program, p.profile)
	}
	if p.explain != nil {
		p.explain.explain(p.program, &opt)
	}
	if p.dump != nil {
		p.dump.write("compiled", p.program)
		opt.After = p.dump.write
	}
	if err := optimize.Run(p.program, opt); err != nil {
		return err
	}
	if p.dump != nil {
		return p.dump.err
	}
	return nil
}

// lower makes the artifact of the program for a backend on a host that can do
// so much.
func (p *pipeline) lower(b backend.Backend, can backend.Capabilities) (backend.Artifact, error) {
	return b.Lower(p.program, can)
}
