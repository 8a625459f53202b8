package doctor

import (
	"cmp"

	"github.com/prometheus/procfs"

	"sluice/internal/base/english"
	"sluice/internal/base/sorting"
	"sluice/internal/system/kernel/statistics"
)

// Throttled is a control group whose programs with sockets were kept from running within
// the window.
type Throttled struct {
	Folder   string
	Programs []string
	statistics.Throttled
}

// seeThrottled compares the control groups that have a quota, and keeps those of programs
// with sockets here.
func (s *Seen) seeThrottled(before, after map[string]statistics.Throttled) {
	for folder, now := range after {
		was := before[folder]
		if now.Times <= was.Times || now.Waited <= was.Waited {
			continue
		}
		t := Throttled{Folder: folder, Throttled: statistics.Throttled{Times: now.Times - was.Times, Waited: now.Waited - was.Waited}}
		for _, pid := range statistics.GroupProcesses(folder) {
			if name, holds := s.holders[pid]; holds {
				t.Programs = append(t.Programs, name)
			}
		}
		if len(t.Programs) > 0 {
			s.Throttled = append(s.Throttled, t)
		}
	}
	sorting.By(s.Throttled, func(a, b Throttled) int {
		return cmp.Or(cmp.Compare(b.Waited, a.Waited), cmp.Compare(a.Folder, b.Folder))
	})
}

func times(n uint64) string {
	if n == 1 {
		return "once"
	}
	return english.Grouped(n) + " times"
}

// TCP is what its sockets take, of all network namespaces (/proc/net/sockstat).
type TCP struct {
	Pages   uint64 // of memory
	Orphans uint64 // that no program has any more
}

func (s *Seen) seeTCP() {
	proc, err := procfs.NewFS("/proc/thread-self")
	if err != nil {
		s.unread("memory of sockets", err)
		return
	}
	stat, err := proc.NetSockstat()
	if err != nil {
		s.unread("memory of sockets", err)
		return
	}
	number := func(n *int) uint64 {
		if n == nil {
			return 0
		}
		return uint64(max(0, *n))
	}
	for _, p := range stat.Protocols {
		if p.Protocol == "TCP" {
			s.TCP = TCP{number(p.Mem), number(p.Orphan)}
		}
	}
}
