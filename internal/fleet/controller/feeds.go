package controller

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"

	"sluice/internal/fleet/wire"
)

// feeds are the questions to hosts for what they log. Who reads the same of a host shares one, since
// hosts are many and their rows cost more to bring here than to pass on.
type feeds struct {
	mutex sync.Mutex
	of    map[feedKey]*feed
}

// feedKey is what is asked of which host.
type feedKey struct{ host, query string }

type feed struct {
	key     feedKey
	readers map[*merged]bool // by the mutex of feeds
	stop    context.CancelFunc
	over    chan struct{}
}

// join has a reader be given what a host logs, by read where nobody reads that yet. What the host
// says against it, once it is over, those are told who have not left.
func (fs *feeds) join(key feedKey, m *merged, read func(ctx context.Context, f *feed) (why string)) *feed {
	fs.mutex.Lock()
	defer fs.mutex.Unlock()
	if f := fs.of[key]; f != nil {
		f.readers[m] = true
		return f
	}
	ctx, stop := context.WithCancel(context.Background())
	f := &feed{key: key, readers: map[*merged]bool{m: true}, stop: stop, over: make(chan struct{})}
	if fs.of == nil {
		fs.of = map[feedKey]*feed{}
	}
	fs.of[key] = f
	go func() {
		defer close(f.over)
		why := read(ctx, f)
		fs.mutex.Lock()
		fs.end(f)
		left := slices.Collect(maps.Keys(f.readers))
		fs.mutex.Unlock()
		for _, m := range left {
			m.over(f, why)
		}
	}()
	return f
}

// end has nobody join any more. It is called with the mutex.
func (fs *feeds) end(f *feed) {
	if fs.of[f.key] == f {
		delete(fs.of, f.key)
	}
	f.stop()
}

// leave has a reader be given nothing any more. A host whose last reader has left is asked no more
// once over is closed; over is nil for other hosts.
func (fs *feeds) leave(m *merged, f *feed) (over <-chan struct{}) {
	fs.mutex.Lock()
	defer fs.mutex.Unlock()
	delete(f.readers, m)
	if len(f.readers) > 0 {
		return nil
	}
	fs.end(f)
	return f.over
}

// each is called for all who read it.
func (fs *feeds) each(f *feed, give func(*merged)) {
	fs.mutex.Lock()
	defer fs.mutex.Unlock()
	for m := range f.readers {
		give(m)
	}
}

// feed reads the log of one host until it ends, or nobody reads it.
func (c *Controller) feed(ctx context.Context, f *feed) (why string) {
	c.questions.mutex.Lock()
	q := c.questions.add(f.key.host, "")
	q.log = true
	c.questions.mutex.Unlock()
	in := &reply{c: c, ctx: ctx, q: q}
	defer func() { c.drop(q, in.last) }()
	if c.ask(q, wire.Question{Method: wire.GET, Path: "/v1/namespaces/-/log", Query: f.key.query, Accept: lines}) != nil {
		return ""
	}
	first, err := in.next()
	if err != nil {
		return ""
	}
	if first.Status != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(in, mostLogLine))
		return failureText(text)
	}
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, mostLogLine)
	name, _ := json.Marshal(f.key.host)
	begin := append(append([]byte(`{"host":`), name...), ',')
	for scanner.Scan() {
		line := scanner.Bytes()
		switch {
		case bytes.HasPrefix(line, []byte(`{"logged":`)) && json.Valid(line):
			row := append(bytes.Clone(begin), line[1:]...)
			c.feeds.each(f, func(m *merged) { m.give(row) })
		case bytes.HasPrefix(line, []byte(`{"skipped":`)):
			var is struct{ Skipped int64 }
			if json.Unmarshal(line, &is) == nil && is.Skipped > 0 {
				c.feeds.each(f, func(m *merged) { m.skipped.Add(is.Skipped) })
			}
		case bytes.HasPrefix(line, []byte(`{"failure":`)):
			var is struct{ Failure json.RawMessage }
			_ = json.Unmarshal(line, &is)
			return failureText(is.Failure)
		}
	}
	return ""
}
