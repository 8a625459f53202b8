package apply

import "sluice/internal/program"

// Lines are the lines of a policy that runs.
type Lines struct {
	Generation int                       // 0: none runs
	ByID       map[string]program.Origin // of rules
	Counters   map[string]program.Origin // of named counters
	Netlink    bool                      // some are logged to the netlink log group
	Kernel     bool                      // some are logged to the kernel log
}

// Lines takes no lock.
func (h *Host) Lines() (*Lines, error) {
	out := &Lines{ByID: map[string]program.Origin{}, Counters: map[string]program.Origin{}}
	st, cur, err := h.peek()
	if err != nil || cur.Running == 0 || cur.BootID != bootID() {
		return out, err
	}
	g, err := st.generation(cur.Running)
	if err != nil {
		return nil, err
	}
	p, err := st.program(g)
	if err != nil {
		return nil, err
	}
	out.Generation = g.Number
	for _, c := range p.Counters {
		out.Counters[c.Name] = c.Origin
	}
	for _, c := range p.Chains {
		for _, r := range c.Rules {
			if r.ID != "" && r.Origin.Line > 0 {
				out.ByID[r.ID] = r.Origin
			}
			for _, a := range r.Actions {
				if l, is := a.(program.Log); is {
					out.Netlink, out.Kernel = out.Netlink || l.Group == program.LogGroup, out.Kernel || l.Group == 0
				}
			}
		}
	}
	return out, nil
}
