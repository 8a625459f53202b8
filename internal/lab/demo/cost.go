package demo

import (
	"context"

	"sluice/internal/lab/limits"
	"sluice/internal/lab/measure"
)

// packetCost shows in three lines what a packet costs for the country data, beside
// what others make of it. Figures are of this machine and this minute, so nothing
// is expected of them; make bench measures for longer and says what is reached.
func (d *demo) packetCost(data string) error {
	d.leaveOut(true)
	defer d.leaveOut(false)
	d.title("What a packet costs for \"all but Europe\"")
	if err := measure.Ask(); err != nil {
		d.say("not measured: %s", err)
		return nil
	}
	lines, err := limits.Summary(context.Background(), limits.Options{Binary: d.Binary, Data: data, Seed: 1})
	if err != nil {
		return err
	}
	for _, line := range lines {
		d.say("%s", line)
	}
	return nil
}
