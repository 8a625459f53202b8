package compile

import "sluice/internal/program"

// Bounds of the tables of bans that widen, in entries of each family.
const (
	widenedTableSize  = 1024
	wideningTableSize = 2 * banTableSize // never full before that of the sources is
)

// wideningTime bounds the time in which the bans of a prefix count, in milliseconds: the
// kernel has no rate below one a week.
const wideningTime = 7 * 24 * 3600 * 1000

// widening makes the chain that a source goes on in which a limit bans. Each counts once
// while it is banned, on a bucket of its prefix that refills over the time of the ban. Who
// finds that empty has the prefix banned for as long; in a full table nobody does.
func (c *compiler) widening(id string, l program.Limit, o program.Origin) string {
	chain := id + "_banned"
	if l.Per == program.PerDestination {
		chain += "_to"
	}
	if c.program.Chain(chain) != nil {
		return chain
	}
	first, counts := chain+"_first", min(l.BanTimeout, wideningTime)
	bucket := program.Limit{
		Name: "limit-" + id + "-widen", Per: l.Per,
		Rate:  program.Rate{Packets: program.Widening - 1, Per: counts, Burst: program.Widening - 1},
		Table: c.dynamicSet(program.WideSet("limit."+id), wideningTableSize, counts, o),
	}
	seen := program.SetAdd{Set: c.dynamicSet("limit."+id+".seen", banTableSize, counts, o), Key: l.Per, Timeout: counts, Once: true}
	prefix := program.SetAdd{Set: c.dynamicSet(program.WidenedSet, widenedTableSize, l.BanTimeout, o), Key: l.Per, Timeout: l.BanTimeout}
	if l.Per == program.PerDestination {
		prefix.Key, prefix.Fields = program.Together, []program.Field{program.Destination}
	}
	c.program.Set(program.WidenedSet).Counters = true // sluice bans shows the hits of each
	add := func(chain string, actions ...program.Action) {
		c.append(chain, program.Rule{Actions: actions, Origin: o})
	}
	c.chain(chain, "a source that is banned: "+o.Text)
	add(chain, seen, program.Goto{Chain: first})
	add(chain, program.Drop)
	c.chain(first, "its prefix, if many of it are: "+o.Text)
	add(first, bucket, program.Drop)
	add(first, prefix)
	add(first, program.Drop)
	return chain
}
