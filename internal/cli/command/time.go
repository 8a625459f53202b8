package command

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sluice/internal/base/english"
	"sluice/internal/language/policy"
)

// Time is a duration, in the words of the policy.
type Time time.Duration

// AddTime adds a flag for a duration; the usage names its TIME.
func AddTime(flags *pflag.FlagSet, name string, value time.Duration, usage string) {
	v := Time(value)
	flags.Var(&v, name, usage)
}

// TimeOf is the value of such a flag, 0 where the command has none.
func TimeOf(flags *pflag.FlagSet, name string) time.Duration {
	if f := flags.Lookup(name); f != nil {
		if v, is := f.Value.(*Time); is {
			return time.Duration(*v)
		}
	}
	return 0
}

// Set reads a time of a command line.
func (t *Time) Set(text string) error {
	if text == "0" || text == "0s" {
		*t = 0
		return nil
	}
	d, hint, ok := policy.ParseDuration(text)
	if !ok {
		if unitless, is := strings.CutPrefix(hint, "add the unit, as in "); is {
			hint = "write " + unitless
		}
		return errors.New("not a duration\nhint: " + cmp.Or(hint, "write 30s, 10m, 1h30m or 1d"))
	}
	*t = Time(d)
	return nil
}

// String is "" for no time, so that help names no default.
func (t *Time) String() string {
	if *t == 0 {
		return ""
	}
	return english.Duration(time.Duration(*t))
}

// Type is what help calls its value.
func (t *Time) Type() string { return "duration" }

// Until says when something ends, and how long that is from now; zero is forever.
func Until(end, now time.Time) string {
	if end.IsZero() {
		return "forever"
	}
	return fmt.Sprintf("%s (%s)", end.Local().Format(time.DateTime), english.Span(end.Sub(now)))
}
