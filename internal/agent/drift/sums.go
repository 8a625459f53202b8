package drift

import (
	"encoding/json"
	"errors"

	"sluice/internal/system/kernel/attached"
	"sluice/internal/system/kernel/xtables"
)

// sums is what of other tools sends no notifications, as it was last: rules of legacy
// iptables, and what is attached beside rules. What a set of ipset holds is not among it:
// whatever it is, the rule that asks it is told of as one that can drop.
type sums struct {
	legacy   uint64
	attached string
}

// changed looks again, in the network namespace of the calling thread.
func (s *sums) changed() (bool, error) {
	legacy, err := xtables.Sum()
	things, errs := attached.List()
	text, failed := json.Marshal(things)
	now := sums{legacy, string(text)}
	changed := now != *s
	*s = now
	return changed, errors.Join(append(errs, err, failed)...)
}
