package policy

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/internal/language/source"
)

// layout reads what large sets may take in the kernel.
func (f *file) layout(e source.Entry) {
	l := &f.policy.Layout
	for _, k := range f.Known(e.Value, grammar.Of("layout")) {
		at := &l.MemoryPos
		if k.Name == "load" {
			at = &l.LoadPos
		}
		if !f.Once(k, at) {
			continue
		}
		switch k.Name {
		case "memory":
			l.Memory = valueOf(f, k.Value, "memory", parseSize, formatSize)
		case "load":
			l.Load = valueOf(f, k.Value, "load", parseLoadTime, formatLoadTime)
		}
	}
}

// logTo reads where what is logged goes.
func (f *file) logTo(e source.Entry) {
	words := []string{"kernel", "netlink"}
	text, ok := f.Text(e.Value, "log")
	switch {
	case !f.Once(e, &f.policy.LogPos) || !ok:
	case !slices.Contains(words, text):
		f.fail(f.At(e.Value), "write kernel or netlink", "log must be kernel or netlink, not %s%s", source.Quote(text), source.DidYouMean(text, words))
	default:
		f.policy.LogsNetlink = text == "netlink"
	}
}

// sizes are the units of memory, the largest first.
var sizes = []struct {
	unit  string
	bytes uint64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

func parseSize(s string) (uint64, *problem) {
	for _, u := range sizes {
		digits, is := strings.CutSuffix(s, u.unit)
		if !is {
			continue
		}
		v, err := strconv.ParseUint(digits, 10, 64)
		switch {
		case !isDigits(digits):
		case err != nil, v > math.MaxInt64/u.bytes:
			return 0, problemf("", "%s is too large", source.Quote(s))
		case v == 0:
			return 0, problemf("remove it to use the default", "memory must be above zero")
		default:
			return v * u.bytes, nil
		}
	}
	return 0, problemf("write 64MiB or 1GiB", "%s is not a size of memory", source.Quote(s))
}

func formatSize(v uint64) string {
	for _, u := range sizes {
		if v%u.bytes == 0 {
			return strconv.FormatUint(v/u.bytes, 10) + u.unit
		}
	}
	return ""
}

// mostLoadTime bounds the time of a load: longer ones are mistakes.
const mostLoadTime = time.Hour

// parseLoadTime reads a duration that may have milliseconds.
func parseLoadTime(s string) (time.Duration, *problem) {
	var d time.Duration
	if digits, is := strings.CutSuffix(s, "ms"); is && isDigits(digits) {
		v, err := strconv.ParseUint(digits, 10, 32)
		if err != nil {
			return 0, problemf("at most 1h", "%s is too long", source.Quote(s))
		}
		d = time.Duration(v) * time.Millisecond //nolint:gosec // 32 bits
	} else {
		var p *problem
		if d, p = parseDuration(s); p != nil {
			p.hint = "write 1s or 500ms"
			return 0, p
		}
	}
	switch {
	case d <= 0:
		return 0, problemf("remove it to use the default", "load must be above zero")
	case d > mostLoadTime:
		return 0, problemf("at most 1h", "%s is too long", source.Quote(s))
	}
	return d, nil
}

func formatLoadTime(d time.Duration) string {
	if d%time.Second != 0 {
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	}
	return formatDuration(d)
}
