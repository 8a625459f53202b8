package rollout

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"sluice/internal/base/english"
)

// Plan is how a bundle goes to the hosts. It never changes after the roll-out began.
type Plan struct {
	Stages []Stage  `json:"stages"`
	Settle Duration `json:"settle"` // that every host of a stage stays confirmed before the next
	// Answer is what a host has after an order to fetch, check and apply; Confirm what it
	// has then to confirm. A host that has not after both is failed: silent.
	Answer  Duration `json:"answer"`
	Confirm Duration `json:"confirm"`
	// Prefetch is how long hosts are waited for to fetch the bundle before the first stage;
	// 0: they fetch when they are told. Pace is how many fetch at once; 0: all.
	Prefetch  Duration  `json:"prefetch,omitempty"`
	Pace      int       `json:"pace,omitempty"`
	Halt      Limit     `json:"halt"`
	OnHalt    string    `json:"on-halt"` // [OnHaltRevert] or [OnHaltHold]
	Freeze    []Freeze  `json:"freeze,omitempty"`
	NotBefore time.Time `json:"not-before,omitzero"`
	Level     int       `json:"level"`           // of the language that the bundle is written in
	Floor     int64     `json:"floor,omitempty"` // no host is told a bundle below it
}

// What follows a halt.
const (
	OnHaltRevert = "revert"
	OnHaltHold   = "hold"
)

// Stage is how many hosts have the bundle when it is through, those of earlier stages
// counted. One of its fields is set.
type Stage struct {
	PerClass int     `json:"per-class,omitempty"`
	Hosts    int     `json:"hosts,omitempty"`
	Percent  float64 `json:"percent,omitempty"` // of the hosts that can take it, rounded up
}

// Limit is how many failed hosts halt a roll-out: Hosts of the canaries, which are the
// hosts of the first stage, and Percent of the others, though not fewer than Hosts. Zero
// is 1 host and 1 %.
type Limit struct {
	Hosts   int     `json:"hosts,omitempty"`
	Percent float64 `json:"percent,omitempty"`
}

func (l Limit) canaries() int { return max(1, l.Hosts) }

func (l Limit) beyond(hosts int) int { return max(l.canaries(), share(cmp.Or(l.Percent, 1), hosts)) }

// share is a percentage of a number of hosts, rounded up.
func share(percent float64, hosts int) int {
	exact := percent * float64(hosts) / 100
	n := int(exact)
	if exact-float64(n) > 1e-9 {
		n++
	}
	return n
}

// Duration is a time.Duration that is text in JSON: "1m0s".
type Duration time.Duration

func (d Duration) String() string { return english.Duration(time.Duration(d)) }

// MarshalText is for JSON.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText is for JSON.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// DefaultPlan is what a fleet has that says nothing about roll-outs.
func DefaultPlan() Plan {
	return Plan{
		Stages: []Stage{{PerClass: 1}, {Percent: 5}, {Percent: 25}, {Percent: 100}},
		Settle: Duration(time.Minute), Answer: Duration(time.Minute), Confirm: Duration(time.Minute),
		OnHalt: OnHaltRevert,
	}
}

// Check says what no roll-out could be made by.
func (p Plan) Check() error {
	if len(p.Stages) == 0 {
		return fmt.Errorf("a roll-out needs a stage")
	}
	for _, s := range p.Stages {
		set := 0
		for _, is := range []bool{s.PerClass > 0, s.Hosts > 0, s.Percent > 0} {
			if is {
				set++
			}
		}
		if set != 1 || s.PerClass < 0 || s.Hosts < 0 || s.Percent < 0 || s.Percent > 100 {
			return fmt.Errorf("a stage is a number of hosts, a number of hosts per class or a percentage up to 100, not %+v", s)
		}
	}
	if p.Stages[len(p.Stages)-1].Percent != 100 {
		return fmt.Errorf("the last stage is %s: it has to be 100%%, or some hosts would never get the bundle", p.Stages[len(p.Stages)-1])
	}
	for _, d := range []struct {
		name  string
		value Duration
		least Duration
	}{{"settle", p.Settle, 0}, {"answer", p.Answer, Duration(time.Second)}, {"confirm", p.Confirm, Duration(time.Second)}, {"prefetch", p.Prefetch, 0}} {
		if d.value < d.least {
			return fmt.Errorf("the roll-out's %s is %s: at least %s", d.name, d.value, d.least)
		}
	}
	if p.Pace < 0 || p.Halt.Hosts < 0 || p.Halt.Percent < 0 || p.Halt.Percent > 100 {
		return fmt.Errorf("a pace or a limit of failed hosts is negative, or above 100%%")
	}
	if p.OnHalt != OnHaltRevert && p.OnHalt != OnHaltHold {
		return fmt.Errorf("what follows a halt is %s or %s, not %q", OnHaltRevert, OnHaltHold, p.OnHalt)
	}
	for _, f := range p.Freeze {
		if err := f.check(); err != nil {
			return err
		}
	}
	return nil
}

// String is the stage as a policy writes it.
func (s Stage) String() string {
	switch {
	case s.PerClass > 0:
		return fmt.Sprintf("%d per class", s.PerClass)
	case s.Hosts > 0:
		return english.Plural(s.Hosts, "host")
	}
	return strconv.FormatFloat(s.Percent, 'f', -1, 64) + "%"
}

// Reaches is how many hosts have the bundle after each stage, by how many of each class there
// are, where all of them can take it.
func (p Plan) Reaches(classes []int) (after []int) {
	all, has := 0, 0
	for _, n := range classes {
		all += n
	}
	for _, s := range p.Stages {
		want := s.Hosts
		for _, n := range classes {
			want += min(n, s.PerClass)
		}
		if s.Percent > 0 {
			want = share(s.Percent, all)
		}
		has = min(all, max(has, want))
		after = append(after, has)
	}
	return after
}
