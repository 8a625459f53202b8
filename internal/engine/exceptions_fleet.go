package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"sluice/internal/engine/apply"
)

// FleetAllowing is a change of whom the fleet of the host lets in.
type FleetAllowing struct {
	Allow []apply.Exception `json:"allow,omitempty"` // each with ID, What, Service, Until and By, and of each ID one
	Lift  []string          `json:"lift,omitempty"`  // IDs
	// Whole says that Allow is all that the fleet lets in with an ID behind From, up to To, of
	// which "" is no bound.
	Whole bool   `json:"whole,omitempty"`
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
}

// FleetAllowed is what came of it: without an error the rest is in the rules, which were read
// back.
type FleetAllowed struct {
	Refused []apply.FleetRefused `json:"refused,omitempty"`
}

// AllowFleet lets in whom the fleet of the host does, within the bounds of its policy that runs,
// and nobody any more whom it does not.
func (h *Host) AllowFleet(ctx context.Context, in FleetAllowing) (*FleetAllowed, error) {
	running, err := h.Running(nil)
	if err != nil {
		return nil, err
	}
	hold, err := h.Exceptions()
	if err != nil {
		return nil, err
	}
	out := &FleetAllowed{}
	may, who := map[string]apply.Exception{}, h.whoMay(ctx, running)
	now := time.Now()
	for _, e := range in.Allow {
		if e.Until = e.Until.Truncate(time.Second).UTC(); !e.Until.After(now) {
			continue
		}
		e.Since = now.Truncate(time.Second).UTC()
		service, err := running.Policy.Service(e.Service)
		why := ""
		if err == nil {
			e.Service = service
			why, err = admits(running.Policy, e, who)
		}
		if err != nil {
			why = err.Error()
		}
		if why == "" {
			may[e.ID] = e
			continue
		}
		out.Refused = append(out.Refused, apply.FleetRefused{ID: e.ID, Why: why})
	}
	// what the host has already was proved when it came
	fresh := slices.DeleteFunc(slices.Collect(maps.Values(may)), func(e apply.Exception) bool { return slices.ContainsFunc(hold, e.Same) })
	forbidden, err := h.forbidden(ctx, fresh)
	if err != nil {
		return nil, err
	}
	for i, why := range forbidden {
		delete(may, fresh[i].ID)
		out.Refused = append(out.Refused, apply.FleetRefused{ID: fresh[i].ID, Why: (&ForbiddenError{why}).Error()})
	}
	named := map[string]bool{}
	for _, id := range in.Lift {
		named[id] = true
	}
	for _, e := range in.Allow {
		named[e.ID] = true
	}
	var next []apply.Exception
	for _, e := range hold {
		is, known := may[e.ID]
		switch {
		case e.ID == "":
			next = append(next, e)
		case known && is.What == e.What && is.Service == e.Service && is.Until.Sub(e.Until).Abs() <= sameEnd:
			next = append(next, e)
			delete(may, e.ID)
		case named[e.ID] || in.Whole && e.ID > in.From && (in.To == "" || e.ID <= in.To):
		default:
			next = append(next, e)
		}
	}
	for _, e := range in.Allow {
		e, is := may[e.ID]
		switch {
		case !is:
		case len(apply.LetIn(next)) >= mostExceptions:
			out.Refused = append(out.Refused, apply.FleetRefused{ID: e.ID, Why: fmt.Sprintf("this host has %d exceptions, which is the most allowed", mostExceptions)})
		default:
			next = append(next, e)
		}
	}
	if slices.Equal(next, hold) {
		return out, nil
	}
	_, err = h.excepted(ctx, running, hold, next, true)
	return out, err
}

// sameEnd is by how much the end of what the fleet lets in may differ from what the host has
// already: each message of the fleet tells the time a little otherwise.
const sameEnd = 5 * time.Second
