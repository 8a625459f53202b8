package demo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"sluice/internal/lab/testnet"
)

// get fetches the page from inside a namespace and checks that the server saw
// the client's own address.
func get(from *testnet.Namespace, own, server netip.Addr, patience time.Duration) testnet.Result {
	transport := &http.Transport{DialContext: from.Dial, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+netip.AddrPortFrom(server, 80).String()+"/", nil)
	if err != nil {
		return testnet.Result{Outcome: testnet.Failed, Err: err}
	}
	response, err := transport.RoundTrip(request)
	switch {
	case ctx.Err() != nil:
		return testnet.Result{Outcome: testnet.Silent, Err: ctx.Err()}
	case err != nil:
		return testnet.Result{Outcome: testnet.Failed, Err: err}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || strings.TrimSpace(string(body)) != "hello "+own.String()) {
		err = fmt.Errorf("status %d, page %q", response.StatusCode, body)
	}
	if err != nil {
		return testnet.Result{Outcome: testnet.Failed, Err: err}
	}
	return testnet.Result{Outcome: testnet.Answered, Reply: body}
}
