package resolve

import (
	"context"

	"sluice/internal/base/users"
	"sluice/internal/language/policy"
)

// hostUser is [Options.User] where nobody gives another.
func hostUser(name string) (uint32, error) { return users.Number(context.Background(), name) }

func (r *resolver) users() {
	for _, w := range userNames(r.out.Policy) {
		if _, done := r.out.Users[w.Text]; done {
			continue
		}
		id, err := r.opt.User(w.Text)
		if err != nil {
			r.fail(w.Pos, err.Error(), "create the user first, or use the number")
			continue
		}
		r.out.Users[w.Text] = id
		r.out.Inputs.addUser(w.Text, id)
	}
}

// userNames are the users that rules and expectations name, wherever they do.
func userNames(p *policy.Policy) []policy.Word {
	var names []policy.Word
	for _, s := range []*policy.Section{p.Input, p.Output, p.Forward} {
		if s == nil {
			continue
		}
		for _, rule := range s.Rules {
			names = append(names, rule.Users...)
		}
	}
	for _, x := range p.Expect {
		names = append(names, x.Users...)
	}
	return names
}
