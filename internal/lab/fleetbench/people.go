package fleetbench

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/internal/fleet/api"
	"sluice/internal/lab/stats"
)

// What people with open pages are held to, and how many there are.
const (
	people       = 50
	mostWatching = 5.0 // % of a core more, of the controller
	// allLogs is how many of them read the log of all hosts, which is as many as a controller
	// lets. Each of the others reads that of one host.
	allLogs = 8
	openAll = 10 * time.Second // in which they open their pages, one after the other
	gathers = 2 * time.Second
)

// asks are what the overview asks again, as web/src/pages/overview/GoesOn.svelte does. The list of
// hosts asks nothing beside the stream of events, and the log its own.
var asks = map[string]time.Duration{
	"rollouts?limit=10": 15 * time.Second,
	audit:               30 * time.Second, // from the second time on for what is new
	"notices":           30 * time.Second,
	"samples":           30 * time.Second, // of the last hour
	"requests":          30 * time.Second,
	"findings":          time.Minute,
}

const audit = "audit?limit=200"

// again is what it asks within gathers of an event of a kind, once however many come, as the hosts
// after a reset.
var again = map[string][]string{
	"reset":   {"hosts", "rollouts?limit=10", "notices"},
	"rollout": {"rollouts?limit=10"},
	"notice":  {"notices"},
}

// person is a browser's session.
type person struct {
	http   http.Client
	base   string
	log    string // its path
	events atomic.Int64
	rows   atomic.Int64 // of the log
}

// logIn has so many people be logged in.
func (f *fleet) logIn(n int) (all []*person, err error) {
	certificate, err := os.ReadFile(f.path("controller", "ca.pem"))
	if err != nil {
		return nil, err
	}
	ca := x509.NewCertPool()
	ca.AppendCertsFromPEM(certificate)
	server, _, _ := strings.Cut(webAt, ":")
	for i := range n {
		link := api.NewSecret()
		hash, err := api.SecretHash(link)
		if err != nil {
			return nil, err
		}
		who := fmt.Sprintf("person-%d@example.net", i)
		if _, err := f.client.CreateLink(f, api.NewLink{User: who, Secret: hex.EncodeToString(hash[:]), Role: api.Operator, Expires: time.Now().Add(time.Hour)}); err != nil {
			return nil, err
		}
		p := &person{base: f.web, log: "log"}
		if i >= allLogs {
			p.log = fmt.Sprintf("hosts/simulated-%d/agent/v1/namespaces/-/log?follow=true", i)
		}
		if p.http.Jar, err = cookiejar.New(nil); err != nil {
			return nil, err
		}
		p.http.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca, ServerName: server}, ForceAttemptHTTP2: true}
		said, err := p.http.PostForm(f.web+"/login", url.Values{"link": {link}})
		if err != nil {
			return nil, err
		}
		if err := errors.Join(said.Body.Close(), fine(said)); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func fine(answer *http.Response) error {
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", answer.Request.URL, answer.Status)
	}
	return nil
}

// ask sends a request of the interface, whose answer it gives to read.
func (p *person) ask(ctx context.Context, path, accept string, read func(io.Reader) error) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+"/api/v1/"+path, http.NoBody)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", accept)
	answer, err := p.http.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if err := fine(answer); err != nil {
		return err
	}
	return read(answer.Body)
}

// get asks what is not a stream.
func (p *person) get(ctx context.Context, path string) error {
	return p.ask(ctx, path, "application/json", func(body io.Reader) error {
		_, err := io.Copy(io.Discard, body)
		return err
	})
}

// read asks what is not a stream, and reads the answer.
func (p *person) read(ctx context.Context, path string, into any) error {
	return p.ask(ctx, path, "application/json", func(body io.Reader) error { return json.NewDecoder(body).Decode(into) })
}

// follow reads a stream, whose lines it gives to told by what is before the colon.
func (p *person) follow(ctx context.Context, path string, told func(name, value string) error) error {
	return p.ask(ctx, path, "text/event-stream", func(body io.Reader) error {
		lines := bufio.NewScanner(body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if name, value, is := strings.Cut(lines.Text(), ": "); is {
				if err := told(name, value); err != nil {
					return err
				}
			}
		}
		return errors.Join(lines.Err(), fmt.Errorf("the stream of %s has ended", path))
	})
}

// open has the overview, the list of hosts and the log open until the context ends.
func (p *person) open(ctx context.Context) error {
	pages, ctx := errgroup.WithContext(ctx)
	for path, every := range asks {
		pages.Go(func() error {
			var known api.Audit
			for {
				var err error
				switch {
				case path == "samples":
					err = p.get(ctx, path+"?since="+url.QueryEscape(time.Now().Add(-time.Hour-2*time.Minute).UTC().Format(time.RFC3339)))
				case path == audit && known.Head > 0:
					err = p.read(ctx, fmt.Sprintf("%s&after=%d", path, known.Head), &known)
				case path == audit:
					err = p.read(ctx, path, &known)
				default:
					err = p.get(ctx, path)
				}
				if err != nil {
					return err
				}
				if err := wait(ctx, every); err != nil {
					return err
				}
			}
		})
	}
	var gathered sync.Map // paths that are asked soon
	pages.Go(func() error {
		return p.follow(ctx, "events", func(name, value string) error {
			if name != "event" {
				return nil
			}
			p.events.Add(1)
			for _, path := range again[value] {
				if _, is := gathered.LoadOrStore(path, true); is {
					continue
				}
				pages.Go(func() error {
					if err := wait(ctx, gathers); err != nil {
						return err
					}
					gathered.Delete(path)
					return p.get(ctx, path)
				})
			}
			return nil
		})
	})
	pages.Go(func() error {
		return p.follow(ctx, p.log, func(name, _ string) error {
			if name == "data" {
				p.rows.Add(1)
			}
			return nil
		})
	})
	return pages.Wait()
}

// opened has people open their pages for as long as act takes.
func (f *fleet) opened(all []*person, act func() error) error {
	ctx, stop := context.WithCancel(f)
	defer stop()
	pages, open := errgroup.WithContext(ctx)
	for i, p := range all {
		pages.Go(func() error {
			err := wait(open, time.Duration(i)*openAll/time.Duration(len(all)))
			if err == nil {
				err = p.open(open)
			}
			if ctx.Err() == nil {
				return fmt.Errorf("the pages of one of %d people: %w", len(all), err)
			}
			return nil
		})
	}
	err := wait(open, 2*openAll)
	if err == nil {
		err = act()
	}
	stop()
	return errors.Join(err, pages.Wait())
}

// while is what the controller takes of a core during a change and what is left of a while, in %.
func (m *measured) while(lasts time.Duration) (share float64, err error) {
	before, err := m.controller.group.Usage()
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	if _, err := m.change(m.n); err != nil {
		return 0, err
	}
	if err := wait(m, time.Until(begun.Add(lasts))); err != nil {
		return 0, err
	}
	after, err := m.controller.group.Usage()
	return 100 * (after.Time - before.Time).Seconds() / time.Since(begun).Seconds(), err
}

// watched has people look at the fleet every other minute.
func (m *measured) watched() error {
	if m.n == m.real {
		return nil // which log nothing
	}
	all, err := m.logIn(people)
	if err != nil {
		return err
	}
	var alone, with, more stats.Series
	for range m.peopleRounds() {
		none, err := m.while(m.floodTime())
		if err != nil {
			return err
		}
		var some float64
		if err := m.opened(all, func() (err error) {
			some, err = m.while(m.floodTime())
			return err
		}); err != nil {
			return err
		}
		alone, with, more = append(alone, none), append(with, some), append(more, some-none)
	}
	for i, p := range all {
		if p.events.Load() < int64(m.n) || p.rows.Load() == 0 {
			return fmt.Errorf("person %d was told of %d changes and of %d packets", i, p.events.Load(), p.rows.Load())
		}
	}
	m.add("the controller, a change in a minute", "processors", "%", alone...)
	name := fmt.Sprintf("%d people with open pages", people)
	m.add("the controller, a change in a minute, "+name, "processors", "%", with...)
	m.goal(name+", of a core more", "%", mostWatching, m.add(name+", of a core more", "processors", "%", more...))
	now, err := m.controller.group.Usage()
	if err != nil {
		return err
	}
	m.add("the controller, at most, "+name, "memory", "MiB", mebibytes(now.Peak-now.Files))
	return nil
}
