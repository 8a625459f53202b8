package stories

import (
	"context"
	"fmt"
	"time"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/stats"
	"sluice/internal/lab/testnet"
)

var one = Story{
	Number: 1,
	Title:  "A load test fills the connection table",
	Incident: "A web site is tested behind a usual firewall that keeps connection state: 91 requests a second, with time-outs; with the firewall off 926. " +
		"The table had room for 8,192 connections and was full (nf_conntrack: table full, dropping packet), which nobody saw for long, since no load tester drew requests over time and nothing said that the table was full. " +
		"A ruleset written by hand that leaves web traffic untracked did as well as no firewall.",
	Needs:    []testnet.Feature{testnet.Program("nginx"), testnet.Program("iptables")},
	Programs: webPrograms,
	Machine:  true,
	Run:      playOne,
}

const (
	webAddress    = "198.51.100.10"
	clientAddress = "198.51.100.20"
)

// trackedRules are what firewalls for one host write: state first, then services.
var trackedRules = [][]string{
	{"-A", "INPUT", "-i", "lo", "-j", "ACCEPT"},
	{"-A", "INPUT", "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT"},
	{"-A", "INPUT", "-m", "conntrack", "--ctstate", "INVALID", "-j", "DROP"},
	{"-A", "INPUT", "-p", "icmp", "--icmp-type", "echo-request", "-j", "ACCEPT"},
	{"-A", "INPUT", "-p", "tcp", "--dport", "22", "-j", "ACCEPT"},
	{"-A", "INPUT", "-p", "tcp", "--dport", "80", "-j", "ACCEPT"},
	{"-A", "INPUT", "-p", "tcp", "--dport", "443", "-j", "ACCEPT"},
	{"-P", "INPUT", "DROP"},
}

// untrackedByHand are the story's own way out: state is kept, but not of web traffic.
const untrackedByHand = `table inet filter {
	chain prerouting {
		type filter hook prerouting priority raw; policy accept;
		tcp dport { 80, 443 } notrack
	}
	chain output {
		type filter hook output priority raw; policy accept;
		tcp sport { 80, 443 } notrack
	}
	chain input {
		type filter hook input priority filter; policy drop;
		iifname "lo" accept
		ct state established,related accept
		ct state invalid drop
		icmp type echo-request accept
		tcp dport 22 accept
		tcp dport { 80, 443 } accept
	}
}
`

const answerOne = `version: 1
tracking:
  bypass: [http to 198.51.100.10]
input:
  default: drop
  rules:
    - allow ssh from 203.0.113.0/24
    - allow http
    - allow icmp echo-request
`

// oneSize is how large the story is played.
type oneSize struct {
	table int
	rate  float64
	spell time.Duration
}

func (s *Stage) oneSize() oneSize {
	if s.Short {
		return oneSize{table: 256, rate: 100, spell: 5 * time.Second}
	}
	return oneSize{table: 8192, rate: 400, spell: 45 * time.Second}
}

// webSite is a client and a web server with nginx, joined by a cable.
func (s *Stage) webSite(label, name string) (*site, error) {
	w := &site{name: name, client: s.Net.Namespace(label + "-client"), host: s.Net.Namespace(label), url: "http://" + webAddress + "/"}
	s.Net.Join(
		testnet.End{In: w.client, Device: "eth0", Addresses: []string{clientAddress + "/24"}},
		testnet.End{In: w.host, Device: "eth0", Addresses: []string{webAddress + "/24"}},
	)
	return w, s.startNginx(w.host)
}

func playOne(ctx context.Context, s *Stage) error {
	size := s.oneSize()
	if err := raiseFiles(); err != nil {
		return err
	}
	s.Say("five web servers, each with a client of its own")
	var sites [5]*site
	for i, name := range []string{"no firewall", "no firewall, again", "tracked firewall", "untracked by hand", "Sluice, web untracked"} {
		var err error
		if sites[i], err = s.webSite([]string{"none", "again", "tracked", "hand", "sluice"}[i], name); err != nil {
			return err
		}
	}
	none, again, tracked, byHand, sluice := sites[0], sites[1], sites[2], sites[3], sites[4]
	for _, rule := range trackedRules {
		tracked.host.MustRun("iptables", rule...)
	}
	byHand.host.Nft(untrackedByHand)
	if err := s.LimitTable(size.table, 0); err != nil {
		return err
	}

	ask := Asking{Connections: 500, NewConnections: true, Rate: size.rate, For: size.spell, Timeout: 5 * time.Second, Every: time.Second}
	section := s.Section("course", "The load test, before and after")
	var courses []*course
	for _, w := range []*site{none, tracked} {
		s.Say("%s: %.0f requests a second for %s, each with a new connection", w.name, ask.Rate, ask.For)
		log := openKernelLog()
		var diagnosed func() ([]string, error)
		during, stop := context.WithCancel(ctx)
		defer stop()
		if w == tracked {
			diagnosed = s.diagnoseFull(during, w.host, size.table)
		}
		c, err := s.watch(ctx, w, ask)
		if err != nil {
			return err
		}
		courses = append(courses, c)
		lines := log.lines("nf_conntrack: table full")
		if w != tracked {
			continue
		}
		evidence, shown, err := c.fullTable(size.table, lines, courses[0])
		if err != nil {
			return err
		}
		if !shown {
			return fmt.Errorf("the incident did not happen: the table was not full, or nothing was dropped\n%v", evidence)
		}
		diagnosis, err := diagnosed()
		if err != nil {
			return err
		}
		evidence = append(evidence, diagnosis...)
		s.Found(fmt.Sprintf("The connection table is full: every request takes one of its %d entries and keeps it long after the connection is closed. "+
			"The first packet of a new connection finds no entry and is dropped, before any rule is asked; the client waits and sends it again.", size.table), evidence...)
	}

	file, err := s.Answer("web.yaml", "The answer: web traffic keeps no connection state", answerOne)
	if err != nil {
		return err
	}
	if _, err := s.Apply(ctx, sluice.host, file); err != nil {
		return err
	}
	s.Say("%s: the same load", sluice.name)
	c, err := s.watch(ctx, sluice, ask)
	if err != nil {
		return err
	}
	courses = append(courses, c)
	s.oneCourse(section, size, courses)
	s.Goal(figures.AtMost("entries of the connection table for the web service, at most", "", 0, stats.Series{c.mostEntries()}, nil))

	return s.oneRates(ctx, none, again, tracked, byHand, sluice)
}

// oneCourse writes what the load found over time.
func (s *Stage) oneCourse(section *figures.Section, size oneSize, courses []*course) {
	section.Text = append(section.Text, fmt.Sprintf("Each web server was asked %.0f times a second for %s, by schedule, each time with a new connection; the table has room for %d. "+
		"The charts share one time axis, which starts again for each server.", size.rate, size.spell, size.table))
	for _, c := range courses {
		add := func(quantity, unit string, more bool, value float64) {
			c.figure(section, "over the whole time", quantity, unit, more, value)
		}
		last := c.asked.Intervals[len(c.asked.Intervals)-1]
		add("answered requests", "1/s", true, c.asked.Rate())
		add("answered requests in the last second", "1/s", true, last.Rate())
		add("failed requests", "requests", false, c.failed())
		add("entries of the table, at most", "entries", false, c.mostEntries())
		add("median time to connect", "ms", false, milliseconds(c.asked.Connect.P50))
		add("latency, 99th percentile, time-outs too", "ms", false, milliseconds(c.asked.Latency.P99))
	}
	section.Charts = overTime("course", size.table, courses[1], courses...)
	tracked := courses[1].asked
	s.Honest("The story has 91 requests a second with the table full. Here %.0f of %.0f asked a second were answered over the whole time, and %.0f in its last second: the rate that is left depends on how long the test goes on and on what the kernel throws out, and a test that is shorter than the time-outs of the table sees little of it.",
		tracked.Rate(), size.rate, tracked.Intervals[len(tracked.Intervals)-1].Rate())
	s.Honest("The story's firewall was ufw. Here its place is taken by rules of iptables with the same use of connection state, since it is the table that fails, whoever writes the rules.")
	s.Honest("Client and server share the processors of one machine, and no real network lies between them: figures in requests per second are those of this machine, ratios are what carries over.")
}

// oneRates compares what a request costs when nothing fails: the table is as large as
// it usually is.
func (s *Stage) oneRates(ctx context.Context, none, again, tracked, byHand, sluice *site) error {
	if err := s.usualTable(262144); err != nil {
		return err
	}
	section := s.Section("rate", "What the firewall costs when nothing fails",
		"Closed loop, a new connection for each request, the sites in turn in every round. The table is large enough here: what the tracked firewall loses is what it takes to keep state.",
		fmt.Sprintf("A page of a web site is %d KiB of text that nginx compresses for each client, as it does for browsers. The smallest page is one line that nginx has at hand: there is no request that a firewall weighs more in.", webPageSize>>10))
	c, err := s.compareAll(ctx, section, none, again, tracked, byHand, sluice)
	if err != nil {
		return err
	}
	s.within(c, sluice, 1.03)
	small := func(w *site) float64 { return c.over[smallPage][w].Estimate().Median }
	s.Honest("For the smallest page the time of a request behind Sluice is %.3f times that without a firewall: what the hooks before connection tracking and in input ask of every packet is no longer small beside a request that does next to nothing. "+
		"Rules by hand that leave web traffic untracked take %.3f times, the tracked firewall %.3f. Sluice asks more than those by hand: for the web server's address as well as the port, so that other web traffic keeps its state.",
		small(sluice), small(byHand), small(tracked))
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
