// Package statistics reads what the processors did with their time. hostwatch calls it.
package statistics

import (
	"maps"
	"slices"

	"github.com/prometheus/procfs"
)

// Time is what one processor has done since it was started, in seconds.
type Time struct {
	Softirq float64 // packets are received there, and timers run
	Idle    float64 // nothing to do, waiting for a disk included
	Total   float64
}

// Processors reads /proc/stat: one Time a processor, by their numbers.
func Processors() ([]Time, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, err
	}
	stat, err := proc.Stat()
	if err != nil {
		return nil, err
	}
	var all []Time
	for _, number := range slices.Sorted(maps.Keys(stat.CPU)) {
		c := stat.CPU[number]
		idle := c.Idle + c.Iowait
		// Guest time is within user time.
		all = append(all, Time{c.SoftIRQ, idle, c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal + idle})
	}
	return all, nil
}
