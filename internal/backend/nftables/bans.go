package nftables

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/program"
	"sluice/internal/system/kernel/nft"
)

// What commands ban is in sets of two kinds for each family: one of single addresses,
// which is edited in place, and two of ranges. The rules look into one of these at most:
// the other one is filled again, and then the rules change over to it.

// side is one of the two sets of ranges.
type side string

// Sides.
const (
	neither side = "" // of single addresses
	sideA   side = "a"
	sideB   side = "b"
)

// other is where the next ranges go.
func (s side) other() side {
	if s == sideA {
		return sideB
	}
	return sideA
}

// commandSet is one set in the kernel.
type commandSet struct {
	Name    string `json:"name"`
	Family  int    `json:"family"` // 4 or 6
	Ranges  side   `json:"ranges"`
	Counted bool   `json:"counted,omitempty"`
}

// limitSet is a set of the sources, or of the prefixes, that limits banned. An element is
// the first address of a network that it stands for, by keyMask; of a source of IPv4 it is
// that alone.
type limitSet struct {
	Name    string `json:"name"`
	Family  int    `json:"family"`
	Counted bool   `json:"counted,omitempty"`
	Rule    string `json:"rule"` // the first one that bans, with its place
	Wide    bool   `json:"wide,omitempty"`
	Timeout uint64 `json:"timeout,omitempty"` // of elements that name none, milliseconds; 0 where it is not known
}

// askedSets says which sets the rules look into.
type askedSets struct {
	Exact4  bool `json:"exact4,omitempty"`
	Exact6  bool `json:"exact6,omitempty"`
	Ranges4 side `json:"ranges4,omitempty"`
	Ranges6 side `json:"ranges6,omitempty"`
}

// of says which sets of a family the rules look into.
func (a askedSets) of(family int) (exact bool, ranges side) {
	if family == 6 {
		return a.Exact6, a.Ranges6
	}
	return a.Exact4, a.Ranges4
}

// set replaces what of says.
func (a *askedSets) set(family int, exact bool, ranges side) {
	if family == 6 {
		a.Exact6, a.Ranges6 = exact, ranges
	} else {
		a.Exact4, a.Ranges4 = exact, ranges
	}
}

// asks says whether the rules look into a set.
func (a askedSets) asks(s commandSet) bool {
	exact, ranges := a.of(s.Family)
	if s.Ranges == neither {
		return exact
	}
	return s.Ranges == ranges
}

// banStore is the sets of an artifact that hold bans.
type banStore struct {
	asked  askedSets
	never  addrset.Set
	table  string
	sets   []commandSet
	limit  []limitSet // what limits ban
	counts []limitSet // how many sources of a prefix they banned
	fast   []Flowtable
	rules  []byte // commandRules; nil where tree has them
	tree   *Tree  // nil where the store was decoded
}

// encodedStore is a store on disk.
type encodedStore struct {
	Asked  askedSets    `json:"asked"`
	Never  []byte       `json:"never"` // as package addrset writes it
	Table  string       `json:"table"`
	Sets   []commandSet `json:"sets"`
	Limit  []limitSet   `json:"limit,omitempty"`
	Counts []limitSet   `json:"counts,omitempty"`
	Fast   []Flowtable  `json:"fast,omitempty"`
	Rules  []byte       `json:"rules"`
}

// BanStore is the store of an artifact.
func (nftables) BanStore(a backend.Artifact, like backend.BanStore) backend.BanStore {
	s := &banStore{asked: askedOf(like)}
	if w, err := artifactOf(a); err == nil && w != nil {
		s.of(w.Tree)
	}
	return s
}

// BanStoreIn is the store of an artifact whose rules look into the same sets as those
// in the kernel.
func (n nftables) BanStoreIn(a backend.Artifact, have backend.State) backend.BanStore {
	s := n.BanStore(a, nil).(*banStore)
	s.asked = s.askedIn(have)
	return s
}

func askedOf(store backend.BanStore) askedSets {
	if s, is := store.(*banStore); is {
		return s.asked
	}
	return askedSets{}
}

// of takes the sets of a tree.
func (s *banStore) of(t *Tree) {
	for _, k := range t.Sets {
		switch {
		case k.byCommand():
			s.sets = append(s.sets, k.commandSet())
		case banned(k.ID):
			s.limit = append(s.limit, k.limitSet())
		case program.IsWide(k.ID):
			s.counts = append(s.counts, k.limitSet())
		}
	}
	if len(s.sets)+len(s.limit) > 0 {
		s.table, s.never, s.tree = t.Table, t.Never.Set, t
		for _, f := range t.Flowtables {
			if t.chain(f.Name) != nil { // older artifacts ask bans ahead of the flowtable
				s.fast = append(s.fast, f)
			}
		}
	}
}

// limitBanned is the program's set of the sources that limits banned.
const limitBanned = "limit.banned"

// banned says that limits fill a set with what they ban.
func banned(id string) bool { return id == limitBanned || id == program.WidenedSet }

func (s *Set) limitSet() limitSet {
	return limitSet{Name: s.Name, Family: s.family(), Counted: s.Counted, Rule: origin(s.Origin, s.Origin.Text), Wide: program.IsWide(s.ID), Timeout: s.Timeout}
}

// DecodeBanStore reads what Encode wrote.
func (nftables) DecodeBanStore(data []byte) (backend.BanStore, error) {
	var in encodedStore
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, err
	}
	s := &banStore{asked: in.Asked, table: in.Table, sets: in.Sets, limit: in.Limit, counts: in.Counts, fast: in.Fast, rules: in.Rules}
	return s, s.never.UnmarshalBinary(in.Never)
}

// Encode writes the store.
func (s *banStore) Encode() ([]byte, error) {
	never, err := s.never.MarshalBinary()
	if err != nil {
		return nil, err
	}
	return json.Marshal(encodedStore{s.asked, never, s.table, s.sets, s.limit, s.counts, s.fast, s.turnedRules()})
}

// Room says whether there are sets for bans by command.
func (s *banStore) Room() bool { return len(s.sets) > 0 }

// Never is what no ban reaches.
func (s *banStore) Never() addrset.Set { return s.never }

// Asking is the artifact with rules that look into these sets.
func (s *banStore) Asking(a backend.Artifact) backend.Artifact {
	own, is := a.(*artifact)
	if !is || own == nil {
		return a
	}
	out := *own
	out.asked = s.asked
	return &out
}

// find is the set of a family and side.
func (s *banStore) find(family int, of side) (commandSet, bool) {
	i := slices.IndexFunc(s.sets, func(k commandSet) bool { return k.Family == family && k.Ranges == of })
	if i < 0 {
		return commandSet{}, false
	}
	return s.sets[i], true
}

// askedIn says which of the sets the rules in the kernel look into.
func (s *banStore) askedIn(have backend.State) askedSets {
	var out askedSets
	h, err := stateOf(have)
	if err != nil {
		return out
	}
	used := h.Tree.used()
	for _, k := range s.sets {
		if !used["set "+k.Name] {
			continue
		}
		exact, ranges := out.of(k.Family)
		if k.Ranges == neither {
			exact = true
		} else {
			ranges = k.Ranges
		}
		out.set(k.Family, exact, ranges)
	}
	return out
}

// AskedIn compares what is asked.
func (s *banStore) AskedIn(have backend.State) bool { return s.askedIn(have) == s.asked }

// commandRules is what turn reads: the chains that differ by the sets they look into,
// with all their rules.
type commandRules struct {
	Table    string
	Sets     []commandSet
	Chains   []*Chain
	Held     []string
	Compared []string `json:",omitempty"` // sets whose one name those chains compare
}

// turnedRules are the encoded commandRules; nil where there are no sets at all.
func (s *banStore) turnedRules() []byte {
	if s.tree == nil {
		return s.rules
	}
	rules := commandRules{Table: s.table, Sets: s.sets}
	held := s.tree.held()
	silent := s.tree.asking(askedSets{})
	for _, c := range s.tree.Chains {
		if len(s.sets) > 0 && silent.chain(c.Name) != c {
			rules.Chains = append(rules.Chains, c)
			// What is there while nothing is asked always is.
			if held[c.Name] || silent.chain(c.Name) != nil {
				rules.Held = append(rules.Held, c.Name)
			}
		}
	}
	rules.Compared = s.tree.comparedSets()
	out, _ := json.Marshal(rules) // texts and numbers: it cannot fail
	return out
}

// turn makes rules look into other sets than they do.
type turn struct {
	store *banStore
	to    askedSets
}

// Take makes the rules look into the sets that they should.
func (t turn) Take(ctx context.Context) error {
	script, err := t.script(ctx)
	if err != nil {
		return err
	}
	return script.Take(ctx)
}

// Text is the input of nft -f that does the same.
func (t turn) Text() string {
	script, _ := t.script(context.Background()) // Take says what is wrong
	return string(script)
}

func (t turn) script(ctx context.Context) (Script, error) {
	var rules commandRules
	if err := json.Unmarshal(t.store.turnedRules(), &rules); err != nil {
		return "", fmt.Errorf("read the rules of bans: %w", err)
	}
	if err := rules.compare(ctx); err != nil {
		return "", err
	}
	before, after := rules.asking(t.store.asked), rules.asking(t.to)
	table := "inet " + rules.Table
	var empty, remove, add strings.Builder
	for _, c := range rules.Chains {
		old, now := find(before, c.Name), find(after, c.Name)
		switch {
		case old == nil && now == nil, old != nil && now != nil && sameRules(old, now):
			continue
		case now == nil:
			fmt.Fprintf(&remove, "delete chain %s %s\n", table, c.Name)
		}
		if old != nil {
			fmt.Fprintf(&empty, "flush chain %s %s\n", table, c.Name)
		}
		if now != nil {
			now.write(&add)
		}
	}
	text := empty.String()
	if add.Len() > 0 {
		text += fmt.Sprintf("table %s {\n%s}\n", table, add.String())
	}
	return Script(text + remove.String()), nil
}

// endFlows ends the flows of flowtables, which no rule sees. Those that are not banned
// are handed over again with one of their next packets.
type endFlows struct{ store *banStore }

// Take makes the flowtables again that the kernel has.
func (e endFlows) Take(context.Context) error {
	return nft.EndFlows(e.store.table)
}

// Text is the input of nft -f that does the same.
func (e endFlows) Text() string {
	var b strings.Builder
	for _, f := range e.store.fast {
		of := "inet " + e.store.table + " " + f.Name
		fmt.Fprintf(&b, "flush chain %s\ndelete flowtable %s\nadd flowtable %s { %s }\nadd rule %s flow add @%s\n", of, of, of, f.body(), of, f.Name)
	}
	return b.String()
}

func (r *commandRules) asking(a askedSets) []*Chain {
	p := pruning{silent: map[string]bool{}, held: map[string]bool{}}
	for _, s := range r.Sets {
		p.silent[s.Name] = !a.asks(s)
	}
	for _, name := range r.Held {
		p.held[name] = true
	}
	return p.prune(r.Chains)
}

// compare makes the chains name the interfaces that those in the kernel do.
func (r *commandRules) compare(ctx context.Context) error {
	if len(r.Compared) == 0 {
		return nil
	}
	held, err := nftables{}.Holds(ctx, followedNames(r.Table, r.Compared))
	if err != nil {
		return err
	}
	one := &Set{Elements: Elements{Tuples: held.Names}}
	names := map[string]string{}
	for _, set := range r.Compared {
		names[set] = one.comparable()
	}
	r.Chains = compared(r.Chains, names)
	return nil
}

func find(chains []*Chain, name string) *Chain {
	i := slices.IndexFunc(chains, func(c *Chain) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return chains[i]
}

func sameRules(a, b *Chain) bool {
	return slices.EqualFunc(a.Rules, b.Rules, func(x, y Rule) bool { return x.line() == y.line() })
}

var _ backend.Banner = nftables{}
