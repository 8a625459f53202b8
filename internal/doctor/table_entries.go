package doctor

import (
	"sluice/internal/base/english"
	"sluice/internal/base/packet"
)

const mostKinds = 3

// kinds are what most entries are of.
func (t *Table) kinds() (out []Evidence) {
	if t.Listed == 0 {
		return nil
	}
	for i, k := range t.Kinds {
		if i == mostKinds || k.Entries*20 < t.Listed {
			break
		}
		what := packet.ProtocolName(k.Protocol)
		if k.Protocol == packet.TCP {
			what += " " + k.State.String()
		}
		out = append(out, found("conntrack -L", "%s entries are of %s", english.Grouped(k.Entries), what))
	}
	return out
}

// mentioned is how many entries a table has before its contents are worth a remark.
const mentioned = 1000
