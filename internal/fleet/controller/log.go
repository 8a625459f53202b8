package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/wire"
)

// What a log of many hosts takes. Readers of the same have one question open to each of its hosts.
const (
	mostLogs       = 8
	mostLogsOfOne  = 4
	mostLogHosts   = 1000
	mostLogRows    = 1000 // a second
	leastLogRows   = 10   // that a host may send in a second
	mostLogLine    = 64 << 10
	logWaits       = 4096 // rows that wait for their reader
	logEvery       = 100 * time.Millisecond
	logHostsEvery  = 5 * time.Second // whether other hosts are connected
	logRowsPerTick = mostLogRows / int(time.Second/logEvery)
)

// logs are the streams that are open, by principal.
type logs struct {
	mutex sync.Mutex
	open  map[string]int
	all   int
}

func (l *logs) begin(principal string) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.all >= mostLogs || principal != "" && l.open[principal] >= mostLogsOfOne {
		return false
	}
	if l.open == nil {
		l.open = map[string]int{}
	}
	l.open[principal]++
	l.all++
	return true
}

func (l *logs) end(principal string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.all--
	if l.open[principal]--; l.open[principal] == 0 {
		delete(l.open, principal)
	}
}

// merged is the log of several hosts, for one reader.
type merged struct {
	o       operator
	asks    url.Values
	rows    chan []byte
	skipped atomic.Int64
	wait    sync.WaitGroup

	mutex sync.Mutex
	asked map[string]context.CancelFunc // hosts that are asked
	never map[string]bool               // that do not answer this
}

// Log is what hosts log, as it comes, for as long as somebody reads it.
func (o operator) Log(w http.ResponseWriter, r *http.Request, params api.LogParams) {
	who := as(r)
	_, err := who.hosts(params.Hosts)
	if err == nil && !o.logs.begin(who.principal()) {
		err = &wire.Failure{Text: fmt.Sprintf("%s reads %d logs of the fleet, or %d are read in all", who.Who, mostLogsOfOne, mostLogs), Kind: wire.KindBusy}
	}
	if err != nil {
		o.done(w, nil, err)
		return
	}
	defer o.logs.end(who.principal())
	m := &merged{o: o, asks: url.Values{"follow": {"true"}}, rows: make(chan []byte, logWaits), asked: map[string]context.CancelFunc{}, never: map[string]bool{}}
	for name, value := range map[string]string{"source": params.Source, "country": params.Country, "line": params.Line, "service": params.Service} {
		if value != "" {
			m.asks.Set(name, value)
		}
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	ctx, stop := context.WithCancel(r.Context())
	defer m.wait.Wait()
	defer stop()
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	out := lasting{w, eventWrite}
	rc := http.NewResponseController(out)
	tick, look, beat := time.NewTicker(logEvery), time.NewTicker(logHostsEvery), time.NewTicker(eventBeat)
	defer tick.Stop()
	defer look.Stop()
	defer beat.Stop()
	m.ask(ctx, who, params.Hosts)
	text := bytes.NewBufferString(":\n\n")
	for ticks := 0; ; {
		if text.Len() > 0 {
			if _, err := out.Write(text.Bytes()); err != nil || rc.Flush() != nil {
				return
			}
			text.Reset()
		}
		select {
		case <-ctx.Done():
			return
		case <-o.events.ended:
			return
		case <-tick.C:
			for n := min(len(m.rows), logRowsPerTick); n > 0; n-- {
				fmt.Fprintf(text, "data: %s\n\n", <-m.rows)
			}
			if ticks++; ticks%int(time.Second/logEvery) == 0 {
				for len(m.rows) > logRowsPerTick { // so that what is shown is not old
					<-m.rows
					m.skipped.Add(1)
				}
				if n := m.skipped.Swap(0); n > 0 {
					fmt.Fprintf(text, "data: {\"skipped\":%d}\n\n", n)
				}
			}
		case <-look.C:
			m.ask(ctx, who, params.Hosts)
		case <-beat.C:
			if who, err = o.still(r, who); err != nil {
				return
			}
			text.WriteString(":\n\n")
		}
	}
}

// ask asks the hosts of a selector that are connected and are not asked yet, and leaves those that
// are no more.
func (m *merged) ask(ctx context.Context, who caller, asked string) {
	only, err := who.hosts(asked)
	if err != nil {
		return
	}
	is := selects(only, m.o.view.Load().hosts)
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for host, stop := range m.asked {
		if !is(host) {
			stop()
		}
	}
	var hosts []string
	for host := range m.o.hub.Online() {
		if m.asked[host] == nil && !m.never[host] && is(host) {
			hosts = append(hosts, host)
		}
	}
	slices.Sort(hosts)
	hosts = hosts[:min(len(hosts), mostLogHosts-len(m.asked))]
	most := min(max(2*mostLogRows/max(1, len(hosts)+len(m.asked)), leastLogRows), mostLogRows)
	for _, host := range hosts {
		asking, stop := context.WithCancel(ctx)
		m.asked[host] = stop
		m.wait.Go(func() {
			why := m.follow(asking, host, most)
			stop()
			m.mutex.Lock()
			defer m.mutex.Unlock()
			delete(m.asked, host)
			if why != "" {
				m.never[host] = true
				m.row(host, "failure", why)
			}
		})
	}
}

// row gives the reader something of a host.
func (m *merged) row(host, key string, value any) {
	if text, err := json.Marshal(map[string]any{"host": host, key: value}); err == nil {
		m.give(text)
	}
}

// give gives the reader a row, if there is room.
func (m *merged) give(row []byte) {
	select {
	case m.rows <- row:
	default:
		m.skipped.Add(1)
	}
}

// follow gives the reader the log of one host until one of both goes; why is what the host says
// against it.
func (m *merged) follow(ctx context.Context, host string, most int) (why string) {
	c := m.o.Controller
	if k := c.statuses.read(host); k.protocol < wire.LevelQuestions {
		return "its agent is unable to answer questions: upgrade it"
	}
	asks := url.Values{"most": {strconv.Itoa(most)}}
	for name, values := range m.asks {
		asks[name] = values
	}
	key := feedKey{host, asks.Encode()}
	f := c.feeds.join(key, m, c.feed)
	defer c.feeds.leave(key, m, f)
	select {
	case <-f.over:
		return f.why
	case <-ctx.Done():
		return ""
	}
}

// failureText is what a host says in a failure.
func failureText(text []byte) string {
	var f struct{ Error string }
	if json.Unmarshal(text, &f) != nil || f.Error == "" {
		return "it does not say why"
	}
	return f.Error
}
