package calibrate

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// processorTimes is what the processors have done so far.
type processorTimes struct {
	at         time.Time
	all        float64 // of programs and of other machines on this one, in seconds
	own        float64 // of this program and those that it ran
	processors int
}

func timesNow() processorTimes {
	t := processorTimes{at: time.Now()}
	text, _ := os.ReadFile("/proc/stat")
	t.all, t.processors = programTime(string(text))
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if unix.Getrusage(who, &u) == nil {
			t.own += time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
		}
	}
	return t
}

// programTime reads /proc/stat: what programs took and the hypervisor gave to others,
// and how many processors there are. Time of interrupts is nobody's, and part of what
// is measured.
func programTime(stat string) (seconds float64, processors int) {
	const ticks = 100 // a second: USER_HZ on every architecture that Go has
	for line := range strings.Lines(stat) {
		name, rest, _ := strings.Cut(line, " ")
		switch {
		case name == "cpu":
			var user, nice, system, idle, iowait, irq, softirq, steal float64
			_, _ = fmt.Sscan(rest, &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal)
			seconds = (user + nice + system + steal) / ticks
		case strings.HasPrefix(name, "cpu"):
			processors++
		}
	}
	return seconds, processors
}

// others is the part of the processors' time since before that was not this program's;
// 0 where that cannot be told.
func (t processorTimes) others(before processorTimes) float64 {
	took := t.at.Sub(before.at).Seconds() * float64(t.processors)
	if took <= 0 {
		return 0
	}
	return max(0, t.all-before.all-(t.own-before.own)) / took
}
