package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"sluice/internal/backend"
	"sluice/internal/cli/command"
	"sluice/internal/engine/apply"
	"sluice/internal/engine/build"
	"sluice/internal/language/geo"
	"sluice/internal/language/lists"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/program/optimize"
	"sluice/internal/prove/estimate"
	"sluice/internal/system/host"
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
	runs     *apply.Generation // of which the policy is; nil: it is a file's
}

// readFacts takes the facts of a host from the file that "sluice facts --json"
// wrote, or describes this one.
func readFacts(ctx context.Context, file string, o options) (host.Facts, error) {
	if file == "" {
		facts, err := host.Describe(ctx)
		facts.Namespace = o.netns
		if dir, wrong := apply.Dir(o.stateDir, o.netns); wrong == nil && err == nil && len(facts.DefaultRoute) == 0 {
			facts.DefaultRoute = apply.LastRoute(dir)
		}
		return facts, err
	}
	var facts host.Facts
	data, err := command.ReadFile(file)
	if err != nil {
		return facts, err
	}
	if err := json.Unmarshal(data, &facts); err != nil {
		return facts, fmt.Errorf("%s: no facts of a host: %w\nhint: write them there with sluice facts --json", file, err)
	}
	if facts.Version > host.FactsVersion {
		return facts, fmt.Errorf("%s: facts of version %d, this sluice reads those up to %d\nhint: write them there with this version of sluice facts --json", file, facts.Version, host.FactsVersion)
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
	if p.resolved, err = resolve.Resolve(p.policy, p.sources(ctx)); err == nil {
		p.tellChanged()
	}
	return err
}

// sources is where the names of a policy are resolved from.
func (p *pipeline) sources(ctx context.Context) resolve.Options {
	if p.lists == nil {
		p.lists = &listsOnce{store: lists.Store{
			Dir: filepath.Join(p.options.stateDir, "lists"), Context: ctx, Offline: p.offline,
			Child: fetchRanges, Warn: p.told, Unconfined: once(p.told),
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

// told is a warning on the way.
func (p *pipeline) told(text string) {
	if p.warn != nil {
		warn(p.warn, text)
	}
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

// building is how what was resolved is built for a host that can do so much.
func (p *pipeline) building(can backend.Capabilities) build.Options {
	return build.Options{Can: can, Without: p.without, Profile: p.profile, Compiled: p.compiled}
}

// build makes what a kernel runs of what was resolved.
func (p *pipeline) build(b backend.Backend, can backend.Capabilities) (*build.Built, error) {
	built, err := build.Build(p.resolved, b, p.building(can))
	if err != nil {
		return nil, err
	}
	if p.dump != nil && p.dump.err != nil {
		return nil, p.dump.err
	}
	p.program = built.Program
	return built, nil
}

// compiled lets those look that want to see what the optimizer does.
func (p *pipeline) compiled(compiled *program.Program, opt *optimize.Options) (*program.Program, error) {
	if p.priced {
		p.mix = estimate.MixOf(compiled, p.profile)
	}
	if p.explain != nil {
		p.explain.explain(compiled, opt)
	}
	if p.dump != nil {
		p.dump.write("compiled", compiled)
		opt.After = p.dump.write
	}
	return compiled, nil
}
