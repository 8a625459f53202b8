package stories

import (
	"context"
	"fmt"
	"time"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/stats"
)

// loop is how requests per second are compared: rounds in which every site is asked in
// turn, in a closed loop with a new connection for each request.
type loop struct {
	rounds      int
	each        time.Duration
	requests    map[string]uint64 // by page, where it ends by number
	connections int
}

// usualLoop is enough for a limit of some per cent. In the kernel lab time is a number
// of instructions, whatever the machine does, so a few requests tell as much as many;
// one at a time, so that none waits for another. The rounds are as many as it takes for
// one in which the kernel cleaned its table not to be a bound.
func (s *Stage) usualLoop() loop {
	l := loop{rounds: 15, each: time.Second, connections: 16}
	if s.report.Machine.Counted {
		l = loop{rounds: 9, each: time.Minute, requests: map[string]uint64{smallPage: 100, webPage: 25}, connections: 1}
	}
	if s.Short {
		l.rounds, l.each = 3, min(l.each, 100*time.Millisecond)
		if l.requests != nil {
			l.each, l.requests = time.Minute, map[string]uint64{smallPage: 50, webPage: 15}
		}
	}
	return l
}

// pages are compared one by one. What the stories ask ("within 3 %") names no page, so
// each has a goal of its own.
var pages = []struct{ page, name, goal string }{
	{webPage, fmt.Sprintf("a page of %d KiB, compressed", webPageSize>>10), fmt.Sprintf("a page of %d KiB that is compressed", webPageSize>>10)},
	{smallPage, "the smallest page", "the smallest page"},
}

// compare asks the sites for a page in turn, the order changing from round to round,
// and gives requests per second of each.
func (s *Stage) compare(ctx context.Context, l loop, page string, sites ...*site) (map[*site]stats.Series, error) {
	rates := map[*site]stats.Series{}
	for round := range l.rounds + 1 {
		for i := range sites {
			site := sites[(i+round)%len(sites)]
			a, err := s.ask(ctx, site.client, Asking{
				URL: site.url + page, Connections: l.connections, NewConnections: true, For: l.each, Requests: l.requests[page], Timeout: 10 * time.Second,
			})
			if err != nil {
				return nil, err
			}
			if len(a.Failed) > 0 {
				s.Warn("%s: requests failed in the comparison: %v", site.name, a.Failed)
			}
			// The first round finds neighbours and fills caches.
			if round > 0 {
				rates[site] = append(rates[site], a.Rate())
			}
		}
		s.Say("round %d of %d", round, l.rounds)
	}
	return rates, nil
}

// comparison is what each site costs beside the bare one, for every page.
type comparison struct {
	bare, again *site
	others      []*site
	over        map[string]map[*site]stats.Series // by page: time for a request over that of the bare site
}

// compareAll fills a section with requests per second of the sites, for every page.
func (s *Stage) compareAll(ctx context.Context, section *figures.Section, bare, again *site, others ...*site) (*comparison, error) {
	l := s.usualLoop()
	c := &comparison{bare: bare, again: again, others: others, over: map[string]map[*site]stats.Series{}}
	all := append([]*site{bare, again}, others...)
	for _, p := range pages {
		s.Say("what a request costs: %s, %d rounds", p.name, l.rounds)
		rates, err := s.compare(ctx, l, p.page, all...)
		if err != nil {
			return nil, err
		}
		c.over[p.page] = map[*site]stats.Series{}
		for _, w := range all {
			section.Add(figures.Figure{Case: p.name, Subject: w.name, Quantity: "answered requests", Unit: "1/s", More: true, Samples: rates[w]})
		}
		for _, w := range all[1:] {
			c.over[p.page][w] = rates[bare].Per(rates[w])
			section.Add(figures.Figure{Case: p.name, Subject: w.name, Quantity: "time for a request, over that of " + bare.name, Unit: "×", Samples: c.over[p.page][w]})
		}
		if s.report.Machine.Counted {
			cost := func(w *site) stats.Series {
				out := make(stats.Series, len(rates[w]))
				for i, rate := range rates[w] {
					out[i] = 1e9 / rate
				}
				return out
			}
			section.Add(figures.Figure{Case: p.name, Subject: bare.name, Quantity: "a request at both ends, in client, kernel and nginx", Unit: "instructions", Samples: cost(bare)})
			for _, w := range all[1:] {
				section.Add(figures.Figure{Case: p.name, Subject: w.name, Quantity: "added to a request", Unit: "instructions", Samples: cost(w).Minus(cost(bare))})
			}
		}
	}
	return c, nil
}

// within makes a goal of what a site costs over the bare one, for each page.
func (s *Stage) within(c *comparison, w *site, limit float64) {
	for _, p := range pages {
		s.Goal(figures.AtMost(fmt.Sprintf("%s, %s: time for a request over that of %s", w.name, p.goal, c.bare.name), "×", limit,
			c.over[p.page][w], c.over[p.page][c.again]))
	}
}
