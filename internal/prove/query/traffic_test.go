package query

import "testing"

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
