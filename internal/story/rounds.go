package story

import (
	"context"
	"time"

	"sluice/internal/figures"
	"sluice/internal/samples"
)

// loop is how requests per second are compared: rounds in which every site is asked in
// turn, in a closed loop with a new connection for each request.
type loop struct {
	rounds      int
	each        time.Duration
	connections int
}

// usualLoop is enough for a limit of some per cent. In the kernel lab a second is a
// milliard of instructions, and takes several in real time.
func (s *Stage) usualLoop() loop {
	switch {
	case s.Short:
		return loop{3, 100 * time.Millisecond, 8}
	case s.report.Machine.Counted:
		return loop{7, 200 * time.Millisecond, 8}
	}
	return loop{15, time.Second, 16}
}

// compare asks the sites in turn, the order changing from round to round, and gives
// requests per second of each.
func (s *Stage) compare(ctx context.Context, l loop, sites ...*site) (map[*site]samples.Series, error) {
	rates := map[*site]samples.Series{}
	for round := range l.rounds + 1 {
		for i := range sites {
			site := sites[(i+round)%len(sites)]
			a, err := s.ask(ctx, site.client, Asking{
				URL: site.url, Connections: l.connections, NewConnections: true, For: l.each, Timeout: 10 * time.Second,
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

// rateFigures puts the requests per second of each site into a section, and what each
// request costs where time is counted in instructions.
func (s *Stage) rateFigures(section *figures.Section, what string, rates map[*site]samples.Series, sites ...*site) {
	for _, site := range sites {
		section.Add(figures.Figure{
			Case: what, Subject: site.name, Quantity: "answered requests", Unit: "1/s", More: true, Samples: rates[site],
		})
	}
	if !s.report.Machine.Counted {
		return
	}
	for _, site := range sites {
		cost := make(samples.Series, len(rates[site]))
		for i, rate := range rates[site] {
			cost[i] = 1e9 / rate
		}
		section.Add(figures.Figure{
			Case: what, Subject: site.name, Quantity: "cost of a request: client, both ends' kernel and nginx", Unit: "instructions", Samples: cost,
		})
	}
}

// perRequest is how much more a request of one site takes than one of another.
func perRequest(rates map[*site]samples.Series, of, than *site) samples.Series {
	return rates[than].Per(rates[of])
}
