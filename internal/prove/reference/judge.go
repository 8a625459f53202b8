package reference

import (
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
)

// Answer is what happens to a packet at one hook.
type Answer struct {
	Action policy.Action // Allow, Drop or Reject
	// Why is the text of the line that decided, or why nothing that is written
	// did.
	Why string
}

// Judge says what the policy does with a packet at one hook, as it is there:
// after the rewriting of its destination, before that of its source. What the
// packet's fields leave unknown is taken as no.
func Judge(r *resolve.Resolved, p packet.Packet, hook policy.Hook) Answer {
	w := &walk{Resolved: r, packet: p, hook: hook, quiet: true}
	w.way = map[policy.Hook]packet.Way{policy.Input: packet.In, policy.Forward: packet.Through, policy.Output: packet.Out}[hook]
	w.decide()
	why := w.decided.Text
	if why == "" {
		why = w.decided.Why
	}
	return Answer{w.decided.Verdict, why}
}
