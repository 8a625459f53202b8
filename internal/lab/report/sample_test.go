package report

import (
	"math"
	"math/rand/v2"
	"time"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/stats"
	"sluice/internal/system/host"
)

// sample is a report with one of everything: tables with wide and with narrow
// spans, figures near zero, notes in place of figures, growth, courses over time.
func sample() *figures.Report {
	random := rand.New(rand.NewPCG(1, 2))
	rounds := func(median, spread float64) stats.Series {
		s := make(stats.Series, 11)
		for i := range s {
			s[i] = median * (1 + spread*random.NormFloat64())
		}
		return s
	}
	r := &figures.Report{
		Schema: figures.Schema, Title: "What packets pay under examples/only-europe.yaml", Version: "0.6.0",
		Command: "sluice-lab bench packet --against=nftables-set,chain-per-/8,ipset,iptables-linear,hash-per-length examples/only-europe.yaml",
		When:    time.Date(2026, 11, 21, 19, 30, 0, 0, time.UTC), Took: 312, Seed: 7,
		Machine:  host.Machine{Kernel: "6.18.44", Processors: 2, Processor: "a processor of some make", Load: 0.42},
		Warnings: []string{"ufw is left out: it is not installed"},
	}
	packet := figures.Section{Name: "packet", Title: "Nanoseconds that a packet pays, over the bare stack", Text: []string{
		"Packets from 65,536 addresses are put into the device of a namespace, one subject after the other in each of 11 rounds; what the same namespace takes without rules is subtracted.",
	}}
	cost := []float64{90, 104, 640, 1200, 3300, 1770}
	for i, c := range []string{"IPv4, banned", "IPv4, blocked new", "IPv4, allowed new", "IPv4, established", "IPv4, bypassed service", "IPv6, blocked new", "IPv6, allowed new", "IPv4, forwarded established"} {
		for j, s := range []string{"sluice", "nftables-set", "ipset", "chain-per-/8", "iptables-linear", "hash-per-length"} {
			f := figures.Figure{Case: c, Subject: s, Quantity: "added per packet", Unit: "ns", Samples: rounds(cost[j]*(0.6+float64(i)*0.13), 0.05)}
			switch {
			case i == 4 && j == 0:
				f.Samples = rounds(1, 3)
			case i >= 5 && j == 3:
				f.Samples, f.Note = nil, "cannot say IPv6"
			}
			packet.Add(f)
		}
	}
	for _, s := range []string{"sluice", "sluice, again", "nftables-set", "ipset"} {
		packet.Add(figures.Figure{Case: "all kinds, mean", Subject: s, Quantity: "ratio to sluice", Unit: "×", Samples: rounds(1+float64(len(s)%4), 0.02)})
	}
	scale := figures.Chart{Title: "Growth with the number of prefixes", X: figures.Axis{Name: "prefixes", Log: true}, Y: figures.Axis{Name: "added per packet", Unit: "ns", Log: true}}
	for j, s := range []string{"sluice", "nftables-set", "iptables-linear"} {
		l := figures.Line{Name: s}
		for k, n := range []float64{1e3, 1e4, 1e5, 1e6} {
			y := []float64{80, 300, 700}[j] * math.Pow([]float64{1.15, 1.4, 8}[j], float64(k))
			l.Points = append(l.Points, figures.Point{X: n, Y: y, Low: y * 0.9, High: y * 1.15})
		}
		scale.Lines = append(scale.Lines, l)
	}
	packet.Charts = []figures.Chart{scale}
	load := figures.Section{Name: "load", Title: "Loading the rules"}
	for _, s := range []string{"sluice", "nftables-set", "ipset"} {
		load.Add(figures.Figure{Case: "load", Subject: s, Quantity: "time", Unit: "s", Samples: rounds(0.3*float64(len(s)), 0.1)})
		load.Add(figures.Figure{Case: "one element more", Subject: s, Quantity: "time", Unit: "s", Samples: rounds(0.004*float64(len(s)), 0.1)})
		load.Add(figures.Figure{Case: "load", Subject: s, Quantity: "peak memory", Unit: "bytes", Samples: stats.Series{42e6 * float64(len(s))}})
	}
	load.Add(figures.Figure{Case: "reload under a flood", Subject: "sluice", Quantity: "packets wrongly treated", Unit: "packets", Samples: stats.Series{0, 0, 0}})
	r.Sections = append(r.Sections, packet, load, story(random))
	r.Goals = []figures.Goal{
		figures.AtMost("added cost of a blocked packet against ipset", "×", 0.5, rounds(0.09, 0.04), rounds(1, 0.01)),
		figures.AtMost("packets wrongly treated while reloading", "packets", 0, stats.Series{0, 0, 0}, nil),
		figures.AtLeast("requests per second against no firewall", "×", 0.97, rounds(0.955, 0.003), rounds(1, 0.003)),
		figures.AtMost("established against bare", "×", 1.05, rounds(1.04, 0.003), rounds(1.02, 0.01)),
	}
	return r
}

// story is courses over time.
func story(random *rand.Rand) figures.Section {
	s := figures.Section{Name: "story", Title: "The incident, second by second", Text: []string{"nginx behind DNAT, 5,000 connections; the table is sized at 25 s, and left alone at 45 s."}}
	course := func(title, name, unit string, names []string, f func(line int, at float64) float64) figures.Chart {
		c := figures.Chart{Title: title, Group: "time", X: figures.Axis{Name: "time", Unit: "s"}, Y: figures.Axis{Name: name, Unit: unit}}
		for i, n := range names {
			l := figures.Line{Name: n}
			for at := 1; at <= 60; at++ {
				l.Points = append(l.Points, figures.Point{X: float64(at), Y: f(i, float64(at))})
			}
			c.Lines = append(c.Lines, l)
		}
		return c
	}
	noise := func() float64 { return 1 + 0.05*random.NormFloat64() }
	requests := course("Requests answered", "requests", "1/s", []string{"nginx"}, func(_ int, at float64) float64 {
		switch {
		case at < 25:
			return 76 * noise()
		case at < 45:
			return 6300 * noise()
		}
		return 6576 * noise()
	})
	requests.Marks = []figures.Mark{{X: 3, Text: "the table is full"}, {X: 25, Text: "sluice apply sized.yaml"}, {X: 45, Text: "sluice apply stateless.yaml"}}
	table := course("Connection table", "entries", "", []string{"entries", "limit"}, func(i int, at float64) float64 {
		limit := 1000.0
		if at >= 25 {
			limit = 8192
		}
		if i == 1 {
			return limit
		}
		return min(limit, at*at*120) * map[bool]float64{true: 0, false: 1}[at >= 45]
	})
	table.Lines[1].Step = true
	drops := course("Packets dropped, by kernel function and reason", "rate", "packets/s", []string{"nf_hook_slow, NETFILTER_DROP", "tcp_v4_rcv, TCP_RESET"}, func(i int, at float64) float64 {
		if at > 25 || at < 3 {
			return 0
		}
		return 4200 * noise() / float64(i*12+1)
	})
	softirq := course("Receiving packets (softirq), share of each processor", "share", "%", []string{"processor 0", "processor 1"}, func(i int, _ float64) float64 { return (20 + 15*float64(i)) * noise() })
	s.Charts = []figures.Chart{requests, table, drops, softirq}
	for i, c := range []string{"as in the story", "table sized", "stateless"} {
		s.Add(figures.Figure{Case: c, Subject: "nginx", Quantity: "requests per second", Unit: "1/s", More: true, Samples: stats.Series{[]float64{76, 6300, 6576}[i], []float64{78, 6310, 6590}[i], []float64{75, 6290, 6570}[i]}})
	}
	for i, c := range []string{"median", "99 %", "longest"} {
		s.Add(figures.Figure{Case: c, Subject: "as in the story", Quantity: "latency", Unit: "s", Samples: stats.Series{[]float64{1.02, 31, 65}[i]}})
		s.Add(figures.Figure{Case: c, Subject: "stateless", Quantity: "latency", Unit: "s", Samples: stats.Series{[]float64{0.0007, 0.0021, 0.013}[i]}})
	}
	return s
}
