package apply

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"sluice/internal/addrset"
	"sluice/internal/bans"
	"sluice/internal/host"
)

// Banning is what a command wants banned.
type Banning struct {
	List  []bans.Named
	For   time.Duration // 0: until it is lifted
	Force bool          // also the ssh peer that calls
}

// Banned is what came of it.
type Banned struct {
	Banned   int       `json:"banned"`
	Until    time.Time `json:"until,omitzero"`
	Refused  []Refused `json:"refused,omitempty"`
	InForce  bool      `json:"in-force"` // the kernel has it
	NotThere []string  `json:"not-banned,omitempty"`
	Lifted   int       `json:"lifted,omitempty"`
}

// Refused is something that is never banned.
type Refused struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// Ban bans addresses, prefixes and ranges: first in the journal, then in the
// kernel. What is never banned is left out and told of.
func (h *Host) Ban(ctx context.Context, in Banning) (*Banned, error) {
	if err := h.ready(); err != nil {
		return nil, err
	}
	s, err := h.open(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	c, err := s.running(ctx)
	if err != nil {
		return nil, err
	}
	now := s.now()
	out := &Banned{InForce: true}
	var end time.Time
	if in.For > 0 {
		end = now.Add(in.For)
		out.Until = end
	}
	spared, err := s.spared(c, in.Force)
	if err != nil {
		return nil, err
	}
	seen := make(map[addrset.Range]bool, len(in.List))
	list := make([]bans.Ban, 0, len(in.List))
	for i := len(in.List) - 1; i >= 0; i-- { // the last word counts
		n := in.List[i]
		if seen[n.What] {
			continue
		}
		seen[n.What] = true
		if why := spared.why(n.What); why != "" {
			out.Refused = append(out.Refused, Refused{n.What.String(), why})
			continue
		}
		list = append(list, bans.Ban{What: n.What, Since: now, Until: end, By: bans.Author(h.By), Reason: n.Reason})
	}
	slices.Reverse(list)
	slices.Reverse(out.Refused)
	out.Banned = len(list)
	if len(list) == 0 {
		return out, nil
	}
	return out, s.edit(ctx, c, bans.EntryOf(list, now, bans.Author(h.By)), list, nil, now)
}

// ready refuses before a state is made.
func (h *Host) ready() error {
	if err := needRoot(); err != nil {
		return err
	}
	if !h.known() {
		return errNoBans
	}
	return nil
}

// spared is what cannot be banned now.
type spared struct {
	never addrset.Set
	own   addrset.Set
	peer  netip.Addr // that calls, unless it is forced
}

func (s *session) spared(c *commands, force bool) (*spared, error) {
	local, err := localAddresses()
	if err != nil {
		return nil, fmt.Errorf("list the own addresses: %w", err)
	}
	var b addrset.Builder
	for a := range local {
		b.AddAddr(a)
	}
	out := &spared{never: c.Commands.Never, own: b.Set()}
	if peer, over := host.OwnSession(); over && !force {
		out.peer = peer.Remote.Addr().Unmap().WithZone("")
	}
	return out, nil
}

// why says why something cannot be banned, "" where it can.
func (s *spared) why(r addrset.Range) string {
	all := addrset.Of(r)
	switch {
	case s.peer.IsValid() && all.Contains(s.peer):
		return "your ssh session comes from " + s.peer.String() + " (--force bans it)"
	case s.own.ContainsSet(all):
		return "it is this host's own address"
	case s.never.ContainsSet(all):
		return "it is never banned: by never-ban of the policy, or since it is loopback, link-local, multicast or unspecified"
	}
	return ""
}
