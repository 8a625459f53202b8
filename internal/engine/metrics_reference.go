package engine

import (
	"fmt"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/exposition"
	"sluice/internal/engine/apply"
	"sluice/internal/program"
	"sluice/internal/system/kernel/conntrack"
)

// MetricsReference is the page of all metrics as Markdown.
func MetricsReference() []byte {
	return []byte(`# Metrics

Generated from the code; do not edit it here. To have Prometheus scrape them:
[watch a server for a day](../how-to/watch-a-day.md#metrics-and-alerts). Who may read the firewall
also gets them from the agent's socket:

    curl --unix-socket /run/sluice/agent.sock http://sluice/metrics

The label ` + "`namespace`" + ` is the name of a network namespace. Counters continue over applies as long as
the line stays the same. ` + fmt.Sprintf("There are at most %d series", MostSeries) + `: beyond that the largest families are cut to the same length.

` + exposition.Table(Bounded(allFamilies("", 1))))
}

// allFamilies are the metrics of a host that has one of each, and so many lines.
func allFamilies(namespace string, lines int) []exposition.Family {
	h := &Host{Host: &apply.Host{Namespace: namespace, Version: "1"}}
	f := &families{namespace: namespace}
	now := &apply.Figures{Generation: 1, Condition: apply.Running, Pending: &apply.Pending{}}
	now.Full = []apply.Counter{{Name: "full", Origin: program.Origin{File: "p.yaml", Line: 1, Text: "allow ssh"}}}
	now.Sets = append(now.Sets, backend.SetSize{ID: "office"}, backend.SetSize{ID: "limit", Origin: program.Origin{File: "p.yaml", Line: 1}, Most: 9})
	for i := range lines {
		now.Counters = append(now.Counters, apply.Counter{Name: fmt.Sprint("input_", i), Packets: uint64(i), Origin: program.Origin{File: "p.yaml", Line: i + 1, Text: "allow ssh"}})
	}
	f.running(h, now, nil, false)
	f.lines(now, seriesOf(namespace, now.Counters))
	f.sets(now)
	f.gauge("allows", allowsHelp, 1)
	f.renewed(h, &Gauged{Outside: Outside{Lists: []List{{Set: "tor", Every: time.Hour}}, Countries: "x"}})
	f.logged(&LogCounts{})
	f.dropped(func() (map[string]uint64, error) { return map[string]uint64{"NO_SOCKET": 1}, nil })
	f.connections(&conntrack.Table{})
	return f.list
}
