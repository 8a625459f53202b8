// Package classes says what a fleet's policy means for its hosts, without asking each: hosts
// that it treats alike are a class, and one of them is checked, proved and compared for all.
// Callers: the commands of sluice-controller about a repository, and the controller before a
// bundle is signed.
//
// A class is the parts that match and the facts that matter. Addresses of the hosts and of
// their guests are symbols: of an address nothing matters but in which of the policy's sets,
// zones and literals it is, of which of the host's own networks, and of which family and kind.
// Swapping two addresses alike in these leaves the policy as it is, so what is proved with
// the one holds with the other.
package classes

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"sluice/internal/engine"
	"sluice/internal/fleet/inventory"
	"sluice/internal/language/policy"
	"sluice/internal/prove/check"
	"sluice/internal/system/host"
)

// Names of files in a fleet's repository.
const (
	FleetFile     = "fleet.yaml"
	InventoryFile = "inventory.yaml"
)

// Fleet is the policy of a fleet, and who is in it. It is safe for concurrent use.
type Fleet struct {
	Policy     *policy.Policy // of no one host
	Inventory  *inventory.Inventory
	Sources    *engine.Sources
	files      policy.Files // nil: on the disk
	members    map[string][]policy.Range
	facts      *Facts
	lists      *policy.Word
	processors int
	refused    map[string]policy.Errors

	once   sync.Once // of values
	values map[string][]string
}

// Reading is how the policy of a fleet is read.
type Reading struct {
	Dir        string       // of fleet.yaml
	Files      policy.Files // nil: those of the disk
	Inventory  *inventory.Inventory
	All        *inventory.Inventory // whose addresses sets hold, as far as these may; nil: Inventory
	Sources    *engine.Sources
	Facts      *Facts // nil: of the files that the inventory names
	Lists      string // the folder of what URLs of sets served, as bundles have it; "": there is none
	Processors int    // that it uses at once; 0: all
}

// Read reads the fleet in a folder, of files that may be nil for those of the disk, as
// Reading.Read does.
func Read(dir string, files policy.Files, inv *inventory.Inventory, from *engine.Sources) (*Fleet, error) {
	return Reading{Dir: dir, Files: files, Inventory: inv, Sources: from}.Read()
}

// Read reads the fleet. Errors about its policy are of type policy.Errors; those of parts of
// some guests alone are in Policy.Broken, and stop nobody else.
func (r Reading) Read() (*Fleet, error) {
	p, err := policy.Reading{Files: r.Files, Parts: true}.ReadFleet(filepath.Join(r.Dir, FleetFile))
	if err != nil {
		return nil, err
	}
	f := &Fleet{Policy: p, Inventory: r.Inventory, Sources: r.Sources, files: r.Files, facts: r.Facts, processors: r.Processors}
	if f.facts == nil {
		f.facts = NewFacts(engine.ReadFacts)
	}
	if r.Lists != "" {
		f.lists = &policy.Word{Pos: policy.Pos{File: p.File, Line: 1, Column: 1}, Text: r.Lists}
	}
	if r.All == nil {
		f.members, err = r.Inventory.Members(p.Groups())
		return f, err
	}
	if f.members, err = r.All.Members(p.Groups()); err != nil {
		return nil, err
	}
	for _, g := range p.Groups() { // as the controller tells hosts
		f.members[g.Name] = slices.DeleteFunc(f.members[g.Name], func(m policy.Range) bool {
			return !slices.ContainsFunc(g.Within, func(w policy.Range) bool { return w.Range.ContainsRange(m.Range) })
		})
	}
	return f, nil
}

// Refuse leaves out those parts of some guests of which errors are, or which break what others
// expect, as hosts do; it gives their errors, by file. It is called while nothing else is.
func (f *Fleet) Refuse(found []Found) map[string]policy.Errors {
	may := map[string]bool{}
	for _, part := range f.Policy.Fleet.Parts {
		may[part.File] = part.Only != nil
	}
	for _, b := range f.Policy.Broken {
		may[b.File] = true
	}
	f.refused = map[string]policy.Errors{}
	for i := range found {
		is := &found[i]
		files := []string{is.Pos.File}
		if is.Code == engine.UnmetExpectation && !may[is.Pos.File] {
			for _, r := range is.Related {
				files = append(files, r.Pos.File)
			}
		}
		for _, file := range files {
			if is.Severity == check.Error && may[file] {
				f.refused[file] = append(f.refused[file], f.Policy.Errorf(is.Pos, is.Hint, "%s", is.Message))
			}
		}
	}
	return f.refused
}

// broken are the errors of parts of some guests that a policy does without.
func (f *Fleet) broken(p *policy.Policy) (out []check.Finding) {
	for _, b := range p.Broken {
		if f.refused[b.File] == nil {
			wrong, _ := engine.Findings(b.Errors) // they are of its type
			out = append(out, wrong...)
		}
	}
	return out
}

// Subject is the policy of one host, to be asked about.
func (f *Fleet) Subject(h *inventory.Host) (*engine.Subject, error) {
	about, err := f.factsOf(h)
	if err != nil {
		return nil, err
	}
	v := h.View(f.members)
	v.Lists = f.lists
	p, err := f.load(v, h)
	if err != nil {
		return nil, err
	}
	return &engine.Subject{Policy: p, Facts: about.Facts, Sources: f.Sources}, nil
}

// load reads the policy of a host. What is not of it was read before for its own mistakes,
// and is left out as long as there is no error, which may be about it.
func (f *Fleet) load(v *policy.View, h *inventory.Host) (*policy.Policy, error) {
	file := f.Policy.Fleet.File
	texts := map[string][]byte{file: f.Policy.Text(file)}
	for _, part := range f.Policy.Fleet.Parts {
		if h.Selected(part.Selector) {
			texts[part.File] = f.Policy.Text(part.File)
		}
	}
	reading := policy.Reading{Files: f.files, View: v, Texts: texts, Parts: true, Refused: f.refused}
	p, err := reading.Load(file)
	if err == nil {
		return p, nil
	}
	reading.Texts = maps.Clone(texts)
	for _, part := range f.Policy.Fleet.Parts {
		reading.Texts[part.File] = f.Policy.Text(part.File)
	}
	return reading.Load(file)
}

// Facts are what is known of hosts, each read once. Several fleets may share them.
type Facts struct {
	read func(name string) (host.Facts, error)
	of   sync.Map // by name: func() (*facts, error)
}

// NewFacts are facts that are read by the names that inventories give them. An error that is
// no *engine.FactsError may be another one the next time.
func NewFacts(read func(name string) (host.Facts, error)) *Facts { return &Facts{read: read} }

// Keep forgets all facts but those of some names.
func (f *Facts) Keep(names map[string]bool) {
	f.of.Range(func(name, _ any) bool {
		if text, _ := name.(string); !names[text] {
			f.of.Delete(name)
		}
		return true
	})
}

func (f *Facts) get(name string) (*facts, error) {
	read, _ := f.of.LoadOrStore(name, sync.OnceValues(func() (*facts, error) {
		about, err := f.read(name)
		if err != nil {
			return nil, err
		}
		lasting(&about)
		return &facts{about, outlineOf(&about)}, nil
	}))
	out, err := read.(func() (*facts, error))() //nolint:forcetypeassert // as above
	if wrong := (*engine.FactsError)(nil); err != nil && !errors.As(err, &wrong) {
		f.of.Delete(name)
	}
	return out, err
}

// facts are those of a host, or of several that share a file.
type facts struct {
	host.Facts
	outline outline
}

// factsOf reads the facts of a host. The error of a file that cannot be read is at its line.
func (f *Fleet) factsOf(h *inventory.Host) (*facts, error) {
	if h.Facts == "" {
		return &facts{}, nil
	}
	out, err := f.facts.get(h.Facts)
	if err != nil {
		e := &policy.Error{Pos: h.FactsPos, Message: "facts cannot be read: " + err.Error()}
		var wrong *engine.FactsError
		if errors.As(err, &wrong) {
			e.Hint = "sluice facts --json writes them on the host"
		}
		return nil, policy.Errors{e}
	}
	if len(h.Guests) > 0 {
		return &facts{out.Facts, outlineOf(withoutGuests(out.Facts, h.Guests))}, nil
	}
	return out, nil
}

// withoutGuests leaves out of facts the interfaces that guests are at, whatever their names.
func withoutGuests(f host.Facts, guests []policy.Guest) *host.Facts {
	at := func(name string) bool {
		return slices.ContainsFunc(guests, func(g policy.Guest) bool { return g.Interface.Text == name })
	}
	f.Interfaces = slices.DeleteFunc(slices.Clone(f.Interfaces), func(i host.Interface) bool { return at(i.Name) })
	if f.Routing != nil {
		of := *f.Routing
		of.Routes = slices.DeleteFunc(slices.Clone(of.Routes), func(r host.Route) bool {
			return slices.ContainsFunc(r.Hops, func(h host.Hop) bool { return at(h.Out) })
		})
		f.Routing = &of
	}
	return &f
}

// lasting leaves out of facts what is of one moment.
func lasting(f *host.Facts) {
	f.ConntrackCount, f.SSHClients, f.OuterFlows = 0, nil, nil
}
