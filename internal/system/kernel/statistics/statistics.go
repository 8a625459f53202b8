// Package statistics reads what the processors did with their time, and with the packets
// that they received. hostwatch and the doctor call it.
package statistics

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

// Time is what one processor has done since it was started, in seconds.
type Time struct {
	Softirq float64 // packets are received there, and timers run
	Idle    float64 // nothing to do, waiting for a disk included
	Stolen  float64 // the hypervisor gave it to others
	Total   float64
}

// Processors reads /proc/stat: one Time a processor, by their numbers.
func Processors() ([]Time, error) { return processors("/proc") }

func processors(root string) ([]Time, error) {
	proc, err := procfs.NewFS(root)
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
		all = append(all, Time{c.SoftIRQ, idle, c.Steal, c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal + idle})
	}
	return all, nil
}

// Backlog is what one processor has done with received packets since it was started, of all
// network namespaces (softnet_seq_show of net/core/net-procfs.c). Each counts in 32 bits.
type Backlog struct {
	Processor uint32
	Packets   uint32
	Dropped   uint32 // its queue was full (net.core.netdev_max_backlog)
	Squeezed  uint32 // times that it stopped with packets left, its budget being used up
}

// Backlogs reads /proc/net/softnet_stat.
func Backlogs() ([]Backlog, error) { return backlogs("/proc/thread-self") }

func backlogs(root string) ([]Backlog, error) {
	proc, err := procfs.NewFS(root)
	if err != nil {
		return nil, err
	}
	stat, err := proc.NetSoftnetStat()
	if err != nil {
		return nil, err
	}
	out := make([]Backlog, 0, len(stat))
	for _, s := range stat {
		out = append(out, Backlog{s.Index, s.Processed, s.Dropped, s.TimeSqueezed})
	}
	return out, nil
}

// ObjectBytes is how many bytes the kernel takes for one object of a slab, padding included;
// 0 where /proc/slabinfo does not name it. Reading it needs root.
func ObjectBytes(slab string) (uint64, error) { return objectBytes("/proc", slab) }

func objectBytes(root, slab string) (uint64, error) {
	proc, err := procfs.NewFS(root)
	if err != nil {
		return 0, err
	}
	info, err := proc.SlabInfo()
	if err != nil {
		return 0, err
	}
	for _, s := range info.Slabs {
		if s.Name == slab {
			return uint64(max(0, s.ObjSize)), nil
		}
	}
	return 0, nil
}

// NeighboursRefused is how often the kernel had no room for a neighbour's link address, of
// both families and all namespaces (neigh_stat_seq_show of net/core/neighbour.c). The file is
// in the machine's own namespace alone, which is that of process 1.
func NeighboursRefused() (n uint64, err error) {
	for _, table := range []string{"arp_cache", "ndisc_cache"} {
		text, err := os.ReadFile("/proc/1/net/stat/" + table)
		if err != nil {
			return 0, fmt.Errorf("read the counters of neighbours: %w", err)
		}
		refused, err := column(string(text), "table_fulls")
		if err != nil {
			return 0, fmt.Errorf("read the counters of neighbours: %s: %w", table, err)
		}
		n += refused
	}
	return n, nil
}

// column adds up one of the columns that the first line names, in hexadecimal notation: a
// line for each processor. Older kernels may not have it.
func column(text, name string) (sum uint64, err error) {
	head, rest, _ := strings.Cut(text, "\n")
	at := slices.Index(strings.Fields(head), name)
	if at < 0 {
		return 0, nil
	}
	for line := range strings.Lines(rest) {
		fields := strings.Fields(line)
		if at >= len(fields) {
			return 0, fmt.Errorf("a line of %d columns", len(fields))
		}
		n, err := strconv.ParseUint(fields[at], 16, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}
