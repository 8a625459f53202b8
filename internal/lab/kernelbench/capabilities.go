package kernelbench

import (
	"fmt"
	"maps"
	"slices"

	"sluice/internal/backend"
	"sluice/internal/backend/nftables"
	"sluice/internal/lab/figures"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/stats"
)

// capabilities asks this kernel what it is able to, feature by feature.
func (b *bench) capabilities() error {
	can := nftables.New().Capabilities(b)
	s := figures.Section{Name: "capabilities", Title: "What the kernel can", Text: []string{
		"1 is yes, 0 is no: each feature is asked for by the smallest ruleset that needs it. What is missing, Sluice goes without, or refuses the line that needs it.",
	}}
	for _, name := range slices.Sorted(maps.Keys(can)) {
		f := figures.Figure{Case: string(name), Subject: b.kernel, Quantity: "capability", Unit: "yes", More: true}
		switch can[name] {
		case backend.Yes:
			f.Samples = stats.Series{1}
		case backend.No:
			f.Samples = stats.Series{0}
		default:
			f.Note = fmt.Sprint(can[name])
		}
		s.Add(f)
	}
	frames := 0.0
	if measure.Available() == measure.ByLiveFrames {
		frames = 1
	}
	s.Add(figures.Figure{Case: string(measure.ByLiveFrames), Subject: b.kernel, Quantity: "capability", Unit: "yes", More: true, Samples: stats.Series{frames}})
	b.report.Sections = append(b.report.Sections, s)
	return nil
}
