package doctor

import (
	"fmt"
	"strconv"
	"strings"

	"sluice/internal/base/english"
	"sluice/internal/prove/check"
)

var tcpMemory = Check{
	ID:    "tcp-memory",
	What:  "TCP is out of memory for its connections, or has too many that no program owns",
	Least: check.Warning,
	Why: `All TCP sockets together may use net.ipv4.tcp_mem pages. From its second number the kernel
shrinks their buffers, from its third it cuts connections off. It also cuts off connections
that their program has closed (orphans), from net.ipv4.tcp_max_orphans. An error if connections
were cut off in the window; a warning under memory pressure, or from nine tenths of the
orphans.`,
	Fix: `First find out who holds so many: slow readers, clients that vanish, an attack. Then raise
either limit.`,
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
			f.Text = "TCP cut " + english.Plural(cut, "connection") + " off: memory ran out, or too many have no program"
			f.Cost = fmt.Sprintf("%.1f connections a second", s.second(cut))
		case pressed > 0 || pressure > 0 && s.TCP.Pages >= pressure:
			f.Text = "TCP is short of memory and shrinks the buffers of its connections"
		case orphans > 0 && s.TCP.Orphans*10 >= orphans*9:
			f.Text = fmt.Sprintf("%s of TCP without a program, of at most %s", english.Plural(s.TCP.Orphans, "connection"), english.Grouped(orphans))
		default:
			return
		}
		f.Fix = []string{"ss -tm   # who holds the memory; ss -tn state fin-wait-1   # those without a program"}
		if len(bounds) == 3 && s.TCP.Pages >= pressure {
			f.Evidence = append(f.Evidence, found("sysctl net.ipv4.tcp_mem", "%s pages", strings.Join(bounds, " ")))
			f.Fix = append(f.Fix, "sysctl -w net.ipv4.tcp_mem='"+doubled(bounds)+"'")
			f.Undo = append(f.Undo, "sysctl -w net.ipv4.tcp_mem='"+strings.Join(bounds, " ")+"'")
		}
		if orphans > 0 && s.TCP.Orphans*2 >= orphans { // the kernel counts some twice or four times
			f.Evidence = append(f.Evidence, found("sysctl net.ipv4.tcp_max_orphans", "%d", orphans))
			f.Fix = append(f.Fix, fmt.Sprintf("sysctl -w net.ipv4.tcp_max_orphans=%d", 4*orphans))
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
