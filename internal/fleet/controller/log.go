package controller

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
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

	mutex sync.Mutex
	asked map[string]*feed // hosts that are asked; no goroutine each, since readers times hosts are many
	never map[string]bool  // that do not answer this
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
	m := &merged{o: o, asks: url.Values{"follow": {"true"}}, rows: make(chan []byte, logWaits), asked: map[string]*feed{}, never: map[string]bool{}}
	for name, value := range map[string]string{"source": params.Source, "country": params.Country, "line": params.Line, "service": params.Service} {
		if value != "" {
			m.asks.Set(name, value)
		}
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	defer m.leave(func(string) bool { return false })
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	out := lasting{w, eventWrite}
	rc := http.NewResponseController(out)
	tick, look, beat := time.NewTicker(logEvery), time.NewTicker(logHostsEvery), time.NewTicker(eventBeat)
	defer tick.Stop()
	defer look.Stop()
	defer beat.Stop()
	m.ask(who, params.Hosts)
	text := bytes.NewBufferString(":\n\n")
	for ticks := 0; ; {
		if text.Len() > 0 {
			if _, err := out.Write(text.Bytes()); err != nil || rc.Flush() != nil {
				return
			}
			text.Reset()
		}
		select {
		case <-r.Context().Done():
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
			m.ask(who, params.Hosts)
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
func (m *merged) ask(who caller, asked string) {
	only, err := who.hosts(asked)
	if err != nil {
		return
	}
	is := selects(only, m.o.view.Load().hosts)
	m.leave(is)
	m.mutex.Lock()
	defer m.mutex.Unlock()
	var hosts []string
	for host := range m.o.hub.Online() {
		if m.asked[host] == nil && !m.never[host] && is(host) {
			hosts = append(hosts, host)
		}
	}
	slices.Sort(hosts)
	hosts = hosts[:min(len(hosts), mostLogHosts-len(m.asked))]
	most := min(max(2*mostLogRows/max(1, len(hosts)+len(m.asked)), leastLogRows), mostLogRows)
	asks := url.Values{"most": {strconv.Itoa(most)}}
	maps.Copy(asks, m.asks)
	query := asks.Encode()
	for _, host := range hosts {
		if k := m.o.statuses.read(host); k.protocol < wire.LevelQuestions {
			m.refused(host, "its agent is unable to answer questions: upgrade it")
			continue
		}
		m.asked[host] = m.o.feeds.join(feedKey{host, query}, m, m.o.feed)
	}
}

// leave leaves the hosts that are not to stay, and waits until those are asked no more that nobody
// else reads.
func (m *merged) leave(stays func(host string) bool) {
	m.mutex.Lock()
	var ending []<-chan struct{}
	for host, f := range m.asked {
		if !stays(host) {
			delete(m.asked, host)
			ending = append(ending, m.o.feeds.leave(m, f))
		}
	}
	m.mutex.Unlock()
	for _, over := range ending {
		if over != nil {
			<-over
		}
	}
}

// over is called when a host answers no more, with what it says against it; one that says nothing
// is asked again.
func (m *merged) over(f *feed, why string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.asked[f.key.host] != f {
		return
	}
	delete(m.asked, f.key.host)
	if why != "" {
		m.refused(f.key.host, why)
	}
}

// refused is called with the mutex.
func (m *merged) refused(host, why string) {
	m.never[host] = true
	m.row(host, "failure", why)
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

// failureText is what a host says in a failure.
func failureText(text []byte) string {
	var f struct{ Error string }
	if json.Unmarshal(text, &f) != nil || f.Error == "" {
		return "it does not say why"
	}
	return f.Error
}
