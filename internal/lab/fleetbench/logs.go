package fleetbench

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"sluice/internal/agent/api"
	agent "sluice/internal/agent/fleet"
	"sluice/internal/fleet/wire"
)

// A simulated host logs a packet each logEvery while somebody reads that, and says each
// sampleEvery what it did with packets.
const (
	logEvery    = 10 * time.Second
	sampleEvery = time.Minute
)

// logs is the agent's own interface of a simulated host, which has a log alone.
type logs struct{ own netip.Addr }

func (l logs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := api.NewAnswer(w, r)
	if r.URL.Path != "/v1/namespaces/-/log" {
		answer.End(nil, &api.Failure{Text: "a simulated host answers what it logs alone", Kind: api.NotServed})
		return
	}
	answer.Begin()
	for n := uint64(1); wait(r.Context(), logEvery) == nil && answer.Err() == nil; n++ {
		answer.Logged(api.Logged{
			Number: n, Time: time.Now(), Generation: 3, ID: "9b1c5f2e7a40", File: "parts/10-base.yaml", Line: 6, Rule: "default: drop", Hook: "input", In: "eth0",
			Source: netip.AddrFrom4([4]byte{203, 0, 113, byte(n)}), Destination: l.own, Protocol: "tcp", SourcePort: 40_000, Port: 23, Flags: "S", Bytes: 60, Country: "NL",
		})
	}
}

// sample says what packets a host had until the context ends.
func sample(ctx context.Context, m *agent.Member) {
	for wait(ctx, sampleEvery) == nil {
		m.Sampled(wire.Sample{
			Seconds: int(sampleEvery.Seconds()), New: 300, Dropped: 6, Entries: 40,
			Countries: []wire.SampledCountry{{Country: "NL", Packets: 4}, {Country: "BR", Packets: 2}},
			Lines:     []wire.SampledLine{{File: "parts/10-base.yaml", Line: 6, Verdict: "drop", Packets: 6}, {File: "parts/50-web.yaml", Line: 5, Verdict: "accept", Packets: 300}},
		})
	}
}
