package controller

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/notices"
	"sluice/internal/fleet/trust"
	"sluice/internal/fleet/wire"
)

// scraped is what a controller says of itself in numbers.
func (f *fleet) scraped() string {
	w := httptest.NewRecorder()
	operator{f.controller}.Metrics(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

func (f *fleet) says(lines ...string) {
	f.Helper()
	text := f.scraped()
	for _, line := range lines {
		if !strings.Contains(text, line+"\n") {
			f.Errorf("no %s in\n%s", line, text)
		}
	}
}

// TestMetrics: what hosts, roll-outs and signatures come to is in the numbers.
func TestMetrics(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	f.says(`sluice_fleet_info{fleet="example.net",version="1"} 1`, `sluice_fleet_hosts{state="proved"} 0`, "sluice_fleet_streams 0",
		"sluice_fleet_database_up 1", `sluice_fleet_propagation_seconds_count{stage="confirmed"} 0`, `sluice_fleet_signature_failures_total{by="host"} 0`)
	token := f.token(map[string]string{"role": "web"}, 2)
	a, err := f.join("web-1", token)
	ok(t, err)
	_, err = f.join("web-2", token)
	ok(t, err)
	conn := a.stream(nil)
	go a.obey(conn)
	f.until("the host", func() bool { return strings.Contains(f.scraped(), "sluice_fleet_streams 1\n") })
	_, err = f.publish("input: {default: drop}\n")
	ok(t, err)
	f.until("it is proved", func() bool { return f.states()["web-1"].State == api.Proved })
	f.says(`sluice_fleet_hosts{state="proved"} 1`, `sluice_fleet_hosts{state="offline"} 1`,
		`sluice_fleet_propagation_seconds_count{stage="fetched"} 1`, `sluice_fleet_propagation_seconds_count{stage="confirmed"} 1`,
		`sluice_fleet_propagation_seconds_bucket{le="+Inf",stage="confirmed"} 1`, "sluice_fleet_bans 0", `sluice_fleet_rollouts{phase="halted"} 0`)
	if !regexp.MustCompile(`sluice_fleet_rollouts\{phase="\w+"\} 1\n`).MatchString(f.scraped()) {
		t.Errorf("no roll-out in\n%s", f.scraped())
	}

	// What the policy key has not signed: the controller refuses it, and hosts say so too.
	_, err = f.repository.Sign(trust.Signing{Level: 1, File: f.file("fleet.yaml", "", f.text), Parts: []trust.File{f.file("parts/10-base.yaml", "", "version: 1\n")}}, time.Now(), f.policy)
	ok(t, err)
	m, err := f.repository.Metadata()
	ok(t, err)
	m.Targets = regexp.MustCompile(`("sig": ?")[0-9a-f]{8}`).ReplaceAll(m.Targets, []byte("${1}00000000"))
	if _, err := f.client.Publish(t.Context(), api.Publish{Roots: m.Roots, Targets: m.Targets, Bundle: 2}); err == nil {
		t.Error("it takes what is not signed")
	}
	refused := wire.Report{Bundle: 1, State: wire.StateRefused, Error: fmt.Sprintf("bundle 1: %v", trust.ErrUnsigned)}
	for range 2 { // said again, it is the same one
		ok(t, conn.Send(t.Context(), &wire.Message{Report: &refused}))
	}
	f.until("the host refuses", func() bool {
		return strings.Contains(f.scraped(), "sluice_fleet_signature_failures_total{by=\"host\"} 1\n")
	})
	f.says(`sluice_fleet_signature_failures_total{by="controller"} 1`)

	// A scrape of a controller whose database is gone says so.
	ok(t, os.Rename(strings.TrimPrefix(f.database, "sqlite:"), strings.TrimPrefix(f.database, "sqlite:")+"-gone"))
	f.says("sluice_fleet_database_up 0", "sluice_fleet_streams 1")
	ok(t, os.Rename(strings.TrimPrefix(f.database, "sqlite:")+"-gone", strings.TrimPrefix(f.database, "sqlite:")))
}

func TestPropagationIsOfHostsThatAreThere(t *testing.T) {
	t.Parallel()
	var m meter
	m.init()
	now := time.Now()
	m.want("web-1", 2, now)
	m.forget("web-1") // it is away
	m.reported("web-1", &wire.Report{Bundle: 2, State: wire.StateConfirmed}, &wire.Report{}, now.Add(time.Hour))
	m.want("web-2", 2, now)
	for i, state := range []wire.State{wire.StateFetched, wire.StateFetched, wire.StateProved, wire.StateConfirmed, wire.StateConfirmed} {
		m.reported("web-2", &wire.Report{Bundle: 2, State: state}, &wire.Report{}, now.Add(time.Duration(i+1)*time.Second))
	}
	m.reported("web-2", &wire.Report{Bundle: 1, State: wire.StateConfirmed}, &wire.Report{}, now)
	for stage, sum := range map[wire.State]float64{wire.StateFetched: 1, wire.StatePending: 3, wire.StateProved: 3, wire.StateConfirmed: 4} {
		if is := m.spread[string(stage)]; is.sum != sum || is.counts[slices.Index(bounds, 1)]+is.counts[slices.Index(bounds, 5)] != 1 {
			t.Errorf("%s: %+v, want one of %v", stage, is, sum)
		}
	}
}

// TestRulesAskForWhatThereIs: alerts and the dashboard know the metrics, and the page has their labels.
func TestRulesAskForWhatThereIs(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "example.net")
	ok(t, f.stop())
	var err error
	f.notices, err = notices.Load(t.TempDir(), func(string) {})
	ok(t, err)
	f.run()
	f.failingList()
	has, labels := map[string]bool{}, map[string]map[string]bool{}
	for line := range strings.Lines(f.scraped()) {
		if name, is := strings.CutPrefix(line, "# TYPE "); is {
			name, _, _ = strings.Cut(name, " ")
			has[name], labels[name] = true, map[string]bool{}
		} else if m := regexp.MustCompile(`^(\w+?)(?:_bucket)?\{(.*)\}`).FindStringSubmatch(line); m != nil {
			for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(m[2], -1) {
				if labels[m[1]] != nil && label[1] != "le" {
					labels[m[1]][label[1]] = true
				}
			}
		}
	}
	for _, m := range metrics {
		name := "sluice_fleet_" + m.name
		if got := slices.Sorted(maps.Keys(labels[name])); has[name] && !slices.Equal(got, strings.Fields(m.labels)) {
			t.Errorf("%s has the labels %v, and on its page %s", name, got, m.labels)
		}
	}
	for _, file := range []string{"prometheus/fleet.rules.yml", "grafana/fleet.json"} {
		text, err := os.ReadFile("../../../packaging/" + file)
		ok(t, err)
		names := regexp.MustCompile(`sluice_fleet_[a-z_]+`).FindAllString(string(text), -1)
		if len(names) < 5 {
			t.Errorf("%s asks for %v", file, names)
		}
		for _, name := range names {
			if !has[strings.TrimSuffix(name, "_bucket")] {
				t.Errorf("%s asks for %s, which there is not", file, name)
			}
		}
	}
}
