package conntrack

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/prometheus/procfs"

	"sluice/internal/system/kernel/sysctl"
)

// Table is how full the connection table is. The counts are of the network namespace, from
// when it was made.
type Table struct {
	Entries uint64 `json:"entries"`
	Most    uint64 `json:"most"` // net.netfilter.nf_conntrack_max, which is the machine's; 0 is no bound
	// Dropped is packets for which no entry could be made, since the table was full or memory
	// short; Failed is entries that could not be inserted, mostly since another packet of the
	// flow was first; Evicted is entries that gave way to new ones (struct ip_conntrack_stat).
	Dropped uint64 `json:"dropped"`
	Failed  uint64 `json:"insert-failed"`
	Evicted uint64 `json:"evicted"`
	// Peak is the most entries that an agent has seen, and PeakAt when; ReadTable knows none.
	Peak   uint64    `json:"peak,omitempty"`
	PeakAt time.Time `json:"peak-at,omitzero"`
}

// ReadTable returns nil where the kernel tracks nothing.
func ReadTable() (*Table, error) {
	var t Table
	for name, n := range map[string]*uint64{"net.netfilter.nf_conntrack_count": &t.Entries, "net.netfilter.nf_conntrack_max": &t.Most} {
		text, err := sysctl.Read(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if *n, err = strconv.ParseUint(text, 10, 64); err != nil {
			return nil, fmt.Errorf("read sysctl %s: %w", name, err)
		}
	}
	here, err := procfs.NewFS("/proc/thread-self")
	if err != nil {
		return nil, err
	}
	processors, err := here.ConntrackStat()
	if errors.Is(err, fs.ErrNotExist) { // a kernel without CONFIG_NF_CONNTRACK_PROCFS
		return &t, nil
	}
	for _, p := range processors {
		t.Dropped += p.Drop
		t.Failed += p.InsertFailed
		t.Evicted += p.EarlyDrop
	}
	return &t, err
}

// Percent is how much of the table is in use.
func (t *Table) Percent() uint64 {
	if t.Most == 0 {
		return 0
	}
	return t.Entries * 100 / t.Most
}
