package applybench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/backend/nftables/calibration"
	"sluice/internal/base/addrset"
	"sluice/internal/base/regular"
	"sluice/internal/engine"
	"sluice/internal/lab/peers"
	"sluice/internal/lab/timed"
	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/system/host"
)

// state is what is to be in the kernel.
type state struct {
	bans     string // the list that the wrapper bans
	data     []byte // country data in the form of package geo; nil: the built-in ones
	resolved *resolve.Resolved
	meaning  peers.Meaning
	text     string // for nft, each set as one set a family
}

// world is what all rivals are given.
type world struct {
	dir    string // for policies and state directories; it holds the calibration of this machine
	policy string // the file to apply: the measured policy and a list of bans
	facts  host.Facts
	lists  string // copies of lists
	data   []byte // the country data of the base
	geo    *geo.Database
	seed   uint64
}

// builtIn is the policy that is measured when none is given: a web server that
// serves one continent.
const builtIn = `version: 1
sets:
  banned: {file: banned.txt}
  visitors: {continents: [EU]}
ban: [banned]
input:
  default: drop
  rules:
    - allow [http, https] from visitors
    - allow ssh from 203.0.113.0/24
    - allow ping limit 50/second
output:
  default: allow
`

const builtInBans = 650

// wrapper is a policy with one list more, which the change "one element more" makes
// longer.
const wrapper = `version: 1
include: [%q]
sets:
  bench-list: {file: bench.txt}
ban: [bench-list]
`

// element is the nth address of the list. They do not touch, so that none merges
// with the next, and lie in the network for benchmarks (RFC 2544).
func element(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18, byte(n >> 7), byte(n<<1 | 1)})
}

// elements is how many addresses the list has before one more comes.
const elements = 10

// newWorld writes the policy. The facts are those of the labs, which are alike.
func newWorld(o Options, dir string, facts host.Facts) (*world, error) {
	w := &world{dir: dir, facts: facts, seed: o.Seed, lists: filepath.Join(o.StateDir, "lists")}
	file := o.Policy
	if file == "" {
		file = filepath.Join(dir, "built-in.yaml")
		var bans strings.Builder
		for i := range builtInBans {
			fmt.Fprintln(&bans, element(1000+i))
		}
		if err := errors.Join(os.WriteFile(file, []byte(builtIn), 0o600), os.WriteFile(filepath.Join(dir, "banned.txt"), []byte(bans.String()), 0o600)); err != nil {
			return nil, err
		}
	}
	if err := calibration.Copy(o.StateDir, dir); err != nil {
		return nil, err
	}
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	w.policy = filepath.Join(dir, "bench.yaml")
	if err := os.WriteFile(w.policy, fmt.Appendf(nil, wrapper, file), 0o600); err != nil {
		return nil, err
	}
	w.data, err = regular.Read(geo.CurrentFile(o.StateDir), geo.MaxFile)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	w.geo, err = geo.Open(o.StateDir)
	return w, err
}

// factsOf asks the binary for what a lab is.
func factsOf(ctx context.Context, binary, namespace, dir string) (facts host.Facts, err error) {
	c, err := timed.Run(ctx, timed.Program{Name: binary, Args: []string{"facts", "--json", "--netns", namespace, "--state-dir", dir}})
	if err != nil {
		return facts, err
	}
	return facts, json.Unmarshal([]byte(c.Output), &facts)
}

// put writes what a state has beside the policy: the list, and into a state directory
// the country data and the calibration of this machine.
func (w *world) put(s *state, stateDir string) error {
	if err := os.WriteFile(filepath.Join(w.dir, "bench.txt"), []byte(s.bans), 0o600); err != nil {
		return err
	}
	if err := calibration.Copy(w.dir, stateDir); err != nil {
		return err
	}
	file := geo.CurrentFile(stateDir)
	if s.data == nil {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, s.data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, s.data, 0o600)
}

// make makes a state: the first n addresses on the list, and country data.
func (w *world) make(ctx context.Context, n int, data []byte) (*state, error) {
	s := &state{data: data}
	for i := range n {
		s.bans += element(i).String() + "\n"
	}
	scratch := filepath.Join(w.dir, "scratch")
	if err := w.put(s, scratch); err != nil {
		return nil, err
	}
	p, err := policy.Load(w.policy)
	if err != nil {
		return nil, err
	}
	from := engine.Sources{State: filepath.Dir(w.lists), Data: scratch, Offline: true}
	if s.resolved, err = from.Resolve(ctx, p, w.facts); err != nil {
		return nil, err
	}
	s.meaning = peers.FromPolicy(s.resolved)
	byHand, err := peers.Named("nftables-set")
	if err != nil {
		return nil, err
	}
	if len(byHand[0].Cannot(s.meaning)) == 0 {
		s.text = byHand[0].Text(s.meaning)
		return s, nil
	}
	s.text, err = plain(s.resolved)
	return s, err
}

// plain is a policy that nobody writes by hand, as Sluice compiles it with the least
// layout: one interval set a family for each set.
func plain(r *resolve.Resolved) (string, error) {
	p, err := engine.Program(r, nil, engine.Options{})
	if err != nil {
		return "", err
	}
	p.Layout = program.Layout{Memory: 1, Load: 1} // the least: one interval set
	artifact, err := nftables.New().Lower(p, backend.Capabilities{})
	if err != nil {
		return "", err
	}
	return artifact.Text(), nil
}

// countrySets is what the policy's sets of countries hold together.
func countrySets(r *resolve.Resolved) (out addrset.Set) {
	for _, s := range r.Policy.Sets {
		if len(s.Countries)+len(s.Continents) > 0 {
			out = out.Union(r.Sets[s.Name].Addresses)
		}
	}
	return out
}

// errNoCountries says that a policy has nothing of what a change is about.
var errNoCountries = errors.New("the policy has no set of countries")

// shifted is the country data with 1 % of a set's ranges changed: of each family one
// half of them goes to a country outside, and as many come from outside.
func (w *world) shifted(of addrset.Set, round uint64) ([]byte, error) {
	if of.IsEmpty() {
		return nil, errNoCountries
	}
	all, err := w.geo.ByCountry()
	if err != nil {
		return nil, err
	}
	var inside, outside string
	var others addrset.Set
	codes := make([]string, 0, len(all))
	for code := range all {
		codes = append(codes, code)
	}
	slices.Sort(codes)
	for _, code := range codes {
		if all[code].Intersect(of).IsEmpty() {
			outside, others = code, others.Union(all[code])
		} else if inside == "" {
			inside = code
		}
	}
	if outside == "" {
		return nil, fmt.Errorf("%w that leaves a country out", errNoCountries)
	}
	random := generator(w.seed, round)
	var goes, comes addrset.Set
	for _, family := range []func(addrset.Set) []addrset.Range{addrset.Set.V4, addrset.Set.V6} {
		own, foreign := family(of), family(others)
		if n := (len(own) + 199) / 200; len(own) > 0 {
			goes = goes.Union(pick(random, own, n))
			comes = comes.Union(pick(random, foreign, n))
		}
	}
	var t geo.Table
	for _, code := range codes {
		s := all[code].Difference(goes).Difference(comes)
		switch code {
		case inside:
			s = s.Union(comes)
		case outside:
			s = s.Union(goes)
		}
		for r := range s.Each() {
			if err := t.Add(r.From, r.To, code); err != nil {
				return nil, err
			}
		}
	}
	info := w.geo.Info()
	return t.Encode(geo.Origin{Source: info.Source, Licence: info.Licence, Attribution: info.Attribution, Date: info.Date, From: []string{"a measurement"}})
}
