package controller

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/wire"
)

// TestMap: from which countries a service can be reached is said for all hosts together, by class and for
// a draft.
func TestMap(t *testing.T) {
	t.Parallel()
	f := policies(t)
	ask := func(q api.FleetMapQuestion) *api.FleetMap {
		t.Helper()
		m, err := f.client.Map(t.Context(), q)
		ok(t, err)
		return m
	}
	state := func(m *api.FleetMap, country string) api.FleetReachState {
		for _, p := range m.Countries {
			if p.Country == country {
				if p.Allowed > p.Addresses || p.Addresses == 0 || p.Allowed6 > p.Prefixes6 {
					t.Errorf("%+v", p)
				}
				return p.State
			}
		}
		return ""
	}
	m := ask(api.FleetMapQuestion{Service: "https"}) // which web hosts allow to all but one address, and the others to none
	if len(m.Classes) != 2 || len(m.Countries) < 200 || state(m, "DE") != api.ReachPartly || m.Bundle != 1 || m.Hook != "input" {
		t.Errorf("%d classes, %d countries, %s", len(m.Classes), len(m.Countries), state(m, "DE"))
	}
	if db, web := m.Classes[0].Countries["DE"], m.Classes[1].Countries["DE"]; db != api.ReachBlocked || web != api.ReachAllowed {
		t.Errorf("db %s, web %s", db, web)
	}
	if m := ask(api.FleetMapQuestion{Service: "https", Hosts: "role=web"}); state(m, "DE") != api.ReachAllowed || len(m.Classes) != 1 {
		t.Errorf("%+v", m.Classes)
	}
	draft := map[string]string{"parts/60-web.yaml": "version: 1\nhosts: role=web\nsets: {near: {countries: [DE]}}\ninput: {rules: [allow https from near]}\n"}
	m = ask(api.FleetMapQuestion{Service: "https", Hosts: "role=web", Texts: draft})
	if state(m, "DE") != api.ReachAllowed || state(m, "FR") != api.ReachBlocked {
		t.Errorf("DE %s, FR %s", state(m, "DE"), state(m, "FR"))
	}
	if lines := m.Countries[0].Lines; len(lines) == 0 || lines[0].Rule == "" {
		t.Errorf("%+v", m.Countries[0])
	}
	mixed := map[string]string{"parts/60-web.yaml": "version: 1\nhosts: role=web\nservices: {app: tcp/8080}\ninput: {rules: [allow app]}\n"}
	if m := ask(api.FleetMapQuestion{Service: "app", Texts: mixed}); len(m.Classes) != 1 || len(m.Notes) != 1 || !strings.HasPrefix(m.Notes[0], "host db-1: ") {
		t.Errorf("a service that some know: %+v, %q", m.Classes, m.Notes)
	}
	for what, q := range map[string]api.FleetMapQuestion{
		"a service": {Service: "htpp"}, "a hook": {Service: "http", Hook: "output"}, "a selector": {Hosts: "role="}, "no host": {Hosts: "role=mail"},
		"a draft": {Texts: map[string]string{"parts/60-web.yaml": "version: 1\nhosts: role=web\ninput: {rules: [allow htpp]}\n"}},
	} {
		if _, err := f.client.Map(t.Context(), q); kind(err) != wire.KindBadRequest {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestProgress: who takes lines, or events, is told how far an answer is, and then the answer, or why
// there is none.
func TestProgress(t *testing.T) {
	t.Parallel()
	f := policies(t)
	erika := f.session("erika")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: f.tls()}}
	t.Cleanup(client.CloseIdleConnections)
	for _, accept := range []string{"application/x-ndjson", "text/event-stream"} {
		for body, wants := range map[string]string{`{"service":"ssh"}`: "result", `{"service":"sssh"}`: "error"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+f.web+"/api/v1/map", strings.NewReader(body))
			ok(t, err)
			r.Header.Set("Accept", accept)
			r.Header.Set("Authorization", "Bearer "+erika)
			answer, err := client.Do(r)
			ok(t, err)
			if got := answer.Header.Get("Content-Type"); got != accept {
				t.Errorf("%s: %s", accept, got)
			}
			var keys []string
			lines := bufio.NewScanner(answer.Body)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				text := strings.TrimPrefix(lines.Text(), "data: ")
				if text == "" || text[0] == ':' {
					continue
				}
				var line map[string]json.RawMessage
				ok(t, json.Unmarshal([]byte(text), &line))
				for key := range line {
					keys = append(keys, key)
				}
			}
			ok(t, lines.Err())
			_ = answer.Body.Close()
			if got := strings.Join(keys, " "); got != strings.Repeat("progress ", 2)+wants {
				t.Errorf("%s: %s", accept, got)
			}
		}
	}
}

// TestReach: who reaches what is one matrix, with the services of each class in its columns.
func TestReach(t *testing.T) {
	t.Parallel()
	f := policies(t)
	m, err := f.client.Reach(t.Context(), api.FleetReachQuestion{})
	ok(t, err)
	states := map[string]api.FleetReachState{}
	for row, s := range m.Sources {
		for column, to := range m.Targets {
			states[s.Name+" > "+to.Service+" of "+to.Class] = m.Cells[row][column].State
		}
	}
	for key, want := range map[string]api.FleetReachState{
		"web > postgresql of host db-1": api.ReachAllowed, "elsewhere > postgresql of host db-1": api.ReachBlocked, "web > https of 2 web hosts": api.ReachAllowed,
	} {
		if states[key] != want {
			t.Errorf("%s: %q", key, states[key])
		}
	}
	some, err := f.client.Reach(t.Context(), api.FleetReachQuestion{Service: "ssh", Hosts: "role=db"})
	ok(t, err)
	if len(some.Targets) != 1 || some.Targets[0].Class != "host db-1" {
		t.Errorf("%+v", some.Targets)
	}
}

// TestAsk: of hosts that are offline it is said by their class what happens to packets.
func TestAsk(t *testing.T) {
	t.Parallel()
	f := policies(t)
	q := api.FleetExplainQuestion{}
	q.Question.Source, q.Question.Port = "203.0.113.6", "5432"
	answers, err := f.client.AskExplain(t.Context(), q)
	ok(t, err)
	got := map[string]string{}
	for _, c := range answers.Classes {
		var is struct{ Verdict string }
		ok(t, json.Unmarshal(c.Answer, &is))
		got[c.Name] = is.Verdict
	}
	if got["host db-1"] != "allow" || got["2 web hosts"] != "drop" {
		t.Errorf("%v", got)
	}
	all := api.FleetQueryQuestion{Hosts: "role=web"}
	all.Question.Service, all.Question.Verdicts = "https", []string{"accept"}
	answers, err = f.client.AskQuery(t.Context(), all)
	ok(t, err)
	if len(answers.Classes) != 1 || !strings.Contains(string(answers.Classes[0].Answer), `"verdict":"allowed"`) {
		t.Errorf("%+v", answers)
	}
	all.Question.Service = "htpp"
	if _, err := f.client.AskQuery(t.Context(), all); kind(err) != wire.KindBadRequest {
		t.Error(err)
	}
	all.Question.Service, all.Question.Hook = "", "x"
	if _, err := f.client.AskQuery(t.Context(), all); kind(err) != wire.KindBadRequest {
		t.Errorf("an unknown hook: %v", err)
	}
	all.Question.Hook, all.Question.Verdicts = "input", []string{"x"}
	if _, err := f.client.AskQuery(t.Context(), all); kind(err) != wire.KindBadRequest {
		t.Errorf("an unknown verdict: %v", err)
	}
	q.Question.Source = "x"
	if _, err := f.client.AskExplain(t.Context(), q); kind(err) != wire.KindBadRequest {
		t.Error(err)
	}
}
