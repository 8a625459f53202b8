package controller

import (
	"cmp"
	"maps"
	"net/http"
	"sync"
	"time"

	"sluice/internal/base/sorting"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/wire"
)

// mostFound is how many findings are told of at once.
const mostFound = 1000

// examined are what hosts have said last of what makes them slow or lossy. They are in memory alone.
type examined struct {
	mutex sync.Mutex
	of    map[string]found
}

type found struct {
	at  time.Time
	all []wire.Finding
}

func (f *examined) says(host string, is *wire.Findings, now time.Time) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.of == nil {
		f.of = map[string]found{}
	}
	f.of[host] = found{now, is.Findings}
}

// severities are in their order; what a newer host says comes behind them.
var severities = map[string]int{"error": -3, "warning": -2, "remark": -1}

// Findings reports those of the hosts that somebody may see.
func (o operator) Findings(w http.ResponseWriter, r *http.Request, params api.FindingsParams) {
	only, err := as(r).hosts(params.Hosts)
	if err != nil {
		o.done(w, nil, err)
		return
	}
	hosts := o.view.Load().hosts
	there, is := selects(nil, hosts), selects(only, hosts)
	out := api.FleetFindings{Findings: []api.FleetFinding{}}
	if only != nil {
		out.Hosts = only.String()
	}
	o.examined.mutex.Lock()
	maps.DeleteFunc(o.examined.of, func(host string, _ found) bool { return !there(host) })
	for host, f := range o.examined.of {
		if !is(host) {
			continue
		}
		out.Examined++
		for _, one := range f.all {
			out.Findings = append(out.Findings, api.FleetFinding{Host: host, At: f.at, Check: one.Check, Severity: one.Severity, Text: one.Text})
		}
	}
	o.examined.mutex.Unlock()
	sorting.By(out.Findings, func(a, b api.FleetFinding) int {
		return cmp.Or(cmp.Compare(severities[a.Severity], severities[b.Severity]), cmp.Compare(a.Check, b.Check), cmp.Compare(a.Host, b.Host))
	})
	out.Findings = out.Findings[:min(len(out.Findings), mostFound)]
	o.done(w, out, nil)
}
