package nftables

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"sluice/internal/backend"
	"sluice/internal/program"
)

// layoutCommands makes the sets that commands fill: for each family a hash set
// of single addresses, which is edited in place, and two of ranges. A set of
// ranges that rules ask is never edited; the other one is filled, and then the
// rules turn to it. Names end in a hash of the layout, as those of sets that
// the kernel fills do.
func (l *lowering) layoutCommands(p *parts) {
	counted := p.set.Counters && l.can[backend.SetElementCounters] != backend.No
	for _, f := range families {
		add := func(s side, what string) {
			k := &Set{
				ID: p.set.ID, Life: program.Dynamic, Types: []string{addressType(f)}, Counted: counted, Interval: s != neither,
				Side: s, Comment: describe(p.set, f, what), Origin: p.set.Origin,
			}
			sum := sha256.Sum256([]byte(k.definition()))
			name := fmt.Sprintf("%s_v%d_", stem(p.set.ID), f)
			if s != neither {
				name = fmt.Sprintf("%s_net%d_%s_", stem(p.set.ID), f, s)
			}
			k.Name = name + hex.EncodeToString(sum[:4])
			p.byFam[f] = append(p.byFam[f], k)
		}
		add(neither, "single addresses, edited in place by commands")
		add(sideA, "ranges, filled by commands")
		add(sideB, "ranges, filled while the other one is asked")
	}
	l.tree.Never = packed{p.set.Never}
}

// byCommand says that commands fill the set. What packets fill is bounded, what
// commands fill is not.
func (s *Set) byCommand() bool { return s.Life == program.Dynamic && s.Size == 0 }
