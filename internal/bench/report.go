package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"sluice/internal/samples"

	"golang.org/x/sys/unix"
)

// Verdicts on a figure.
const (
	reached    = "yes"
	notReached = "NO"
	unsure     = "not shown" // within the limit, but the machine is too noisy to say so
	missing    = "missing"
	shown      = "" // nothing was asked
)

// figure is one line of the summary.
type figure struct {
	Section  string            `json:"section"`
	Name     string            `json:"figure"`
	Asked    string            `json:"asked,omitempty"`
	Measured string            `json:"measured"`
	Ratio    *samples.Estimate `json:"ratio,omitempty"`
	Limit    float64           `json:"limit,omitempty"`
	Same     *samples.Estimate `json:"same-against-itself,omitempty"`
	Reached  string            `json:"reached,omitempty"`
}

// table is what a section shows beside its figures.
type table struct {
	Section string     `json:"section"`
	Title   string     `json:"title"`
	Head    []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
}

type report struct {
	out     io.Writer
	current string
	Machine struct {
		Kernel  string    `json:"kernel"`
		CPU     string    `json:"processor"`
		CPUs    int       `json:"processors"`
		Seed    uint64    `json:"seed"`
		Short   bool      `json:"short"`
		Started time.Time `json:"started"`
		Load    float64   `json:"load-average"` // of the last minute, before the run
	} `json:"machine"`
	Figures []figure `json:"figures"`
	Tables  []table  `json:"tables"`
}

func newReport(out io.Writer) *report { return &report{out: out} }

func (r *report) say(format string, args ...any) { fmt.Fprintf(r.out, format+"\n", args...) }

func (r *report) title(section, what string) {
	r.current = section
	r.say("\n%s: %s", section, what)
}

func (r *report) environment(seed uint64, short bool) {
	m := &r.Machine
	m.Seed, m.Short, m.Started, m.CPUs = seed, short, time.Now().Truncate(time.Second), runtime.NumCPU()
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	load, _ := os.ReadFile("/proc/loadavg")
	_, _ = fmt.Sscan(string(load), &m.Load)
	r.say("kernel %s, %d processors (%s), %s, load average %.2f, seed %d",
		m.Kernel, m.CPUs, m.CPU, m.Started.Format("2006-01-02 15:04 MST"), m.Load, seed)
}

func (r *report) table(title string, head []string, rows [][]string) {
	r.Tables = append(r.Tables, table{r.current, title, head, rows})
	r.say("  %s", title)
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "  %s\t\n", strings.Join(head, "\t"))
	for _, row := range rows {
		fmt.Fprintf(w, "  %s\t\n", strings.Join(row, "\t"))
	}
	_ = w.Flush()
}

// ratio reports a ratio beside its limit. The two series are of the same rounds.
func (r *report) ratio(name, asked string, limit float64, ratio, same samples.Series) {
	j := samples.Judge(ratio, same, limit)
	f := figure{
		Section: r.current, Name: name, Asked: asked, Limit: limit, Ratio: &j.Ratio, Same: &j.Same,
		Measured: fmt.Sprintf("%.3g ×", j.Ratio.Median), Reached: notReached,
	}
	switch {
	case limit == 0:
		f.Reached = shown
	case j.Reached():
		f.Reached = reached
	case j.Ratio.Median <= limit:
		f.Reached = unsure
	}
	r.figure(f)
}

// atMost reports a figure that is not a ratio.
func (r *report) atMost(name, unit string, value samples.Estimate, limit float64) {
	f := figure{
		Section: r.current, Name: name, Measured: fmt.Sprintf("%.3g %s", value.Median, unit),
		Ratio: &value, Limit: limit, Reached: notReached,
	}
	switch {
	case limit == 0:
		f.Reached = shown
	case value.High <= limit:
		f.Reached = reached
	case value.Median <= limit:
		f.Reached = unsure
	}
	if limit != 0 {
		f.Asked = fmt.Sprintf("≤ %g %s", limit, unit)
	}
	r.figure(f)
}

// note reports a figure that nothing was asked of.
func (r *report) note(name, measured string) {
	r.figure(figure{Section: r.current, Name: name, Measured: measured})
}

func (r *report) absent(name, asked, why string) {
	r.figure(figure{Section: r.current, Name: name, Asked: asked, Measured: why, Reached: missing})
}

func (r *report) figure(f figure) {
	r.Figures = append(r.Figures, f)
	interval, same, verdict := "", "", ""
	if f.Ratio != nil {
		interval = fmt.Sprintf(" [%.3g, %.3g]", f.Ratio.Low, f.Ratio.High)
	}
	if f.Same != nil {
		same = fmt.Sprintf(", A/A %.3f", f.Same.Median)
	}
	if f.Reached != shown {
		verdict = ", asked " + f.Asked + ": " + f.Reached
	}
	r.say("  %s: %s%s%s%s", f.Name, f.Measured, interval, same, verdict)
}

// summary is the table of everything that was asked.
func (r *report) summary(took time.Duration) {
	if !slices.ContainsFunc(r.Figures, func(f figure) bool { return f.Reached != shown }) {
		return
	}
	r.say("\nWhat was asked, and whether it is reached (%.0f s; a bound is that of a 95 %% confidence interval)", took.Seconds())
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  figure\tasked\tmeasured\tbounds\tA/A\treached")
	for _, f := range r.Figures {
		if f.Reached == shown {
			continue
		}
		bounds, same := "", ""
		if f.Ratio != nil {
			bounds = fmt.Sprintf("%.3g – %.3g", f.Ratio.Low, f.Ratio.High)
		}
		if f.Same != nil {
			same = fmt.Sprintf("%.3f", f.Same.Median)
		}
		fmt.Fprintf(w, "  %s: %s\t%s\t%s\t%s\t%s\t%s\n", f.Section, f.Name, f.Asked, f.Measured, bounds, same, f.Reached)
	}
	_ = w.Flush()
}

func (r *report) writeJSON(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
