package controller

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/wire"
)

// TestSamples: what hosts say of a minute is added up, of all of them and of those that somebody
// may see; a host is counted once, and what is older than it is kept for is gone.
func TestSamples(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	prod, _, err := f.access(f.client, "prod", api.Viewer, "env=prod")
	ok(t, err)
	all, _, err := f.access(f.client, "all", api.Viewer, "")
	ok(t, err)
	var web []*wire.Conn
	for host, env := range map[string]string{"web-1": "prod", "web-2": "test"} {
		a, err := f.join(host, f.token(map[string]string{"env": env}, 1))
		ok(t, err)
		web = append(web, a.stream(nil))
	}
	for _, conn := range web {
		for range 2 { // the second one is of the same minute, unless that has ended meanwhile
			ok(t, conn.Send(t.Context(), &wire.Message{Sample: &wire.Sample{
				Seconds: 60, New: 2, Dropped: 3, Entries: 4,
				Countries: []wire.SampledCountry{{Country: "DE", Packets: 5}}, Lines: []wire.SampledLine{{File: "parts/10-base.yaml", Line: 3, Verdict: "drop", Packets: 3}},
			}}))
		}
	}
	get := func(token, query string) (int, []byte) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+f.web+"/api/v1/samples"+query, http.NoBody)
		ok(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		transport := &http.Transport{TLSClientConfig: f.tls()}
		defer transport.CloseIdleConnections()
		answer, err := transport.RoundTrip(r)
		ok(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		ok(t, err)
		return answer.StatusCode, text
	}
	ask := func(token, query string) (out api.FleetSamples) {
		t.Helper()
		status, text := get(token, query)
		if err := json.Unmarshal(text, &out); err != nil || status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
		return out
	}
	f.until("both have told", func() bool {
		hosts := 0
		for _, s := range ask(all, "").Samples {
			hosts += s.Hosts
		}
		return hosts >= 2
	})
	is := ask(all, "").Samples[0]
	n := int64(is.Hosts)
	want := api.FleetSample{Time: is.Time, Seconds: 60, Hosts: is.Hosts, New: 2 * n, Dropped: 3 * n, Entries: 4 * n, Countries: map[string]int64{"DE": 5 * n}, Lines: []api.FleetSampledLine{{File: "parts/10-base.yaml", Line: 3, Verdict: "drop", Packets: 3 * n}}}
	if d := cmp.Diff(want, is); d != "" || is.Hosts > 2 {
		t.Error(d)
	}
	for token, query := range map[string]string{prod: "", all: "?hosts=env%3Dprod"} {
		some := ask(token, query)
		if len(some.Samples) == 0 || some.Samples[0].Hosts != 1 || some.Samples[0].New != 2 || some.Hosts != "env=prod" {
			t.Errorf("%+v", some)
		}
	}
	if late := ask(all, "?since=2100-01-01T00:00:00Z"); len(late.Samples) != 0 {
		t.Errorf("%+v", late)
	}
	for _, since := range []string{"", "2100-01-01", "x"} {
		if status, text := get(all, "?since="+since); status != http.StatusBadRequest || !strings.Contains(string(text), "no time such as") {
			t.Errorf("since=%s: %d %s", since, status, text)
		}
	}
}

// TestSamplesKept: a day of the fleet and an hour of each host, whatever was in the place before.
func TestSamplesKept(t *testing.T) {
	t.Parallel()
	s, begin := &samples{}, time.Date(2026, 6, 1, 0, 0, 20, 0, time.UTC)
	for i := range 3 * keptSums {
		s.says("web-1", &wire.Sample{Seconds: 60, New: 1, Entries: 1 << 40}, begin.Add(time.Duration(i)*time.Minute))
	}
	for i := range 2 * mostSummed {
		s.says(fmt.Sprint("host-", i), &wire.Sample{Seconds: 60, Lines: []wire.SampledLine{{Line: i, Packets: int64(i)}}}, begin.Add((3*keptSums-1)*time.Minute))
	}
	now := begin.Add((3*keptSums - 1) * time.Minute)
	all := s.all(now, time.Time{})
	some := s.some(now, time.Time{}, func(host string) bool { return host == "web-1" })
	if len(all) != keptSums || len(some) != keptHours || all[0].New != 1 || all[keptSums-1].Hosts != 1+2*mostSummed || some[0].Entries != mostSampledOfHost {
		t.Errorf("%d sums, %d of one host, %+v", len(all), len(some), all[keptSums-1])
	}
	if lines := all[keptSums-1].Lines; len(lines) != mostSampledLines || lines[0].Packets != mostSummed-1 {
		t.Errorf("%+v", lines)
	}
	if !all[keptSums-1].Time.Equal(time.Date(2026, 6, 3, 23, 58, 0, 0, time.UTC)) || some[keptHours-1].Time != all[keptSums-1].Time {
		t.Errorf("the last one is of %s", all[keptSums-1].Time)
	}
	if since := s.all(now, all[keptSums-2].Time.Add(time.Minute)); len(since) != 1 {
		t.Errorf("%d are new", len(since))
	}
	s.gone(func(host string) bool { return host == "web-1" })
	if len(s.hosts) != 1 {
		t.Errorf("%d hosts are kept", len(s.hosts))
	}
}

// BenchmarkSamples is a minute of 1,000 hosts, from the text of their messages on.
func BenchmarkSamples(b *testing.B) {
	is := &wire.Sample{Seconds: 60, New: 1000, Dropped: 1000, Entries: 1000}
	for i := range 32 {
		is.Countries = append(is.Countries, wire.SampledCountry{Country: string([]byte{'A', byte('A' + i%26)}), Packets: 100})
	}
	for i := range 16 {
		is.Lines = append(is.Lines, wire.SampledLine{File: "parts/10-base.yaml", Line: i, Verdict: "drop", Packets: 100})
	}
	text, err := wire.Encode(&wire.Message{Sample: is})
	ok(b, err)
	s, now := &samples{}, time.Now()
	for b.Loop() {
		now = now.Add(time.Minute)
		for i := range 1000 {
			m, err := wire.Decode(text)
			ok(b, err)
			s.says(fmt.Sprint("host-", i), m.Sample, now)
		}
	}
	b.ReportMetric(float64(len(text)), "bytes")
}

// TestSampleTooMuch: what one host says makes no sum of the fleet overflow.
func TestSampleTooMuch(t *testing.T) {
	t.Parallel()
	var is samples
	now := time.Unix(1_800_000_000, 0)
	for _, host := range []string{"web-1", "web-2", "web-3"} {
		is.says(host, &wire.Sample{
			Seconds: 60, New: math.MaxInt64, Dropped: math.MaxInt64, Entries: math.MaxInt64,
			Countries: []wire.SampledCountry{{Country: "DE", Packets: math.MaxInt64}}, Lines: []wire.SampledLine{{File: "a.yaml", Line: 1, Packets: math.MaxInt64}},
		}, now)
	}
	const want = 3 * math.MaxUint32
	for _, s := range is.all(now, time.Time{}) {
		if s.New != want || s.Dropped != want || s.Entries != want || s.Countries["DE"] != want || s.Lines[0].Packets != want {
			t.Errorf("%+v", s)
		}
	}
}
