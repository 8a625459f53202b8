package policy

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A comment is about its own line, or about the next one that says something;
// what is in quotes is none.
func TestComments(t *testing.T) {
	p, err := LoadData("policy.yaml", []byte("# the first\nversion: 1\ninput:\n  default: 'drop log \"a # b\"' # behind\n  rules:\n    # above\n\n    ## more\n    - 'drop any log \"# no\"'\n# last\n"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range p.Comments() {
		got = append(got, fmt.Sprintf("%d:%d %q about %d", c.Pos.Line, c.Pos.Column, c.Text, c.About))
	}
	want := []string{`1:1 "the first" about 2`, `4:31 "behind" about 4`, `6:5 "above" about 9`, `8:5 "more" about 9`, `10:1 "last" about 0`}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Comments of any policy that loads are comments of its lines.
func FuzzComments(f *testing.F) {
	f.Add("version: 1 # a\n")
	f.Add("# lint: allow x y\nversion: 1\ninput: {default: drop} # b\n")
	f.Add("version: 1\ninput:\n  default: \"drop\" # \"\n  rules:\n    - |\n      allow ssh # in\n    # last")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse("policy.yaml", []byte(text))
		if err != nil {
			return
		}
		lines := len(p.lines["policy.yaml"])
		for _, c := range p.Comments() {
			if c.Pos.Line < 1 || c.Pos.Line > lines || c.About != 0 && (c.About < c.Pos.Line || c.About > lines) {
				t.Errorf("%+v in %d lines of %q", c, lines, text)
			}
		}
	})
}
