package classes

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"sluice/internal/base/english"
	"sluice/internal/base/sorting"
	"sluice/internal/engine"
	"sluice/internal/prove/check"
)

// Codes of findings that are about a fleet.
const (
	NoPart   check.Code = "no-part"   // a host that no part is of
	IdlePart check.Code = "idle-part" // a part that selects nobody
)

// Found is what was found, and for whom.
type Found struct {
	check.Finding
	Classes []*Class // none: it is of the fleet, or of the host that it names
}

// For is whom it was found for; "" of the fleet, or where that is said already.
func (f *Found) For() string {
	var names []string
	for _, c := range f.Classes {
		names = append(names, c.Name)
	}
	return english.Few(names, mostNamed)
}

// mostNamed is up to how many classes a sentence names.
const mostNamed = 5

// MarshalJSON writes the finding, and the names of the classes.
func (f Found) MarshalJSON() ([]byte, error) {
	finding, err := json.Marshal(f.Finding)
	if err != nil || len(f.Classes) == 0 {
		return finding, err
	}
	var names []string
	for _, c := range f.Classes {
		names = append(names, c.Name)
	}
	list, err := json.Marshal(names)
	return slices.Concat(finding[:len(finding)-1], []byte(`,"classes":`), list, []byte("}")), err
}

// Check finds what is wrong with the policy of each class, compiles it as hosts do, and proves
// what it is expected to do. Done is told of each class that was looked at.
func (f *Fleet) Check(ctx context.Context, classes []*Class, done func(c *Class)) ([]Found, error) {
	found := make([][]check.Finding, len(classes))
	err := f.each(ctx, len(classes), func(ctx context.Context, i int) error {
		var err error
		if found[i], err = f.checked(ctx, classes[i]); err != nil {
			return of(err, classes[i])
		}
		done(classes[i])
		return nil
	})
	if err != nil {
		return nil, err
	}
	var out []Found
	for i, list := range found {
		for _, one := range list {
			out = append(out, Found{one, []*Class{classes[i]}})
		}
	}
	return out, nil
}

func (f *Fleet) checked(ctx context.Context, c *Class) ([]check.Finding, error) {
	found, err := c.Check(ctx)
	if err == nil && check.Errors(found) == nil {
		_, err = engine.Build(ctx, c.Policy, c.Facts, nil, engine.Options{Sources: c.Sources, Backend: engine.Backends()[0], Unchecked: true})
		var wrong []check.Finding
		wrong, err = engine.Findings(err)
		found = append(found, wrong...)
	}
	return append(found, f.broken(c.Policy)...), err
}

// Join makes one of what was found for several classes, and sorts all by place.
func Join(list []Found) []Found {
	var out []Found
	at := map[string]int{}
	for _, f := range list {
		key := strings.Join([]string{string(f.Code), f.Pos.String(), f.Message}, "\n") // hints name the host
		if n, known := at[key]; known {
			out[n].Classes = append(out[n].Classes, f.Classes...)
			continue
		}
		at[key] = len(out)
		out = append(out, f)
	}
	sorting.StableBy(out, func(a, b Found) int {
		return cmp.Or(cmp.Compare(a.Pos.File, b.Pos.File), cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Column, b.Pos.Column))
	})
	return out
}
