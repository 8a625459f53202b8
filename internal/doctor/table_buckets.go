package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var tableBuckets = Check{
	ID:    "table-buckets",
	What:  "the connection table has too few buckets",
	Least: check.Remark,
	Why: `For each packet of a tracked connection the kernel searches the list of entries that share a
bucket. Each entry is in two lists, so when a table with room for four entries per bucket is
full, a list has eight. Reported above four entries per bucket; a warning if they are in use,
or if the kernel gave up on a list that was too long (chaintoolong).`,
	Fix:     "As many buckets as entries; a bucket takes 8 bytes.",
	Undo:    "Write the setting back.",
	Fixable: true,
	look: func(s *Seen, say func(Finding)) {
		t := s.Table
		tooLong := s.Moved["conntrack.chaintoolong"]
		if t == nil || t.Buckets == 0 || (t.Most <= entriesOfBucket*t.Buckets && tooLong == 0) {
			return
		}
		f := Finding{
			Text: fmt.Sprintf("%s entries share %s buckets: a look-up passes %.0f of them when the table is full", english.Grouped(t.Most), english.Grouped(t.Buckets), 2*float64(t.Most)/float64(t.Buckets)),
			Evidence: []Evidence{
				found("/proc/sys/net/netfilter/nf_conntrack_buckets", "%s buckets", english.Grouped(t.Buckets)),
				found("/proc/sys/net/netfilter/nf_conntrack_max", "%s of at most %s entries", english.Grouped(t.Entries), english.Grouped(t.Most)),
			},
		}
		f.set(bytesText(roundBuckets(t.Most)*bucketBytes)+" of memory", s.to(conntrackBuckets, roundBuckets(t.Most)))
		if t.Entries > 4*t.Buckets || tooLong > 0 {
			f.Severity = check.Warning
			f.Cost = fmt.Sprintf("each look-up passes %.1f entries now", 2*float64(t.Entries)/float64(t.Buckets))
		}
		if tooLong > 0 {
			f.Evidence = append(f.Evidence, found("counter chaintoolong of the connection table (conntrack -S)", "%s packets", english.Grouped(tooLong)))
		}
		say(f)
	},
}
