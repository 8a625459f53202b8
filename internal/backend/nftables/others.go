package nftables

import (
	"fmt"
	"strings"

	"sluice/internal/program"
)

// layoutOthers makes the sets that another program fills with single addresses. It knows
// them by their names, so that these say nothing about the layout, which is always the same.
func layoutOthers(p *parts) {
	for _, f := range families {
		p.byFam[f] = []*Set{{
			Name: othersName(p.set.ID, f), ID: p.set.ID, Life: program.Dynamic, Types: []string{addressType(f)}, Others: true, Size: p.set.Size,
			Comment: describe(p.set, f, "filled by another program"), Origin: p.set.Origin,
		}}
	}
}

func othersName(id string, family int) string { return fmt.Sprintf("%s_v%d_other", stem(id), family) }

// ofOthers is the program's set that a set of the kernel's is of by its name, and whether
// another program fills it.
func ofOthers(kernel string) (id string, is bool) {
	for _, f := range families {
		if id, is := strings.CutSuffix(bare(kernel), fmt.Sprintf("_v%d_other", f)); is {
			return programName(id), true
		}
	}
	return "", false
}
