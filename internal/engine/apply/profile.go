package apply

import (
	"context"
	"fmt"
)

// Profile is how often the rules of the running generation were hit when it was
// compiled, by counter; nil where nobody asked. Who compiles again goes by the
// same, so that rules do not change places because some time has gone by.
func (h *Host) Profile() map[string]uint64 {
	st, cur, err := h.peek()
	if err != nil || cur.Running == 0 {
		return nil
	}
	g, err := st.generation(cur.Running)
	if err != nil {
		return nil // it is replaced by what can be read
	}
	return g.Profile
}

// Hits is how often the rules in the kernel have been hit, by counter.
func (h *Host) Hits(ctx context.Context) (map[string]uint64, error) {
	st, cur, err := h.peek()
	if err != nil {
		return nil, err
	}
	have, err := h.session(st, cur).Backend.Read(ctx, true)
	if err != nil {
		return nil, fmt.Errorf("read the counters: %w", err)
	}
	out := map[string]uint64{}
	for name, n := range have.Counters() {
		out[name] = n.Packets
	}
	return out, nil
}
