package query

import (
	"testing"

	"sluice/internal/base/packet"
	"sluice/internal/language/geo"
	"sluice/internal/program"
)

// TestRedirectToWhereItGoes: what a redirect leads to where it goes already is not
// rewritten, so it is not published; the rest of the redirect is.
func TestRedirectToWhereItGoes(t *testing.T) {
	for _, c := range []struct{ nat, published, want string }{
		{"tcp/8080 on 198.51.100.1 to 198.51.100.1:8080", "tcp/8080", ""},
		{"tcp/8080 on 198.51.100.1 to 198.51.100.1", "tcp/8080", ""},
		{"tcp/8080-8081 on 198.51.100.1 to 198.51.100.1:8080", "tcp/8080-8081", "tcp/8081"},
	} {
		text := "version: 1\ninput: {default: drop, rules: [allow published " + c.published + "]}\nnat: ['redirect " + c.nat + "']\n"
		w := Words{States: []packet.State{packet.New}, Hook: "input", Service: "tcp/8080-8081", To: "198.51.100.1"}
		if c.want == "" {
			w.Service = c.published
		}
		answers, err := Query(compiled(t, resolved(t, "policy.yaml", text)), w, []program.Verdict{program.Accept}, geo.Snapshot)
		if err != nil {
			t.Errorf("%s: %v", c.nat, err)
			continue
		}
		got := ""
		for _, a := range answers {
			got += a.Service()
		}
		if got != c.want {
			t.Errorf("%s: allowed is %q, want %q", c.nat, got, c.want)
		}
	}
}
