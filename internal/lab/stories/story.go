package stories

import (
	"context"
	"slices"

	"sluice/internal/lab/testnet"
)

// Story is one incident.
type Story struct {
	Number int
	Title  string // "A load test fills the connection table"
	// Incident is what happened, as it was told, in a paragraph.
	Incident string
	// Needs is what the machine has to have.
	Needs []testnet.Feature
	// Machine says that the story changes settings of the whole machine, which a
	// namespace cannot: it plays in the kernel lab or with Options.HostSysctl.
	Machine bool
	// Programs are those of this machine that the kernel lab has to bring.
	Programs []string
	// Files are further files and directories for it: path there → path here.
	Files map[string]string
	// Run plays it. A goal that is not reached is no error.
	Run func(ctx context.Context, s *Stage) error
}

// All lists the stories by number.
func All() []Story {
	// One line a story.
	list := []Story{
		one,
		two,
		three,
		four,
		five,
	}
	slices.SortFunc(list, func(a, b Story) int { return a.Number - b.Number })
	return list
}

// Find returns the story of a number.
func Find(number int) (Story, bool) {
	for _, s := range All() {
		if s.Number == number {
			return s, true
		}
	}
	return Story{}, false
}
