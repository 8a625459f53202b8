package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/lab/figures"
	"sluice/internal/lab/hostcharts"
	"sluice/internal/lab/load"
	"sluice/internal/system/hostwatch"
)

const (
	loadConnections = 50
	loadTime        = 10 * time.Second
	// loadGarbage leaves garbage longer than Go does by itself: a load makes little
	// that lasts, and collecting it would take time from what is measured.
	loadGarbage = 400
)

func newLoad() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "load URL | load --compare A B",
		Short: "Put a web server under load and draw its responses over time",
		Long: `Sends requests to a web server for --for and reports requests per second over time, latencies,
connect times, errors by kind, and bytes. On a terminal it draws requests per second and latency while
it runs; elsewhere it writes a line a second. Ctrl-C ends it with a report of what was measured.
Redirects are not followed.

By default it is a closed loop: each connection sends its next request when the last one is answered.
Latencies are corrected for requests that it could not send while the server stalled, by the expected
interval, and shown uncorrected too. With --rate it is an open loop: requests keep a schedule, and
latency counts from when each should have started. Latencies are of successful responses (status below
400) and of timeouts.

--watch-host records the use of the connection table, packets dropped by kernel function, and the
processors' share of softirq on the same time axis, for the namespaces of --netns-of or else this one.

--compare compares two loads: two files of --save, before and after, or two URLs, which then get the
load in turn (A, B, then B, A, each for --for in all). B is worse if intervals differ by more than
chance and medians by more than --least, as for "sluice-lab bench diff".

` + reportHelp + `

Exit status: 0 measured, even if requests failed, 1 --compare found B worse, 2 bad use, bad input, or
no server answered, 130 interrupted.`,
		Example: `  sluice-lab load http://192.0.2.10/ --connections 5000 --new-connections --for 60s
  sluice-lab load https://www.example.net/ --rate 1000 --connections 200 --save before.json
  sluice-lab load http://192.0.2.10/ --watch-host --netns-of web
  sluice-lab load --compare before.json after.json`,
		Args: cobra.RangeArgs(1, 2),
		RunE: runLoad,
	}
	flags := cmd.Flags()
	flags.Int("connections", loadConnections, "keep up to `N` connections open")
	flags.Bool("new-connections", false, "open a connection for each request")
	flags.Float64("rate", 0, "send `N` requests per second on a schedule, however the server responds")
	command.AddTime(flags, "for", loadTime, "start requests for `TIME`")
	flags.Uint64("requests", 0, "end after `N` requests")
	command.AddTime(flags, "timeout", loadTime, "give up a connection or request after `TIME`")
	every := shortTime(time.Second)
	flags.Var(&every, "every", "show figures for intervals of `TIME` (also 100ms)")
	flags.StringSlice("bind", nil, "send from these local `ADDRESSES` in turn")
	flags.Var(&headers{}, "header", "also send the header `LINE` (\"Name: value\"); may be repeated")
	flags.String("method", "", "the HTTP `METHOD` (default GET, with --body POST)")
	flags.String("body", "", "send the contents of `FILE` (standard input for -)")
	flags.Bool("insecure", false, "accept any certificate")
	flags.Bool("watch-host", false, "also record the connection table, drops and softirq (needs root)")
	flags.StringSlice("netns-of", nil, "watch the network namespaces `NAMES` (implies --watch-host)")
	flags.Bool("compare", false, "compare two saved reports, or two URLs loaded in turn")
	flags.Float64("least", 0.02, "with --compare: the smallest `PART` that counts as a difference")
	command.Must(cmd.RegisterFlagCompletionFunc("netns-of", command.CompleteNetns))
	addReport(cmd)
	return cmd
}

// headers are lines of a request. What they say stays out of reports, since it may
// be a secret.
type headers struct{ lines []string }

func (h *headers) Set(line string) error {
	h.lines = append(h.lines, line)
	return nil
}

func (h *headers) String() string {
	var names []string
	for _, line := range h.lines {
		name, _, _ := strings.Cut(line, ":")
		names = append(names, name+": …")
	}
	return strings.Join(names, ", ")
}

func (h *headers) Type() string { return "string" }

// shortTime is a duration that may be a part of a second, unlike those of the
// policy.
type shortTime time.Duration

func (t *shortTime) Set(text string) error {
	if strings.HasSuffix(text, "ms") {
		d, err := time.ParseDuration(text)
		if err != nil || d < time.Millisecond {
			return errors.New("not a duration\nhint: write 100ms or 1s")
		}
		*t = shortTime(d)
		return nil
	}
	var d command.Time
	err := d.Set(text)
	if err == nil && d == 0 {
		err = errors.New("an interval must be longer than 0\nhint: write 100ms or 1s")
	}
	*t = shortTime(d)
	return err
}

func (t *shortTime) String() string { return time.Duration(*t).String() }

func (t *shortTime) Type() string { return "duration" }

func runLoad(cmd *cobra.Command, args []string) error {
	compare, _ := cmd.Flags().GetBool("compare")
	if want := map[bool]int{false: 1, true: 2}[compare]; len(args) != want {
		if !compare {
			return errors.New("give one URL\nhint: --compare A B compares two")
		}
		return errors.New("--compare needs two URLs, or two files of --save")
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second one ends at once

	if compare {
		return runLoadCompare(ctx, cmd, args)
	}
	o, err := loadOptions(cmd)
	if err != nil {
		return err
	}
	o.URL = args[0]
	spaces, err := watchedSpaces(cmd)
	if err != nil {
		return err
	}
	defer debug.SetGCPercent(debug.SetGCPercent(loadGarbage))

	r := startReport(cmd, args, "Load on "+args[0])
	var watch *hostwatch.Watch
	watchFrom := time.Now()
	if spaces != nil {
		if watch, err = hostwatch.Start(ctx, hostwatch.Options{Namespaces: spaces, Every: o.Every, From: watchFrom}); err != nil {
			return err
		}
	}
	view := newLoadView(cmd, o.For)
	o.Progress = view.tick
	result, err := load.Run(ctx, o)
	view.done()
	var seen hostwatch.Result
	if watch != nil {
		seen = watch.Stop()
	}
	if err != nil {
		return err
	}
	section := result.Section()
	r.Sections = []figures.Section{section}
	if watch != nil {
		r.Sections[0].Charts = append(section.Charts, shifted(hostcharts.Draw(seen, "time"), watchFrom.Sub(result.Start))...)
		if host, some := hostSection(seen); some {
			r.Sections = append(r.Sections, host)
		}
		r.Warnings = append(r.Warnings, hostWarnings(seen)...)
	}
	r.Warnings = append(r.Warnings, result.Warnings()...)
	if err := finishReport(cmd, r); err != nil {
		return err
	}
	printLoadCourses(cmd, r)
	if result.Interrupted {
		return context.Canceled
	}
	return unanswered(result)
}

// unanswered is an error where no server answered anything, be it an error: then there is
// nothing in the figures but how long it took to find out.
func unanswered(results ...*load.Result) error {
	for _, r := range results {
		if r.Answered > 0 || len(r.Statuses) > 0 {
			return nil
		}
	}
	text := fmt.Sprintf("nothing was measured: %s answered nothing", results[0].Options.URL)
	if len(results) > 1 {
		text = fmt.Sprintf("nothing was measured: neither %s nor %s answered anything", results[0].Options.URL, results[1].Options.URL)
	}
	return errors.New(text)
}

// loadOptions are those of the command line, except for the URL.
func loadOptions(cmd *cobra.Command) (load.Options, error) {
	flags := cmd.Flags()
	o := load.Options{For: command.TimeOf(flags, "for"), Timeout: command.TimeOf(flags, "timeout")}
	if every, is := flags.Lookup("every").Value.(*shortTime); is {
		o.Every = time.Duration(*every)
	}
	for _, name := range []string{"for", "timeout"} {
		if command.TimeOf(flags, name) <= 0 {
			return o, fmt.Errorf("--%s must be longer than 0, such as 1s", name)
		}
	}
	o.Connections, _ = flags.GetInt("connections")
	if o.Connections < 1 {
		return o, fmt.Errorf("--connections %d is not a number of connections", o.Connections)
	}
	o.NewConnections, _ = flags.GetBool("new-connections")
	o.Rate, _ = flags.GetFloat64("rate")
	if flags.Changed("rate") && !(o.Rate > 0) {
		return o, fmt.Errorf("--rate %v is not a number of requests per second", o.Rate)
	}
	o.Requests, _ = flags.GetUint64("requests")
	o.Insecure, _ = flags.GetBool("insecure")
	if h, is := flags.Lookup("header").Value.(*headers); is {
		o.Header = h.lines
	}
	bind, _ := flags.GetStringSlice("bind")
	for _, text := range bind {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return o, fmt.Errorf("--bind %q is not an address", text)
		}
		o.Bind = append(o.Bind, addr)
	}
	o.Method, _ = flags.GetString("method")
	file, _ := flags.GetString("body")
	if file == "" {
		return o, nil
	}
	if o.Method == "" {
		o.Method = "POST"
	}
	var err error
	if file == "-" {
		o.Body, err = io.ReadAll(cmd.InOrStdin())
	} else {
		o.Body, err = command.ReadFile(file)
	}
	return o, err
}
