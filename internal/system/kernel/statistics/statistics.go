// Package statistics reads counters that the kernel keeps in /proc: what the
// processors did with their time, what TCP lost. hostwatch calls it.
package statistics

import (
	"io"
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

// TCP reads what TCP counts of one network namespace, again and again. procfs would read
// by the path of a thread, which is in one namespace at a time.
type TCP struct{ files []*os.File }

// OpenTCP opens /proc/net/netstat and /proc/net/snmp of the calling thread's
// namespace. The caller closes it; read it from any thread.
func OpenTCP() (*TCP, error) {
	t := &TCP{}
	for _, name := range []string{"netstat", "snmp"} {
		f, err := os.Open("/proc/thread-self/net/" + name)
		if err != nil {
			t.Close()
			return nil, err
		}
		t.files = append(t.files, f)
	}
	return t, nil
}

// Close closes the files.
func (t *TCP) Close() {
	for _, f := range t.files {
		_ = f.Close()
	}
}

// Read gives the counters by the kernel's names (net/ipv4/proc.c), such as
// ListenOverflows and RetransSegs.
func (t *TCP) Read() (map[string]uint64, error) {
	all := map[string]uint64{}
	for _, f := range t.files {
		text, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
		if err != nil {
			return nil, err
		}
		parseTCP(all, string(text))
	}
	return all, nil
}

// parseTCP reads pairs of lines: names, then values, both after the name of their
// group. Of a group or a value that it does not know it takes nothing.
func parseTCP(all map[string]uint64, text string) {
	var names []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "TcpExt:" && fields[0] != "Tcp:" {
			continue
		}
		if names == nil || names[0] != fields[0] {
			names = fields
			continue
		}
		for i := 1; i < min(len(names), len(fields)); i++ {
			if n, err := strconv.ParseUint(fields[i], 10, 64); err == nil {
				all[names[i]] = n
			}
		}
		names = nil
	}
}
