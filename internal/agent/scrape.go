package agent

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"

	"sluice/internal/system/kernel/netns"
)

// What an address may take that everybody may ask.
const (
	mostScrapers = 64 // connections, of one request each
	scrapeHeader = 4 << 10
)

// publish answers who asks for metrics on the address, in the agent's own network
// namespace, until the context ends. Nothing else is answered there.
func (a *Agent) publish(ctx context.Context, here *netns.Namespace) {
	var l net.Listener
	for told := false; ; told = true {
		err := here.Do(func() (err error) { l, err = net.Listen("tcp", a.Metrics.String()); return err })
		if err == nil {
			break
		}
		if !told {
			a.note(fmt.Errorf("answer who asks for metrics: %w\n  it is tried again every minute", err))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(againTime):
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { a.scraper.answer(w) })
	h := &http.Server{
		Handler: mux, ReadTimeout: headerTime, WriteTimeout: scrapeTime, MaxHeaderBytes: scrapeHeader,
		ErrorLog: log.New(noted(func(error) {}), "", 0), // whoever asks could fill the journal
	}
	h.SetKeepAlivesEnabled(false)
	defer context.AfterFunc(ctx, func() { _ = h.Close() })()
	if err := h.Serve(netutil.LimitListener(l, mostScrapers)); !errors.Is(err, http.ErrServerClosed) {
		a.note(err)
	}
}
