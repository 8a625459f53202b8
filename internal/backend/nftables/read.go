package nftables

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"sluice/internal/addrset"
	"sluice/internal/backend"
	"sluice/internal/kernel/nft"
	"sluice/internal/program"
)

// lister is how the ruleset is asked for; tests put another in its place.
type lister interface {
	List(ctx context.Context, words ...string) ([]byte, error)
	ListTerse(ctx context.Context, words ...string) ([]byte, error)
	Text(ctx context.Context, words ...string) ([]byte, error)
}

type kernelLister struct{}

func (kernelLister) List(ctx context.Context, words ...string) ([]byte, error) {
	return nft.List(ctx, words...)
}

func (kernelLister) ListTerse(ctx context.Context, words ...string) ([]byte, error) {
	return nft.ListTerse(ctx, words...)
}

func (kernelLister) Text(ctx context.Context, words ...string) ([]byte, error) {
	return nft.ListText(ctx, words...)
}

// read reads the table of the calling thread's network namespace.
func read(ctx context.Context, table string, contents bool) (*State, error) {
	return readFrom(ctx, kernelLister{}, table, contents)
}

func readFrom(ctx context.Context, from lister, table string, contents bool) (*State, error) {
	list := from.ListTerse
	if contents {
		list = from.List
	}
	text, err := list(ctx, "table", "inet", table)
	if errors.Is(err, nft.ErrNotThere) {
		return &State{}, nil
	}
	if err != nil {
		return nil, err
	}
	s, err := parse(text, table)
	if err != nil {
		return nil, err
	}
	s.Contents = contents
	if !contents {
		if err := s.readLiving(ctx, from); err != nil {
			return nil, err
		}
	}
	return s, s.readDevices(ctx, from)
}

// readLiving reads the sets that are edited in place or count, which a terse
// listing leaves out with the others.
func (s *State) readLiving(ctx context.Context, from lister) error {
	for _, k := range s.Tree.Sets {
		if k.Life == program.Dynamic {
			continue
		}
		if k.Life == program.Static && !k.Counted {
			k.Elements = Elements{Unknown: true}
			continue
		}
		text, err := from.List(ctx, "set", "inet", s.Tree.Table, k.Name)
		if err != nil {
			return err
		}
		one, err := parse(text, s.Tree.Table)
		if err != nil {
			return err
		}
		if full := one.Tree.set(k.Name); full != nil {
			k.Elements = full.Elements
		}
	}
	return nil
}

var deviceList = regexp.MustCompile(`\bdevices = \{([^}]*)\}|\bdevice "?([^" ]+)"?`)

// readDevices reads the devices of ingress chains from nft's text: version
// 1.0.6 leaves them out of its JSON.
func (s *State) readDevices(ctx context.Context, from lister) error {
	for _, c := range s.Tree.Chains {
		if c.Base == nil || c.Base.Hook != string(program.Ingress) || len(c.Base.Devices) > 0 {
			continue
		}
		text, err := from.Text(ctx, "chain", "inet", s.Tree.Table, c.Name)
		if err != nil {
			return err
		}
		if found := deviceList.FindSubmatch(text); found != nil {
			for d := range strings.FieldsFuncSeq(string(found[1])+" "+string(found[2]), func(r rune) bool { return strings.ContainsRune(`", `, r) }) {
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
		Expr                  []json.RawMessage
	}
	jsonSet struct {
		Table, Name string
		Type        json.RawMessage
		Flags       json.RawMessage
		Size        int
		Timeout     uint64 // seconds
		Elem        []json.RawMessage
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
	jsonNamed struct{ Table, Name string }
)

// parse reads what "nft -n -j list" printed of one table. What it does not
// know stays in the state by name and is a difference from every tree.
func parse(text []byte, table string) (*State, error) {
	s := &State{Present: true, Tree: Tree{Table: table}, Values: map[string]backend.Count{}}
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
			if err := s.object(kind, body); err != nil {
				return nil, fmt.Errorf("%s that nft printed: %w", kind, err)
			}
		}
	}
	slices.SortFunc(s.Tree.Sets, func(a, b *Set) int { return strings.Compare(a.Name, b.Name) })
	return s, nil
}

func (s *State) object(kind string, body json.RawMessage) error {
	t := &s.Tree
	switch kind {
	case "metainfo", "table":
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
		r := Rule{Comment: in.Comment}
		for _, e := range in.Expr {
			r.Statements = append(r.Statements, statement(e))
		}
		c := t.readChain(in.Chain)
		c.Rules = append(c.Rules, r)
	case "set":
		return s.set(body)
	case "counter":
		var in jsonCounter
		if err := json.Unmarshal(body, &in); err != nil {
			return err
		}
		id := programName(in.Name)
		t.Counters = append(t.Counters, Counter{Name: in.Name, ID: id, Comment: in.Comment})
		s.Values[id] = backend.Count{Packets: in.Packets, Bytes: in.Bytes}
	case "limit":
		var in jsonLimit
		if err := json.Unmarshal(body, &in); err != nil {
			return err
		}
		if in.Inv || in.RateUnit != "" && in.RateUnit != "packets" {
			s.Extra = append(s.Extra, Extra{kind, in.Name})
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
		s.Extra = append(s.Extra, Extra{kind, in.Name})
	}
	return nil
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

func (s *State) set(body json.RawMessage) error {
	var in jsonSet
	if err := json.Unmarshal(body, &in); err != nil {
		return err
	}
	k := &Set{Name: in.Name, Life: lifeOf(in.Name), Size: in.Size, Timeout: in.Timeout * 1000}
	var types []string
	if json.Unmarshal(in.Type, &types) == nil {
		k.Types = types
	} else {
		k.Types = stringList(in.Type)
	}
	k.Interval = slices.Contains(stringList(in.Flags), "interval")
	for _, st := range in.Stmt {
		if _, counts := st["counter"]; counts {
			k.Counted = true
		}
	}
	if k.Life != program.Dynamic {
		if err := k.elements(in.Elem); err != nil {
			return fmt.Errorf("%s: %w", k.Name, err)
		}
	}
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

func (s *Set) elements(elems []json.RawMessage) error {
	single := len(s.Types) == 1 && strings.HasPrefix(s.Types[0], "ipv")
	if single {
		s.Elements.Ranges = make([]addrset.Range, 0, len(elems))
	}
	for _, e := range elems {
		if r, ok := plainRange(e); single && ok {
			s.Elements.Ranges = append(s.Elements.Ranges, r)
			continue
		}
		value, count, err := element(e)
		if err != nil {
			return err
		}
		if count != nil && s.Counted {
			if s.Elements.Counts == nil {
				s.Elements.Counts = map[string]backend.Count{}
			}
			s.Elements.Counts[value] = *count
		}
		if !single {
			s.Elements.Tuples = append(s.Elements.Tuples, value)
			continue
		}
		r, err := addrset.ParseRange(value)
		if err != nil {
			return fmt.Errorf("element %q: %w", value, err)
		}
		s.Elements.Ranges = append(s.Elements.Ranges, r)
	}
	slices.Sort(s.Elements.Tuples)
	slices.SortFunc(s.Elements.Ranges, func(a, b addrset.Range) int { return a.From.Compare(b.From) })
	return nil
}

// plainRange reads an address, prefix or range without a counter as every
// version of nft prints it. Hundreds of thousands of them come at once, and a
// whole JSON decoder for each takes most of the time of a reading.
func plainRange(body []byte) (addrset.Range, bool) {
	parts := strings.Split(string(body), `"`)
	switch {
	case len(parts) == 3 && parts[0] == "":
		return endsOf(parts[1], parts[1])
	case len(parts) == 7 && parts[1] == "range":
		return endsOf(parts[3], parts[5])
	case len(parts) == 9 && parts[1] == "prefix" && parts[3] == "addr" && parts[7] == "len":
		p, err := netip.ParsePrefix(parts[5] + "/" + strings.Trim(parts[8], " :}"))
		if err != nil || p.Addr().Is4In6() {
			return addrset.Range{}, false
		}
		return addrset.PrefixRange(p), true
	}
	return addrset.Range{}, false
}

func endsOf(from, to string) (addrset.Range, bool) {
	a, err1 := netip.ParseAddr(from)
	b, err2 := netip.ParseAddr(to)
	if err1 != nil || err2 != nil {
		return addrset.Range{}, false
	}
	r, err := addrset.NewRange(a, b)
	return r, err == nil
}

// element reads one element and, where it counts, what it has counted.
func element(body json.RawMessage) (string, *backend.Count, error) {
	var wrapped struct {
		Elem *struct {
			Val     json.RawMessage
			Counter *backend.Count
		}
	}
	var count *backend.Count
	if bytes.HasPrefix(body, []byte(`{"elem"`)) {
		if err := json.Unmarshal(body, &wrapped); err != nil {
			return "", nil, err
		}
		if wrapped.Elem != nil {
			body, count = wrapped.Elem.Val, wrapped.Elem.Counter
		}
	}
	v, err := decodeAny(body)
	if err != nil {
		return "", nil, err
	}
	value, ok := valueOf(v)
	if !ok {
		return "", nil, fmt.Errorf("an element that is not known: %s", body)
	}
	return value, count, nil
}

func decodeAny(body []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}
