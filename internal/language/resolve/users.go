package resolve

import (
	"errors"
	"fmt"
	"os/user"
	"strconv"

	"sluice/internal/language/policy"
)

func (r *resolver) users() {
	for _, w := range userNames(r.out.Policy) {
		if _, done := r.out.Users[w.Text]; done {
			continue
		}
		id, err := r.opt.User(w.Text)
		if err != nil {
			r.fail(w.Pos, err.Error(), "make the user first, or give the number")
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

// hostUser asks the host's own users; a number stands for itself.
func hostUser(name string) (uint32, error) {
	if id, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(id), nil
	}
	u, err := user.Lookup(name)
	if unknown := user.UnknownUserError(""); errors.As(err, &unknown) {
		return 0, fmt.Errorf("this host has no user %q", name)
	}
	if err != nil {
		return 0, fmt.Errorf("cannot look up the user %q: %w", name, err)
	}
	id, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("user %q has the number %q, which is none", name, u.Uid)
	}
	return uint32(id), nil
}
