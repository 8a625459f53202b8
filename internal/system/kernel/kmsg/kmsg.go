// Package kmsg reads what the kernel has logged and still holds (/dev/kmsg,
// Documentation/ABI/testing/dev-kmsg). The doctor calls it.
package kmsg

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Record is one line of the kernel's log.
type Record struct {
	Age  time.Duration // how long ago it was written, while the machine ran
	Text string        // its first line
}

// mostBytes is more than a record takes (PRINTKRB_RECORD_MAX, kernel/printk/printk.c).
const mostBytes = 8192

// Read gives every record to see, the oldest first.
func Read(see func(Record)) error {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the kernel's log: %w", err)
	}
	defer unix.Close(fd)
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("read the clock: %w", err)
	}
	buffer := make([]byte, mostBytes)
	for {
		n, err := unix.Read(fd, buffer)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR): // overwritten meanwhile
			continue
		case err != nil:
			return fmt.Errorf("read the kernel's log: %w", err)
		}
		if r, ok := parse(buffer[:n], time.Duration(now.Nano())); ok {
			see(r)
		}
	}
}

// parse reads "LEVEL,SEQUENCE,MICROSECONDS,FLAGS[,...];TEXT" and lines of keys behind it.
func parse(data []byte, now time.Duration) (Record, bool) {
	head, rest, ok := bytes.Cut(data, []byte{';'})
	fields := strings.SplitN(string(head), ",", 5)
	if !ok || len(fields) < 4 {
		return Record{}, false
	}
	microseconds, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil || microseconds < 0 || microseconds > int64(1<<62/time.Microsecond) {
		return Record{}, false
	}
	text, _, _ := bytes.Cut(rest, []byte{'\n'})
	return Record{Age: max(0, now-time.Duration(microseconds)*time.Microsecond), Text: string(text)}, true
}
