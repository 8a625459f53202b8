package doctor

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"sluice/internal/base/english"
	"sluice/internal/base/sorting"
	"sluice/internal/prove/check"
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

// waitedMuch is the part of the window from which waiting for a quota is told.
const waitedMuch = 0.01

var throttled = Check{
	ID:    "throttled",
	What:  "a program with connections waits since its quota of processor time is used up",
	Least: check.Warning,
	Why: `A service or container with a quota (CPUQuota= of systemd, --cpus of Docker, limits.cpu of
Kubernetes) stands still for the rest of each period, 100 ms by default, once it has used what it
may: connections wait, queues fill, and the host looks idle. Said of control groups with a program
that has sockets in this network namespace, from a hundredth of the window on.`,
	Mend: "A higher quota, or fewer threads: each of them spends the same quota.",
	Undo: "Write the quota back.",
	look: func(s *Seen, say func(Finding)) {
		for _, t := range s.Throttled {
			if t.Waited.Seconds() < waitedMuch*s.Window.Seconds() {
				continue
			}
			unit := filepath.Base(t.Folder)
			mend := "more for the control group " + clip(t.Folder)
			if strings.HasSuffix(unit, ".service") || strings.HasSuffix(unit, ".slice") || strings.HasSuffix(unit, ".scope") {
				mend = "systemctl set-property --runtime " + clip(unit) + " CPUQuota=   # none"
			}
			say(Finding{
				Text:     fmt.Sprintf("%s waited %s for processor time: its quota was used up", t.Programs[0], t.Waited.Round(time.Millisecond)),
				Evidence: []Evidence{found("cpu.stat of "+clip(t.Folder), "%s in the window, %s on all processors together", times(t.Times), t.Waited.Round(time.Millisecond))},
				Cost:     fmt.Sprintf("%.0f %% of the window", 100*t.Waited.Seconds()/s.Window.Seconds()),
				Mend:     []string{mend},
			})
		}
	},
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

var tcpMemory = Check{
	ID:    "tcp-memory",
	What:  "TCP has no memory left for its connections, or more of them without a program than it may",
	Least: check.Warning,
	Why: `All sockets of TCP together may take net.ipv4.tcp_mem pages. From its second number on the
kernel shrinks their buffers, from the third it cuts connections off; and so it does with
connections whose program has closed them, from net.ipv4.tcp_max_orphans on. An error where
connections were cut within the window; a warning under pressure, or at nine tenths of the
orphans.`,
	Mend: "More of either, after looking who holds so many: slow readers, clients that vanish, an attack.",
	Undo: "Write the setting back.",
	look: func(s *Seen, say func(Finding)) {
		cut, pressed := s.Moved["TcpExt.TCPAbortOnMemory"], s.Moved["TcpExt.TCPMemoryPressures"]
		bounds := strings.Fields(s.setting("net.ipv4.tcp_mem")) // none but in the first namespace
		var pressure uint64
		if len(bounds) == 3 {
			pressure, _ = strconv.ParseUint(bounds[1], 10, 64) // 0: not known
		}
		orphans := s.number("net.ipv4.tcp_max_orphans")
		f := Finding{Evidence: []Evidence{
			found("/proc/net/sockstat", "%s of memory pages, %s", english.Grouped(s.TCP.Pages), english.Plural(s.TCP.Orphans, "orphan")),
			found("TcpExt TCPAbortOnMemory, TCPMemoryPressures (nstat)", "%s cut, %s under pressure, in the window", english.Grouped(cut), times(pressed)),
		}}
		switch {
		case cut > 0:
			f.Severity = check.Error
			f.Text = "TCP cut " + english.Plural(cut, "connection") + " off, for want of memory or since too many have no program"
			f.Cost = fmt.Sprintf("%.1f connections a second", s.second(cut))
		case pressed > 0 || pressure > 0 && s.TCP.Pages >= pressure:
			f.Text = "TCP is short of memory, and shrinks the buffers of its connections"
		case orphans > 0 && s.TCP.Orphans*10 >= orphans*9:
			f.Text = fmt.Sprintf("%s of TCP that no program has any more, of %s that may be", english.Plural(s.TCP.Orphans, "connection"), english.Grouped(orphans))
		default:
			return
		}
		f.Mend = []string{"ss -tm   # who holds the memory; ss -tn state fin-wait-1   # what has no program"}
		if len(bounds) == 3 && s.TCP.Pages >= pressure {
			f.Evidence = append(f.Evidence, found("sysctl net.ipv4.tcp_mem", "%s pages", strings.Join(bounds, " ")))
			f.Mend = append(f.Mend, "sysctl -w net.ipv4.tcp_mem='"+doubled(bounds)+"'")
			f.Undo = append(f.Undo, "sysctl -w net.ipv4.tcp_mem='"+strings.Join(bounds, " ")+"'")
		}
		if orphans > 0 && s.TCP.Orphans*2 >= orphans { // the kernel counts some twice or four times
			f.Evidence = append(f.Evidence, found("sysctl net.ipv4.tcp_max_orphans", "%d", orphans))
			f.Mend = append(f.Mend, fmt.Sprintf("sysctl -w net.ipv4.tcp_max_orphans=%d", 4*orphans))
			f.Undo = append(f.Undo, fmt.Sprintf("sysctl -w net.ipv4.tcp_max_orphans=%d", orphans))
		}
		say(f)
	},
}

func doubled(numbers []string) string {
	out := make([]string, len(numbers))
	for i, text := range numbers {
		n, _ := strconv.ParseUint(text, 10, 63)
		out[i] = strconv.FormatUint(2*n, 10)
	}
	return strings.Join(out, " ")
}
