package policy

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"sluice/internal/base/english"
	"sluice/internal/language/source"
)

// RollOut is how a fleet comes to a new policy. What the fleet does not say is as in
// [defaultRollOut].
type RollOut struct {
	Pos         Pos
	Stages      []Stage // the last is of all hosts
	Settle      time.Duration
	Confirm     time.Duration
	Probes      []Probe
	HaltHosts   int     // failed hosts that halt it; 0: by HaltPercent
	HaltPercent float64 // of the hosts that have been told
	Hold        bool    // after a halt hosts keep what they have; else they go back
	Freeze      []Freeze
}

// Stage is how many hosts have the new policy after it. One of its fields is set.
type Stage struct {
	PerClass int // of hosts that are alike
	Hosts    int
	Percent  float64 // of all hosts
}

// Probe is what a host tries before it confirms.
type Probe struct {
	Pos    Pos
	Kind   ProbeKind
	Target string // a URL, HOST:PORT, or ""
}

// String is the probe as fleet.yaml writes it: a URL, "tcp HOST:PORT" or "controller".
func (p Probe) String() string {
	switch p.Kind {
	case ProbeTCP:
		return "tcp " + p.Target
	case ProbeController:
		return string(ProbeController)
	}
	return p.Target
}

// ProbeKind is how a probe is made.
type ProbeKind string

// Probes.
const (
	ProbeHTTP       ProbeKind = "http"       // GET answers with a status below 400
	ProbeTCP        ProbeKind = "tcp"        // a connection opens
	ProbeController ProbeKind = "controller" // a new connection to a controller opens
)

// Freeze is a time of each week in which no stage begins, by the clocks of a place.
type Freeze struct {
	From, To Moment
	Zone     string // of the IANA database
}

// Moment is a minute of the week.
type Moment struct {
	Day    time.Weekday
	Minute int // of the day, from 0
}

func (m Moment) String() string {
	return fmt.Sprintf("%s %02d:%02d", m.Day.String()[:3], m.Minute/60, m.Minute%60)
}

// String is the window as the file of a fleet has it.
func (f Freeze) String() string { return fmt.Sprintf("%s - %s %s", f.From, f.To, f.Zone) }

// String is the stage as the file of a fleet has it.
func (s Stage) String() string {
	switch {
	case s.PerClass > 0:
		return fmt.Sprintf("%d per class", s.PerClass)
	case s.Hosts > 0:
		return english.Plural(s.Hosts, "host")
	}
	return strconv.FormatFloat(s.Percent, 'f', -1, 64) + "%"
}

func defaultRollOut() RollOut {
	return RollOut{
		Stages: []Stage{{PerClass: 1}, {Percent: 5}, {Percent: 25}, {Percent: 100}},
		Settle: time.Minute, Confirm: time.Minute,
	}
}

// rollOut reads how new policies are rolled out.
func (f *file) rollOut(e source.Entry, r *RollOut) {
	r.Pos = f.At(e.Key)
	for _, k := range f.Known(e.Value, grammar.Of("roll-out")) {
		switch k.Name {
		case "stages":
			f.stages(k, r)
		case "settle":
			r.Settle = f.grace(k.Value, "settle")
		case "confirm":
			r.Confirm = f.duration(k.Value, "confirm")
		case "probes":
			for _, n := range f.List(k.Value, "probes") {
				if text, ok := f.Text(n, "a probe"); ok {
					p, wrong := parseProbe(text)
					if f.checked(n, wrong) {
						p.Pos = f.At(n)
						r.Probes = append(r.Probes, p)
					}
				}
			}
		case "halt":
			for _, k := range f.Known(k.Value, grammar.Of("halt")) {
				failed := valueOf(f, k.Value, "failed", parseFailed, Stage.failed)
				r.HaltHosts, r.HaltPercent = failed.Hosts, failed.Percent
			}
		case "on-halt":
			r.Hold = f.Either(k, "revert", "hold")
		case "freeze":
			for _, n := range f.List(k.Value, "freeze") {
				// Whether a host knows the zone is not asked: it rolls nothing out.
				window := valueOf(f, n, "freeze", func(s string) (Freeze, *problem) { return parseFreeze(s, f.here == "") }, Freeze.String)
				r.Freeze = append(r.Freeze, window)
			}
		}
	}
}

func (f *file) stages(k source.Entry, r *RollOut) {
	r.Stages = nil
	most := 0.0
	nodes := f.List(k.Value, "stages")
	for i, n := range nodes {
		before := len(f.errs)
		s := valueOf(f, n, "a stage", parseStage, Stage.String)
		r.Stages = append(r.Stages, s)
		switch {
		case len(f.errs) > before:
			return
		case s.Percent > 0 && s.Percent <= most:
			f.fail(f.At(n), "each stage includes those before it", "a stage of %s follows a stage of %s", s, Stage{Percent: most})
		case i == len(nodes)-1 && s.Percent != 100:
			f.fail(f.At(n), "end with 100%", "the last stage is %s, so some hosts would never get a new policy", s)
		}
		most = max(most, s.Percent)
	}
	if len(nodes) == 0 {
		f.fail(f.At(k.Key), "write stages: [1 per class, 100%]", "stages is empty")
	}
}

// mostHosts is far beyond what a fleet has.
const mostHosts = 1_000_000

func parseStage(s string) (Stage, *problem) {
	const hint = "write 1 per class, 3 hosts or 5%"
	bare := strings.TrimSpace(s)
	count, unit, _ := strings.Cut(bare, " ")
	switch unit = strings.Join(strings.Fields(unit), " "); {
	case strings.HasSuffix(bare, "%"):
		v, p := parsePercent(bare, hint)
		return Stage{Percent: v}, p
	case unit == "per class", unit == "hosts", unit == "host":
		n, p := parseNumber(count, "a stage", mostHosts)
		if p != nil {
			return Stage{}, p
		}
		if unit == "per class" {
			return Stage{PerClass: int(n)}, nil //nolint:gosec // at most mostHosts
		}
		return Stage{Hosts: int(n)}, nil //nolint:gosec // at most mostHosts
	}
	return Stage{}, problemf(hint, "%s is not a stage", source.Quote(s))
}

var percentSyntax = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([0-9]{1,3}(\.[0-9]{1,2})?)%$`) })

func parsePercent(s, hint string) (float64, *problem) {
	m := percentSyntax().FindStringSubmatch(strings.ReplaceAll(s, " ", ""))
	if m == nil {
		return 0, problemf(hint, "%s is not a percentage", source.Quote(s))
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil || v <= 0 || v > 100 {
		return 0, problemf("above 0% and at most 100%", "%s is not a percentage of hosts", source.Quote(s))
	}
	return v, nil
}

// parseFailed reads a number of hosts, or a percentage of them.
func parseFailed(s string) (Stage, *problem) {
	const hint = "write a number of hosts, or a percentage as in 1%"
	if strings.HasSuffix(s, "%") {
		v, p := parsePercent(s, hint)
		return Stage{Percent: v}, p
	}
	n, p := parseNumber(s, "failed", mostHosts)
	if p != nil && p.hint == "" {
		p.hint = hint
	}
	return Stage{Hosts: int(n)}, p //nolint:gosec // at most mostHosts
}

func (s Stage) failed() string {
	if s.Hosts > 0 {
		return strconv.Itoa(s.Hosts)
	}
	return s.String()
}

func parseProbe(s string) (Probe, *problem) {
	bare := strings.TrimSpace(s)
	target, isTCP := strings.CutPrefix(bare, "tcp ")
	switch {
	case bare == string(ProbeController):
		return Probe{Kind: ProbeController}, nil
	case isTCP:
		target = strings.TrimSpace(target)
		host, port, err := net.SplitHostPort(target)
		if err != nil || host == "" || strings.ContainsAny(host, " \t") {
			return Probe{}, problemf("write tcp HOST:PORT", "%s is not a host and a port", source.Quote(target))
		}
		_, p := parsePort(port)
		return Probe{Kind: ProbeTCP, Target: target}, p
	case strings.Contains(bare, "://"):
		return Probe{Kind: ProbeHTTP, Target: bare}, checkURL(bare)
	}
	return Probe{}, problemf("write https://HOST/PATH, tcp HOST:PORT or controller", "%s is not a probe", source.Quote(s))
}

var freezeSyntax = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\s*([A-Za-z]{3}) ([0-9]{2}):([0-9]{2})\s*-\s*([A-Za-z]{3}) ([0-9]{2}):([0-9]{2}) ([A-Za-z]+[A-Za-z0-9_+/-]*)\s*$`)
})

var weekdays = []string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}

func parseFreeze(s string, zones bool) (Freeze, *problem) {
	m := freezeSyntax().FindStringSubmatch(s)
	if m == nil {
		return Freeze{}, problemf("write Fri 16:00 - Mon 08:00 Europe/Berlin", "%s is not a period of the week", source.Quote(s))
	}
	out := Freeze{Zone: m[7]}
	for i, at := range []*Moment{&out.From, &out.To} {
		day, hour, minute := slices.Index(weekdays, m[3*i+1]), number(m[3*i+2]), number(m[3*i+3])
		switch {
		case day < 0:
			return out, problemf("write "+strings.Join(weekdays, ", "), "%s is not a day", source.Quote(m[3*i+1]))
		case hour > 23 || minute > 59:
			return out, problemf("from 00:00 to 23:59", "%s:%s is not a time of day", m[3*i+2], m[3*i+3])
		}
		*at = Moment{time.Weekday(day), 60*hour + minute}
	}
	if out.From == out.To {
		return out, problemf("", "%s begins and ends at the same time", source.Quote(s))
	}
	if zones {
		if _, err := time.LoadLocation(out.Zone); err != nil || out.Zone == "Local" {
			return out, problemf("write it as in Europe/Berlin, or UTC", "unknown time zone %s", source.Quote(out.Zone))
		}
	}
	return out, nil
}

func number(s string) int {
	n, _ := strconv.Atoi(s) // two digits
	return n
}
