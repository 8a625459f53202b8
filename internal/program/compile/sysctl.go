package compile

import (
	"strconv"

	"sluice/internal/program"
)

// What the automatic size of the connection table goes by.
const (
	entryBytes   = 384     // of one entry with its extensions; struct nf_conn in /proc/slabinfo is 256 to 320 bytes
	bucketBytes  = 8       // struct hlist_nulls_head, net/netfilter/nf_conntrack_core.c nf_ct_alloc_hashtable
	memoryShare  = 64      // at most this part of the memory
	smallestAuto = 65536   // entries
	largestAuto  = 4 << 20 // entries
)

// sysctls sizes the connection table. Entries and buckets are of the whole
// machine, the time-outs of a namespace.
func (c *compiler) sysctls() {
	t := c.policy.Tracking.Table
	if t == nil {
		return
	}
	o := originOf(t.Pos, "table")
	highest, buckets := t.Max, t.Buckets
	if t.Auto {
		highest = autoTable(c.Facts.MemoryBytes)
		if highest <= c.Facts.ConntrackMax {
			highest = 0 // large enough as it is
		} else {
			buckets = highest
		}
	}
	set := func(name string, value uint64, hostWide bool, o program.Origin) {
		if value > 0 {
			c.program.Sysctls = append(c.program.Sysctls, program.Sysctl{Name: "net.netfilter." + name, Value: strconv.FormatUint(value, 10), HostWide: hostWide, Origin: o})
		}
	}
	set("nf_conntrack_buckets", buckets, true, o)
	set("nf_conntrack_max", highest, true, o)
	for _, timeout := range t.Timeouts {
		seconds := uint64(timeout.Value.Seconds())
		set(timeout.Sysctl(), max(1, seconds), false, originOf(timeout.Pos, timeout.Name))
	}
}

// autoTable is how many entries a connection table may have on a machine of so
// many bytes of memory: a power of two whose entries and buckets take no more
// than a 64th of it. Zero where the memory is not known.
func autoTable(memory uint64) uint64 {
	if memory == 0 {
		return 0
	}
	n := uint64(smallestAuto)
	for n < largestAuto && 2*n*(entryBytes+bucketBytes) <= memory/memoryShare {
		n *= 2
	}
	return n
}
