package nftables

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/base/sorting"
	"sluice/internal/program"
	"sluice/internal/system/kernel/nft"
)

// ReadSince reads the sets that are edited in place, and those that came since.
func (n nftables) ReadSince(ctx context.Context, before backend.State) (backend.State, error) {
	b, err := stateOf(before)
	if err != nil {
		return nil, err
	}
	s, err := readSome(ctx, n.table, func(k *Set) bool { return edited(k) || k.Life != program.Dynamic && b.Tree.set(k.Name) == nil })
	if err != nil {
		return nil, fmt.Errorf("read table inet %s: %w", n.table, err)
	}
	return s, nil
}

// read reads the table of the calling thread's network namespace.
func read(ctx context.Context, table string, contents bool) (*State, error) {
	wanted := edited
	if contents {
		wanted = func(k *Set) bool { return !k.byCommand() }
	}
	s, err := readSome(ctx, table, wanted)
	if s != nil && s.Present {
		s.Contents = contents
	}
	return s, err
}

// ReadWhole reads everything, what commands banned included.
func (n nftables) ReadWhole(ctx context.Context, bans backend.ReadBans) (backend.State, error) {
	s, err := readSome(ctx, n.table, func(k *Set) bool { return !k.take(bans) })
	if err != nil {
		return nil, fmt.Errorf("read table inet %s: %w", n.table, err)
	}
	s.Contents, s.Whole = s.Present, true
	return s, nil
}

// Complete reads the sets that commands and packets fill, and takes the others that were not
// read from the artifact.
func (nftables) Complete(ctx context.Context, have backend.State, loaded backend.Artifact, bans backend.ReadBans) (backend.State, error) {
	h, err := stateOf(have)
	if err != nil {
		return nil, err
	}
	a, err := artifactOf(loaded)
	if err != nil {
		return nil, err
	}
	out := *h
	out.Tree.Sets = slices.Clone(h.Tree.Sets)
	for i, k := range out.Tree.Sets {
		if !k.Elements.Unknown && k.Life != program.Dynamic {
			continue
		}
		own := *k
		out.Tree.Sets[i] = &own
		if a == nil || k.Life != program.Static {
			continue
		}
		if known := a.Tree.set(k.Name); known != nil && known.definition() == k.definitionOf(known) {
			own.Elements = known.Elements
		}
	}
	if err := out.readContents(ctx, func(k *Set) bool { return !k.take(bans) && (k.Elements.Unknown || k.Life == program.Dynamic) }); err != nil {
		return nil, fmt.Errorf("read the sets of table inet %s: %w", h.Tree.Table, err)
	}
	out.Contents, out.Whole = true, true
	return &out, nil
}

// take gives a set the elements that were read before; it is false where none were.
func (s *Set) take(bans backend.ReadBans) bool {
	read, was := bans[s.Name]
	if was = was && s.byCommand(); was {
		s.Elements = Elements{Addresses: read}
	}
	return was
}

// edited says whether elements of a set come and go while it keeps its name.
func edited(k *Set) bool {
	return k.Life == program.Living || k.Counted && k.Life != program.Dynamic
}

// tries is how often a table is read anew where somebody changes the ruleset
// meanwhile.
const tries = 10

// readSome reads the rules as nft lists them, elements by netlink. All of it is
// of one moment, unless the ruleset changes all the time; then each set is of
// one moment.
func readSome(ctx context.Context, table string, wanted func(*Set) bool) (*State, error) {
	for try := 1; ; try++ {
		before, err := nft.Generation()
		if err != nil {
			return nil, err
		}
		s, readErr := readOnce(ctx, table, wanted)
		after, err := nft.Generation()
		switch {
		case err != nil:
			return nil, err
		case before == after || try == tries || ctx.Err() != nil:
			return s, readErr
		}
	}
}

// readOnce lists all tables of a family tersely, or of all families: so nft 1.0.6 reads
// no elements, while for one table it reads those of all sets even where it does not
// show them.
func readOnce(ctx context.Context, table string, wanted func(*Set) bool) (*State, error) {
	var there, asleep []string
	for _, family := range tableFamilies {
		is, dormant, err := nft.Table(nfprotoOf(family), table)
		if err != nil {
			return nil, err
		}
		if is {
			there = append(there, family)
		}
		if dormant {
			asleep = append(asleep, family)
		}
	}
	var text []byte
	var err error
	switch {
	case len(there) == 0:
	case slices.Equal(there, []string{inet}):
		text, err = nft.ListTerse(ctx, "ruleset", inet)
	default:
		text, err = nft.ListTerse(ctx, "ruleset")
	}
	if err != nil {
		return nil, err
	}
	s, err := parse(text, table)
	switch {
	case err != nil:
		return nil, err
	case !slices.Equal(s.Families, there): // nft 1.0.6 lists nothing where its dump of the tables fails
		return nil, fmt.Errorf("nft lists table %s of %q, the kernel has that of %q", table, s.Families, there)
	case !s.Present:
		return s, nil
	}
	s.Tree.Dormant = asleep
	if err := s.readGrace(ctx); err != nil {
		return nil, err
	}
	if err := s.readContents(ctx, wanted); err != nil {
		return nil, err
	}
	return s, s.readDevices(ctx)
}

var deviceList = regexp.MustCompile(`\bdevices = \{([^}]*)\}|\bdevice "?([^" ]+)"?`)

// readDevices reads the devices of ingress chains from nft's text: version
// 1.0.6 leaves them out of its JSON.
func (s *State) readDevices(ctx context.Context) error {
	unknown := func(c *Chain) bool {
		return c.Base != nil && c.Base.Hook == string(program.Ingress) && len(c.Base.Devices) == 0
	}
	if !slices.ContainsFunc(s.Tree.Chains, unknown) {
		return nil
	}
	text, err := nft.ListText(ctx, "ruleset", "inet")
	if err != nil {
		return err
	}
	_, own, _ := strings.Cut("\n"+string(text), "\ntable inet "+s.Tree.Table+" {\n")
	own, _, _ = strings.Cut(own, "\n}\n")
	for _, c := range s.Tree.Chains {
		if !unknown(c) {
			continue
		}
		_, body, _ := strings.Cut(own, "\n\tchain "+c.Name+" {\n")
		body, _, _ = strings.Cut(body, "\n\t}")
		if found := deviceList.FindStringSubmatch(body); found != nil {
			for d := range strings.FieldsFuncSeq(found[1]+" "+found[2], func(r rune) bool { return strings.ContainsRune(`", `, r) }) {
				c.Base.Devices = append(c.Base.Devices, d)
			}
			slices.Sort(c.Base.Devices)
		}
	}
	return nil
}

// The objects of libnftables-json(5), with the members that are read here.
type (
	jsonChain struct {
		Table, Name, Type, Hook, Policy string
		Prio                            int
		Dev                             json.RawMessage
	}
	jsonRule struct {
		Table, Chain, Comment string
		Handle                uint64
		Expr                  []json.RawMessage
	}
	jsonSet struct {
		Table, Name string
		Type        json.RawMessage
		Flags       json.RawMessage
		Size        int
		Timeout     uint64 // seconds
		Map         string // of maps: what their elements give
		Stmt        []map[string]json.RawMessage
	}
	jsonCounter struct {
		Table, Name, Comment string
		Packets, Bytes       uint64
	}
	jsonLimit struct {
		Table, Name, Per string
		Rate, Burst      uint64
		Inv              bool
		RateUnit         string `json:"rate_unit"`
	}
	jsonFlowtable struct {
		Table, Name string
		Dev         json.RawMessage
	}
	jsonNamed struct{ Family, Table, Chain, Name string }
)

// parse reads the tables of one name of what "nft -n -j -t list ruleset" printed. What it does
// not know stays in the state by name and is a difference from every tree.
func parse(text []byte, table string) (*State, error) {
	s := &State{Tree: Tree{Table: table}, Values: map[string]backend.Count{}}
	var listing struct {
		Nftables []map[string]json.RawMessage
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return s, nil
	}
	if err := json.Unmarshal(text, &listing); err != nil {
		return nil, fmt.Errorf("what nft printed: %w", err)
	}
	for _, object := range listing.Nftables {
		for kind, body := range object {
			if kind == "metainfo" {
				continue
			}
			var in jsonNamed
			if err := json.Unmarshal(body, &in); err != nil {
				return nil, fmt.Errorf("%s that nft printed: %w", kind, err)
			}
			switch {
			case !slices.Contains(tableFamilies, in.Family) || kind != "table" && in.Table != table || kind == "table" && in.Name != table:
				continue
			case kind == "table":
				s.Present, s.Families = true, append(s.Families, in.Family)
				continue
			case kind == "rule" && tableFamily(in.Chain) != in.Family:
				continue // of a chain that is not known here
			case kind != "rule" && tableFamily(in.Name) != in.Family:
				s.Extra = append(s.Extra, Extra{kind, in.Family, in.Name})
				continue
			}
			if err := s.object(kind, body); err != nil {
				return nil, fmt.Errorf("%s that nft printed: %w", kind, err)
			}
		}
	}
	sorting.By(s.Tree.Sets, func(a, b *Set) int { return strings.Compare(a.Name, b.Name) })
	sorting.By(s.Families, func(a, b string) int { return slices.Index(tableFamilies, a) - slices.Index(tableFamilies, b) })
	s.takePassages()
	return s, nil
}

func (s *State) object(kind string, body json.RawMessage) error {
	t := &s.Tree
	switch kind {
	case "chain":
		var in jsonChain
		if err := json.Unmarshal(body, &in); err != nil {
			return err
		}
		c := t.readChain(in.Name)
		if in.Hook != "" {
			c.Base = &Base{Type: in.Type, Hook: in.Hook, Priority: in.Prio, Policy: in.Policy, Devices: stringList(in.Dev)}
		}
	case "rule":
		var in jsonRule
		if err := json.Unmarshal(body, &in); err != nil {
			return err
		}
		r := Rule{Comment: in.Comment, Handle: in.Handle}
		for _, e := range in.Expr {
			r.Statements = append(r.Statements, translating(statement(e), in.Chain))
		}
		c := t.readChain(in.Chain)
		c.Rules = append(c.Rules, r)
	case "set", "map":
		return s.set(kind, body)
	case "counter":
		var in jsonCounter
		if err := json.Unmarshal(body, &in); err != nil {
			return err
		}
		t.Counters = append(t.Counters, Counter{Name: in.Name, ID: programName(bare(in.Name)), Comment: in.Comment})
		s.Values[in.Name] = backend.Count{Packets: in.Packets, Bytes: in.Bytes}
	case "limit":
		var in jsonLimit
		if err := json.Unmarshal(body, &in); err != nil {
			return err
		}
		if in.Inv || in.RateUnit != "" && in.RateUnit != "packets" {
			s.Extra = append(s.Extra, Extra{kind, tableFamily(in.Name), in.Name})
			break
		}
		t.Limits = append(t.Limits, Limit{in.Name, Rate{in.Rate, in.Per, in.Burst}})
	case "flowtable":
		var in jsonFlowtable
		if err := json.Unmarshal(body, &in); err != nil {
			return err
		}
		t.Flowtables = append(t.Flowtables, Flowtable{in.Name, stringList(in.Dev)})
	default:
		var in jsonNamed
		if err := json.Unmarshal(body, &in); err != nil {
			return err
		}
		s.Extra = append(s.Extra, Extra{kind, tableFamily(in.Name), in.Name})
	}
	return nil
}

// translating is a statement with the family that nft leaves out where the table has it.
func translating(s Statement, chain string) Statement {
	switch s.Kind {
	case DNAT, SNAT, DNATPrefix, SNATPrefix:
		if s.Name == "" {
			s.Name = tableFamily(chain)
		}
	}
	return s
}

// readChain gives the chain of that name and makes it where it was not listed
// yet.
func (t *Tree) readChain(name string) *Chain {
	if c := t.chain(name); c != nil {
		return c
	}
	c := &Chain{Name: name}
	t.Chains = append(t.Chains, c)
	return c
}

// stringList reads a text or a list of texts, sorted.
func stringList(body json.RawMessage) []string {
	if len(body) == 0 {
		return nil
	}
	var several []string
	if json.Unmarshal(body, &several) == nil {
		slices.Sort(several)
		return several
	}
	var single string
	if json.Unmarshal(body, &single) == nil && single != "" {
		return []string{single}
	}
	return nil
}

func (s *State) set(kind string, body json.RawMessage) error {
	var in jsonSet
	if err := json.Unmarshal(body, &in); err != nil {
		return err
	}
	if kind == "map" && in.Map != "verdict" {
		s.Extra = append(s.Extra, Extra{kind, tableFamily(in.Name), in.Name})
		return nil
	}
	k := &Set{Verdicts: kind == "map", Name: in.Name, Life: lifeOf(in.Name), Size: in.Size, Timeout: in.Timeout * 1000}
	var types []string
	if json.Unmarshal(in.Type, &types) == nil {
		k.Types = types
	} else {
		k.Types = stringList(in.Type)
	}
	if k.Types == nil {
		k.Types = rawTypes(in.Type)
	}
	k.Interval = slices.Contains(stringList(in.Flags), "interval")
	if slices.Contains(stringList(in.Flags), "dynamic") {
		k.Life = program.Dynamic
	}
	for _, st := range in.Stmt {
		if _, counts := st["counter"]; counts {
			k.Counted = true
		} else {
			k.Asks = true
		}
	}
	k.Elements.Unknown = k.Life != program.Dynamic
	s.Tree.Sets = append(s.Tree.Sets, k)
	return nil
}

// lifeOf tells the lives of sets by their names.
func lifeOf(name string) program.Life {
	if _, hashed := cutHash(name, 16); hashed {
		return program.Static
	}
	if _, hashed := cutHash(name, 8); hashed {
		return program.Dynamic
	}
	return program.Living
}

func decodeAny(body []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}
