package nftables

import (
	"strings"

	"sluice/internal/backend"
)

// State is what was read from the kernel.
type State struct {
	Present  bool     // a table is there
	Families []string // of the tables that are there; none: those of what is in Tree
	Contents bool     // elements of static sets were read
	Whole    bool     // and those of sets that commands fill
	Tree     Tree
	Extra    []Extra                  // objects in the table that this backend never makes
	Values   map[string]backend.Count // of counters, by their name in the kernel
	grace    grace                    // what is there of a transition, which is not in Tree
}

// Extra is an object that somebody else put into the table.
type Extra struct{ Kind, Family, Name string }

// families are those of the tables that are there.
func (s *State) families() []string {
	if !s.Present || len(s.Families) > 0 {
		return s.Families
	}
	return s.Tree.families()
}

// Empty says that the table is not there.
func (s *State) Empty() bool { return !s.Present }

// Counters is what every counter has counted, by its name in the program: as an
// object of its own and in elements of the sets that rules ask.
func (s *State) Counters() map[string]backend.Count {
	out := map[string]backend.Count{}
	add := func(counter string, c backend.Count) {
		sum := out[counter]
		out[counter] = backend.Count{Packets: sum.Packets + c.Packets, Bytes: sum.Bytes + c.Bytes}
	}
	for name, c := range s.Values {
		add(programName(bare(name)), c)
	}
	used := s.Tree.used()
	for _, k := range s.Tree.Sets {
		if !used["set "+k.Name] {
			continue
		}
		for element, counter := range k.Elements.Counters {
			add(counter, k.Elements.Counts[element])
		}
	}
	return out
}

// Elements is what was counted for each element of the sets that count, by the
// name of the kernel's set and the element.
func (s *State) Elements() map[string]map[string]backend.Count {
	out := map[string]map[string]backend.Count{}
	for _, set := range s.Tree.Sets {
		if set.Counted {
			out[set.Name] = set.Elements.Counts
		}
	}
	return out
}

// used says which sets, limits and flowtables the rules use, and which chains
// there are.
func (t *Tree) used() map[string]bool {
	out := map[string]bool{}
	for _, c := range t.Chains {
		for _, r := range c.Rules {
			for _, s := range r.Statements {
				switch {
				case s.Kind == Unknown:
					for _, k := range t.Sets {
						if strings.Contains(s.Name, `"@`+k.Name+`"`) {
							out["set "+k.Name] = true
						}
					}
				case s.Set != "":
					out["set "+s.Set] = true
				case s.Kind == RateLimit && s.Name != "":
					out["limit "+s.Name] = true
				case s.Kind == Count && s.Name != "":
					out["counter "+s.Name] = true
				case s.Kind == Offload:
					out["flowtable "+s.Name] = true
				}
			}
		}
	}
	return out
}
