package controller

import (
	"encoding/json"
	"net/http"
	"time"

	"sluice/internal/base/selector"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/judge"
)

// AskExplain says what happens to one packet on hosts, which are not asked.
func (o operator) AskExplain(w http.ResponseWriter, r *http.Request) {
	asked, fine := in[api.FleetExplainQuestion](w, r)
	if !fine {
		return
	}
	q := &asked.Question
	packet := judge.Packet{
		Protocol: q.Protocol, Source: q.Source, Destination: q.Destination, SourcePort: q.SourcePort, Port: q.Port, In: q.In, Out: q.Out,
		ICMPType: q.ICMPType, Flags: q.Flags, Hook: q.Hook, State: q.State, Mark: q.Mark,
	}
	answerAsked(o, w, r, asked.Hosts, asked.Texts, func(is *judging, only *selector.Selector) (*judge.Answers[*judge.Explained], error) {
		return o.judge.Explain(is, is.next, only, packet, is.progress)
	})
}

// AskQuery says what happens to all packets that fit on hosts, which are not asked.
func (o operator) AskQuery(w http.ResponseWriter, r *http.Request) {
	asked, fine := in[api.FleetQueryQuestion](w, r)
	if !fine {
		return
	}
	q := &asked.Question
	words := judge.Words{Service: q.Service, From: q.From, To: q.To, In: q.In, Out: q.Out, Hook: q.Hook}
	answerAsked(o, w, r, asked.Hosts, asked.Texts, func(is *judging, only *selector.Selector) (*judge.Answers[*judge.Queried], error) {
		return o.judge.Query(is, is.next, only, words, q.States, q.Verdicts, is.progress)
	})
}

// answerAsked has a question about classes of hosts answered.
func answerAsked[T any](o operator, w http.ResponseWriter, r *http.Request, hosts string, texts map[string]string, ask func(*judging, *selector.Selector) (*judge.Answers[T], error)) {
	only, err := o.asksAbout(hosts)
	if err != nil {
		o.done(w, nil, err)
		return
	}
	o.answer(w, r, as(r), texts, func(is *judging) (any, error) {
		since := time.Now()
		found, err := ask(is, only)
		if err != nil {
			return nil, err
		}
		out := &api.FleetAnswers{Bundle: is.manifest.Number, Classes: []api.FleetAnswer{}, Notes: found.Notes}
		for _, c := range found.Of {
			text, err := json.Marshal(c.Is)
			if err != nil {
				return nil, err
			}
			out.Classes = append(out.Classes, api.FleetAnswer{Name: c.Name, Hosts: c.Hosts, Answer: text})
		}
		out.Seconds = time.Since(since).Seconds()
		return out, nil
	})
}
