package expect

import (
	"slices"

	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
)

// hookOf says on which way the packets of an expectation are: where the line
// says so, there; what a user sends, on output; what goes on, by an interface or
// a zone that it leaves by or to addresses that are not this host's, on forward;
// the rest on input. What is published comes to this host before it is led on.
func hookOf(r *resolve.Resolved, x *policy.Expectation) (policy.Hook, *policy.Error) {
	switch {
	case x.Published && x.To == nil: // to this host, wherever they are led
		return policy.Input, nil
	case x.On != "" && (!x.Published || !r.Facts.Known):
		return x.On, nil
	case len(x.Users) > 0:
		return policy.Output, nil
	case x.Out != nil || x.To != nil && namesZone(r, x.To):
		return policy.Forward, nil
	case x.To == nil:
		return policy.Input, nil
	}
	unsure := func(format string, args ...any) (policy.Hook, *policy.Error) {
		return "", r.Policy.Errorf(x.To.Pos, "end the expectation with \"on input\" or \"on forward\"", format, args...)
	}
	if !r.Facts.Known {
		return unsure("the addresses of this host are not known, so neither is whether it receives or forwards these packets")
	}
	to := addresses(r, x.To)
	if x.To.Not {
		to = to.Complement()
	}
	_, here := own(r.Facts)
	switch {
	case here.ContainsSet(to):
		return policy.Input, nil
	case !to.Overlaps(here) && r.Facts.NonLocalBind:
		return unsure("these are not addresses of this host, but packets to them may be for it: programs here may use addresses that it does not have")
	case !to.Overlaps(here):
		return policy.Forward, nil
	}
	return unsure("some of these addresses belong to this host and some do not")
}

func namesZone(r *resolve.Resolved, w *policy.Who) bool {
	return slices.ContainsFunc(w.Items, func(i policy.WhoItem) bool { return r.Zones[i.Name] != nil })
}
