package query

import (
	"encoding/json"
	"testing"

	"sluice/internal/base/packet"
	"sluice/internal/language/geo"
)

func TestShortened(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{"any protocol but icmp", "icmp but destination-unreachable, echo-request"}, "any protocol but icmp destination-unreachable, echo-request"},
		{[]string{"any protocol but icmp"}, "any protocol but icmp"},
		{[]string{"tcp/80", "icmp echo-request", "icmp timestamp-request"}, "tcp/80, icmp echo-request and timestamp-request"},
	} {
		if got := (&Traffic{Services: c.words}).Service(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// What an answer says of packets is in its JSON.
func TestAnswersSurviveJSON(t *testing.T) {
	c := compiled(t, resolved(t, "p.yaml", "version: 1\nsets: {office: [192.0.2.0/24, 2001:db8::/48]}\ninput: {default: drop, rules: [allow ssh from office, allow icmp echo-request]}\n"))
	answers, err := Query(c, Words{States: []packet.State{packet.New}}, nil, geo.Snapshot)
	if err != nil || len(answers) < 3 {
		t.Fatalf("%d answers, %v", len(answers), err)
	}
	for i := range answers {
		a := &answers[i]
		text, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		var copied Answer
		if err := json.Unmarshal(text, &copied); err != nil {
			t.Fatal(err)
		}
		said := func(a *Answer) string {
			return a.Service() + " " + a.Place() + ", " + a.Example.String() + ", " + a.By.String()
		}
		if said(&copied) != said(a) {
			t.Errorf("%q, want %q", said(&copied), said(a))
		}
	}
}
