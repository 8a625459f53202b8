package load

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/stats"
)

// Quantities of the figures of a load. Those "of each …" have a sample an
// interval, so that two runs can be compared.
const (
	requestsQuantity = "requests answered"
	latencyQuantity  = "latency, corrected"
	rawQuantity      = "latency, as measured"
	connectQuantity  = "time to connect"
	shakeQuantity    = "TLS handshake"
	errorsQuantity   = "errors"
	errorRate        = "errors of all kinds"
)

// subject is what tables and charts call a load, until Compare gives it a name.
const subject = "load"

// Section is a load as a table and charts.
func (r *Result) Section() figures.Section {
	s := figures.Section{Name: "load", Title: r.title(), Text: r.text(), Charts: r.charts()}
	r.figures(&s)
	return s
}

// title says what was asked.
func (r *Result) title() string {
	o := r.Options
	form := "kept alive"
	if o.NewConnections {
		form = "a new one for each request"
	}
	connections := "1 connection"
	if o.Connections > 1 {
		connections = figures.Number(float64(o.Connections)) + " connections"
	}
	pace := "closed loop"
	if o.Rate > 0 {
		pace = "open loop of " + figures.Number(o.Rate) + " requests/s"
	}
	return fmt.Sprintf("%s %s, %s, %s, %s, %s", cmp.Or(o.Method, http.MethodGet), o.URL, connections, form, pace, TimeText(r.Took))
}

// text is what a reader has to know.
func (r *Result) text() []string {
	out := []string{"Asked " + r.Address + "."}
	if r.Correction == FromIntended && r.Raw.TotalCount() > 0 {
		out[0] += fmt.Sprintf(" Latency counts from the intended start of each request, so nothing is omitted while the server stalls; 99 %% of the connections were woken at most %s late.",
			TimeText(time.Duration(r.Lateness.ValueAtPercentile(99))))
	} else if r.Raw.TotalCount() > 0 {
		out[0] += fmt.Sprintf(" Latency is corrected for coordinated omission with the expected interval, %s (the median as measured): while a connection waited longer, it left out requests.", TimeText(r.Expected))
	}
	if r.Late > 0 {
		out = append(out, fmt.Sprintf("%s of the answers came after the end, and are in the latencies alone.", count(r.Late)))
	}
	if r.Interrupted {
		out = append(out, fmt.Sprintf("Interrupted after %s.", TimeText(r.Took)))
	}
	return out
}

// figures of one load.
func (r *Result) figures(s *figures.Section) {
	add := func(row, quantity, unit string, more bool, of ...float64) {
		s.Add(figures.Figure{Case: row, Subject: subject, Quantity: quantity, Unit: unit, More: more, Samples: of})
	}
	each := "each " + r.every()
	add("in all", requestsQuantity, "1/s", true, r.Rate())
	add(each, requestsQuantity, "1/s", true, r.course(func(i Interval) float64 { return i.Rate() })...)

	r.times(s, latencyQuantity, r.Latency)
	r.times(s, rawQuantity, r.Raw)
	latency := func(row string, of func(Percentiles) time.Duration) {
		var course stats.Series
		for _, i := range r.whole() {
			if i.Latency.Count > 0 {
				course = append(course, milliseconds(of(i.Latency)))
			}
		}
		if len(course) > 0 {
			add(row, "latency of "+each, "ms", false, course...)
		}
	}
	latency("50 %", func(p Percentiles) time.Duration { return p.P50 })
	latency("90 %", func(p Percentiles) time.Duration { return p.P90 })
	latency("99 %", func(p Percentiles) time.Duration { return p.P99 })
	r.times(s, connectQuantity, r.Connect)
	r.times(s, shakeQuantity, r.Handshake)

	for _, k := range Kinds(r.Errors) {
		add(string(k), errorsQuantity, "requests", false, float64(r.Errors[k]))
	}
	if r.Unsent > 0 {
		add("no connection free until the end", errorsQuantity, "requests", false, float64(r.Unsent))
	}
	if r.Cut > 0 {
		add("under way when interrupted", errorsQuantity, "requests", false, float64(r.Cut))
	}
	add(each, errorRate, "1/s", false, r.course(func(i Interval) float64 { return perSecond(i.Failed(), i.To-i.From) })...)
	if r.Took > 0 {
		add("received", "volume", "MB/s", true, float64(r.Received)/1e6/r.Took.Seconds())
		add("sent", "volume", "MB/s", true, float64(r.Sent)/1e6/r.Took.Seconds())
		share := 100 * r.Processor.Seconds() / r.Took.Seconds()
		add("this process", "processor", "% of a core", false, share)
		if rate := r.Rate(); rate > 0 {
			add("this process, for 10,000 requests/s", "processor", "% of a core", false, share*10_000/rate)
		}
	}
}

// times are the percentiles of a histogram, in ms.
func (r *Result) times(s *figures.Section, quantity string, h *hdrhistogram.Histogram) {
	if h == nil || h.TotalCount() == 0 {
		return
	}
	p := PercentilesOf(h)
	for _, row := range []struct {
		name string
		time time.Duration
	}{{"50 %", p.P50}, {"90 %", p.P90}, {"99 %", p.P99}, {"99.9 %", p.P999}, {"longest", p.Max}} {
		s.Add(figures.Figure{Case: row.name, Subject: subject, Quantity: quantity, Unit: "ms", Samples: stats.Series{milliseconds(row.time)}})
	}
}

// whole are the intervals that were not cut short.
func (r *Result) whole() []Interval {
	return slices.DeleteFunc(slices.Clone(r.Intervals), func(i Interval) bool { return i.To-i.From < r.Options.Every })
}

// course is one figure a whole interval; without any, that of all the time.
func (r *Result) course(of func(Interval) float64) stats.Series {
	intervals := r.whole()
	if len(intervals) == 0 {
		intervals = r.Intervals
	}
	var s stats.Series
	for _, i := range intervals {
		s = append(s, of(i))
	}
	return s
}

// every is the name of an interval.
func (r *Result) every() string {
	if r.Options.Every == time.Second {
		return "second"
	}
	return r.Options.Every.String()
}

// Warnings say what weakens the figures, with what to do about it.
func (r *Result) Warnings() []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if n := r.Errors[NoPort]; n > 0 {
		say("%s times no local port was free: connections that ended keep theirs for a minute; give more local addresses by --bind, or widen net.ipv4.ip_local_port_range", count(n))
	}
	if n := r.Errors[NoFile]; n > 0 {
		say("%s times no file descriptor was free: raise the limit (ulimit -n)", count(n))
	}
	if n := r.Errors[Certificate]; n > 0 {
		say("%s times the server's certificate was not accepted; --insecure accepts any", count(n))
	}
	if n := r.Errors[NotPermitted]; n > 0 {
		say("%s times this host's own firewall did not permit the connection", count(n))
	}
	if r.Unsent > 0 {
		say("%s requests of the schedule were never sent, since all %d connections were busy: the server is slower than the schedule, or --connections is too small", count(r.Unsent), r.Options.Connections)
	}
	if n := r.redirected(); 2*n > r.Answered {
		say("%s answers were redirects, which are not followed: give the URL that they lead to", count(n))
	}
	if n := r.Connect.TotalCount() - int64(r.Options.Connections); !r.Options.NewConnections && n > 0 && uint64(n) > r.Answered/2 && len(r.Errors) == 0 {
		say("the server closes connections after an answer or two: they are not kept alive, and connecting is part of most latencies")
	}
	if r.Answered == 0 {
		say("nothing was answered")
	}
	if r.Lateness != nil && r.Lateness.TotalCount() > 0 {
		if late, typical := time.Duration(r.Lateness.ValueAtPercentile(99)), time.Duration(r.Latency.ValueAtPercentile(50)); late > typical && late > time.Millisecond {
			say("this machine was too busy to keep the schedule: 1 %% of the connections were woken more than %s late", TimeText(late))
		}
	}
	return out
}

// redirected is how many answers named another URL.
func (r *Result) redirected() (n uint64) {
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		n += r.Statuses[status]
	}
	return n
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func count(n uint64) string { return figures.Number(float64(n)) }

// TimeText is a time in three digits.
func TimeText(d time.Duration) string {
	switch {
	case d >= time.Second:
		return figures.Number(d.Seconds()) + " s"
	case d >= time.Millisecond:
		return figures.Number(milliseconds(d)) + " ms"
	}
	return figures.Number(1000*milliseconds(d)) + " µs"
}
