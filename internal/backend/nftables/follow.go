package nftables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
	"sluice/internal/program"
	"sluice/internal/system/kernel/nfset"
)

// Sets that hold what the host is are hash sets with a name of their own: nft edits no
// set of ranges of names by element, and neither names nor addresses of a host are
// ranges. The rules that ask them change with the host only where they compare the one
// interface that is in such a set: see compared.go.

// layoutFollowed makes the kernel's sets of one of the program's.
func (l *lowering) layoutFollowed(p *parts) error {
	if len(p.set.Key) != 1 || p.set.Follow == nil {
		return errors.New("a set that follows the host has one key, and says what it follows")
	}
	made := func(family int, kind string) *Set {
		k := &Set{
			Name: stem(p.set.ID), ID: p.set.ID, Life: program.Living, Types: []string{kind}, Follow: p.set.Follow,
			Comment: describe(p.set, family, "edited in place when the host changes"), Origin: p.set.Origin,
		}
		if family != 0 {
			k.Name = fmt.Sprintf("%s_v%d", k.Name, family)
		}
		p.byFam[family] = []*Set{k}
		return k
	}
	held := p.set.Held()
	if isAddress(p.set.Key[0]) {
		for _, f := range families {
			made(f, addressType(f)).follow(held)
		}
		return nil
	}
	for _, name := range held.Names {
		if !validDevice(name) {
			return fmt.Errorf("%q is not the name of an interface", name)
		}
	}
	k := made(0, "ifname")
	k.Compared = true
	k.follow(held)
	return nil
}

// Textless are the interfaces in sets whose names nft's text cannot have: there a quoted
// string ends with the next quote (quotedstring of its src/scanner.l), and nft 1.0.6 loses a
// backslash before a "*" at the end.
func (a *artifact) Textless() []string {
	var out []string
	for _, k := range a.Tree.Sets {
		if !slices.Equal(k.Types, []string{"ifname"}) {
			continue
		}
		for _, name := range k.Elements.Tuples {
			if strings.Contains(name, `"`) || strings.HasSuffix(name, `\*`) {
				out = append(out, name)
			}
		}
	}
	return out
}

// Extension is that of files that nft reads.
func (*artifact) Extension() string { return "nft" }

// TextError says which interface's name keeps nft from reading the text.
func (a *artifact) TextError() error {
	if names := a.Textless(); len(names) > 0 {
		return fmt.Errorf("the default route uses interface %q, whose name nft cannot express", names[0])
	}
	return nil
}

// follow makes a set hold what is of its kind.
func (s *Set) follow(h program.Held) {
	s.Elements = Elements{}
	if s.Types[0] == "ifname" {
		s.Elements.Tuples = slices.Clone(h.Names)
		s.Elements.sortTuples()
		return
	}
	var b addrset.Builder
	for _, a := range h.Addresses {
		if addressType(map[bool]int{true: 4, false: 6}[a.Is4()]) == s.Types[0] {
			b.AddAddr(a)
		}
	}
	s.Elements.Addresses = b.Set()
}

// Follows says which sets hold what the host is.
func (a *artifact) Follows() []backend.FollowedSet {
	var out []backend.FollowedSet
	for _, k := range a.Tree.Sets {
		if k.Follow == nil {
			continue
		}
		at := slices.IndexFunc(out, func(f backend.FollowedSet) bool { return f.ID == k.ID })
		if at < 0 {
			at = len(out)
			out = append(out, backend.FollowedSet{ID: k.ID, Place: a.Tree.Table, Of: *k.Follow})
		}
		out[at].Sets = append(out[at].Sets, backend.FamilySet{Name: k.Name, Family: k.addresses()})
	}
	return out
}

// addresses is the family of a set of addresses; 0 of others.
func (s *Set) addresses() int {
	for _, f := range families {
		if s.Types[0] == addressType(f) {
			return f
		}
	}
	return 0
}

// Held is what these sets hold.
func (a *artifact) Held() map[string]program.Held {
	out := map[string]program.Held{}
	for _, k := range a.Tree.Sets {
		if k.Follow == nil {
			continue
		}
		if k.copied(a.Tree.Sets) {
			continue
		}
		h := out[k.ID]
		h.Names = append(h.Names, k.Elements.Tuples...)
		for r := range k.ranges() {
			h.Addresses = append(h.Addresses, r.From)
		}
		sorting.By(h.Addresses, netip.Addr.Compare)
		out[k.ID] = h
	}
	return out
}

// copied says of a set that another one before it, in another table, holds the same.
func (s *Set) copied(among []*Set) bool {
	first := slices.IndexFunc(among, func(o *Set) bool { return bare(o.Name) == bare(s.Name) })
	return first >= 0 && among[first].Name != s.Name
}

// Holding is the artifact with these sets holding what the host is now.
func (a *artifact) Holding(now map[string]program.Held) backend.Artifact {
	tree := *a.Tree
	tree.Sets = slices.Clone(tree.Sets)
	changed := false
	for i, k := range tree.Sets {
		held, known := now[k.ID]
		if k.Follow == nil || !known {
			continue
		}
		own := *k
		own.follow(held)
		tree.Sets[i], changed = &own, true
	}
	if !changed {
		return a
	}
	out := *a
	out.Tree = &tree
	return &out
}

// followedSets are the kernel's sets of a followed one, empty.
func followedSets(f backend.FollowedSet) []*Set {
	var out []*Set
	for _, k := range f.Sets {
		kind := "ifname"
		if k.Family != 0 {
			kind = addressType(k.Family)
		}
		out = append(out, &Set{Name: k.Name, ID: f.ID, Life: program.Living, Types: []string{kind}})
	}
	return out
}

// followedNames are sets of names that hold the same.
func followedNames(table string, names []string) backend.FollowedSet {
	f := backend.FollowedSet{Place: table}
	for _, n := range names {
		f.Sets = append(f.Sets, backend.FamilySet{Name: n})
	}
	return f
}

// Holds reads what the kernel has in a set: nothing where it is in several tables, and
// they differ.
func (nftables) Holds(ctx context.Context, f backend.FollowedSet) (out program.Held, err error) {
	conn, err := nfset.Open()
	if err != nil {
		return out, err
	}
	defer conn.Close()
	sets := followedSets(f)
	for i, k := range sets {
		err := k.readElements(ctx, conn, f.Place, nil)
		if errors.Is(err, nfset.ErrNoSet) {
			err = classed{err, backend.ErrNotThere}
		}
		if err != nil {
			return out, err
		}
		switch t := (&Tree{Sets: sets[:i+1]}); {
		case t.differs(k):
			return program.Held{}, nil
		case k.copied(t.Sets):
			continue
		}
		out.Names = append(out.Names, k.Elements.Tuples...)
		for r := range k.ranges() {
			out.Addresses = append(out.Addresses, r.From)
		}
	}
	sorting.By(out.Addresses, netip.Addr.Compare)
	return out, nil
}

// Follow is the transaction that brings sets from one to the other.
func (nftables) Follow(sets []backend.FollowedSet, from, to map[string]program.Held) backend.Transaction {
	var c *contents
	for _, f := range sets {
		old, want := followedSets(f), followedSets(f)
		// Where it is in several tables, what each holds now is not known here.
		several := slices.ContainsFunc(want, func(k *Set) bool { return k.copied(want) })
		for i, k := range want {
			old[i].follow(from[f.ID])
			k.follow(to[f.ID])
			insert, remove := *k, *k
			insert.Elements, remove.Elements = difference(k, old[i])
			if insert.Len()+remove.Len() == 0 {
				continue
			}
			if c == nil {
				c = &contents{table: f.Place}
			}
			if several {
				insert.Elements = k.Elements
				c.edits = append(c.edits, edit{flush: true, insert: &insert})
				continue
			}
			c.edits = append(c.edits, edit{remove: &remove, insert: &insert})
		}
	}
	if c == nil {
		return nil
	}
	return c
}

var (
	_ backend.Follower  = nftables{}
	_ backend.Following = (*artifact)(nil)
)
