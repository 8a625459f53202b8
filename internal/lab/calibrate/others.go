package calibrate

import (
	"time"

	"github.com/prometheus/procfs"
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
	if proc, err := procfs.NewDefaultFS(); err == nil {
		stat, _ := proc.Stat()
		t.all, t.processors = programTime(stat.CPUTotal), len(stat.CPU)
	}
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if unix.Getrusage(who, &u) == nil {
			t.own += time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
		}
	}
	return t
}

// programTime is what programs took and the hypervisor gave to others, in seconds. Time
// of interrupts is nobody's, and part of what is measured.
func programTime(s procfs.CPUStat) float64 { return s.User + s.Nice + s.System + s.Steal }

// others is the part of the processors' time since before that was not this program's;
// 0 where that cannot be told.
func (t processorTimes) others(before processorTimes) float64 {
	took := t.at.Sub(before.at).Seconds() * float64(t.processors)
	if took <= 0 {
		return 0
	}
	return max(0, t.all-before.all-(t.own-before.own)) / took
}
