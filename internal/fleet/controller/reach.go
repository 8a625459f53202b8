package controller

import (
	"net/http"
	"time"

	"sluice/internal/fleet/api"
)

// Reach says who reaches which service of hosts.
func (o operator) Reach(w http.ResponseWriter, r *http.Request) {
	asked, fine := in[api.FleetReachQuestion](w, r)
	if !fine {
		return
	}
	only, err := o.asksAbout(asked.Hosts)
	if err != nil {
		o.done(w, nil, err)
		return
	}
	o.answer(w, r, as(r), asked.Texts, func(is *judging) (any, error) {
		since := time.Now()
		found, err := o.judge.Reach(is, is.next, only, asked.Service, is.progress)
		if err != nil {
			return nil, err
		}
		out := &api.FleetReach{Bundle: is.manifest.Number, Sources: []api.FleetReachSource{}, Targets: []api.FleetReachTarget{}, Cells: [][]api.FleetReachCell{}}
		seen, at := notes{}, map[api.FleetReachSource]int{}
		for _, c := range found.Of {
			for _, t := range c.Is.Targets {
				out.Targets = append(out.Targets, api.FleetReachTarget{Class: c.Name, Hosts: c.Hosts, Name: t.Name, Hook: t.Hook, Service: t.Service, To: t.To})
			}
			for _, s := range c.Is.Sources {
				source := api.FleetReachSource{Name: s.Name, Kind: s.Kind}
				if _, has := at[source]; !has {
					at[source] = len(out.Sources)
					out.Sources = append(out.Sources, source)
				}
			}
			seen.add(c.Is.Notes)
		}
		for range out.Sources {
			row := make([]api.FleetReachCell, len(out.Targets))
			for i := range row {
				row[i].Lines = []api.FleetReachLine{}
			}
			out.Cells = append(out.Cells, row)
		}
		first := 0 // of the targets of a class
		for _, c := range found.Of {
			for row, s := range c.Is.Sources {
				for column, cell := range c.Is.Cells[row] {
					to := &out.Cells[at[api.FleetReachSource{Name: s.Name, Kind: s.Kind}]][first+column]
					to.State = api.FleetReachState(cell.State)
					for _, l := range cell.Lines {
						to.Lines = append(to.Lines, api.FleetReachLine(l))
					}
				}
			}
			first += len(c.Is.Targets)
		}
		seen.add(found.Notes)
		out.Notes, out.Seconds = seen.all, time.Since(since).Seconds()
		return out, nil
	})
}
