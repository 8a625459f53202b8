// Package statistics reads counters that the kernel keeps in /proc: what the
// processors did with their time, what TCP lost. hostwatch calls it.
package statistics

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// Time is what one processor has done since it was started, in ticks of USER_HZ.
type Time struct {
	Softirq uint64 // packets are received there, and timers run
	Idle    uint64 // nothing to do, waiting for a disk included
	Total   uint64
}

// Processors reads /proc/stat: one Time a processor, in its order there.
func Processors() ([]Time, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil, err
	}
	return parseProcessors(string(text))
}

// The columns of /proc/stat, proc_stat(5); guest time is within user time.
const (
	columnIdle, columnWait, columnSoftirq = 3, 4, 6
	columns                               = 8
)

func parseProcessors(text string) ([]Time, error) {
	var all []Time
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || !strings.HasPrefix(fields[0], "cpu") || fields[0] == "cpu" {
			continue
		}
		if len(fields) < 1+columns {
			return nil, fmt.Errorf("read /proc/stat: %s has %d columns", fields[0], len(fields)-1)
		}
		var t Time
		for i, f := range fields[1 : 1+columns] {
			n, err := strconv.ParseUint(f, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("read /proc/stat: %w", err)
			}
			t.Total += n
			switch i {
			case columnIdle, columnWait:
				t.Idle += n
			case columnSoftirq:
				t.Softirq = n
			}
		}
		all = append(all, t)
	}
	return all, nil
}

// TCP reads what TCP counts of one network namespace, again and again.
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
