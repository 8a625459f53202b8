package doctor

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"sluice/internal/base/sorting"
	"sluice/internal/system/kernel/kmsg"
)

// Log is what of the kernel's log is about packets.
type Log struct {
	Lines uint64 // that it holds
	// TableFull are those that say that the connection table was full, and how long ago
	// the newest of them was written. The kernel leaves most of them out.
	TableFull    uint64
	TableFullAge time.Duration
	Packets      uint64 // lines that rules of firewalls wrote
}

// Program is one that writes logs, and which part of a processor it took within the window.
type Program struct {
	Name  string
	PID   int
	Share float64

	used float64 // seconds
}

// loggers are the names of such programs, as the kernel cuts them off.
var loggers = []string{"systemd-journal", "rsyslogd", "syslog-ng", "ulogd", "auditd"}

// seeLog reads the log of the machine: a namespace has none.
func (s *Seen) seeLog() {
	err := kmsg.Read(func(r kmsg.Record) {
		s.Log.Lines++
		switch {
		case strings.Contains(r.Text, "nf_conntrack: table full"):
			s.Log.TableFull++
			s.Log.TableFullAge = r.Age
		case strings.Contains(r.Text, "IN=") && strings.Contains(r.Text, " OUT=") && strings.Contains(r.Text, "SRC="):
			s.Log.Packets++
		}
	})
	if err != nil {
		s.unread("the kernel's log", err)
	}
}

func readLoggers() (map[int]Program, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, err
	}
	out := map[int]Program{}
	for _, p := range all {
		stat, err := p.Stat()
		if err != nil || !slices.Contains(loggers, stat.Comm) { // it may be gone
			continue
		}
		out[p.PID] = Program{Name: stat.Comm, PID: p.PID, used: stat.CPUTime()}
	}
	return out, nil
}

func (s *Seen) compareLoggers(before, after map[int]Program) {
	for pid, now := range after {
		if was, is := before[pid]; is && was.Name == now.Name {
			now.Share = (now.used - was.used) / s.Window.Seconds()
			s.Loggers = append(s.Loggers, now)
		}
	}
	sorting.By(s.Loggers, func(a, b Program) int { return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.PID, b.PID)) })
}
