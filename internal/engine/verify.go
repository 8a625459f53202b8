package engine

import (
	"context"
	"slices"
	"strings"

	"sluice/internal/engine/apply"
	"sluice/internal/program"
	"sluice/internal/system/host"
	"sluice/internal/system/kernel/attached"
)

// Verified is what Verify found.
type Verified struct {
	*apply.Verified
	Unproved []UnprovedChain `json:"unproved"`
	Attached []Beside        `json:"attached"`
	// Untold is what could not be read of other tools' chains and of what is attached.
	Untold []string `json:"cannot-tell,omitempty"`
}

// Holds says that the kernel does what the policy says, and that nothing beside it may
// keep it from that.
func (v *Verified) Holds() bool {
	return v.Proved && !v.Closed && len(v.Untold) == 0 &&
		!slices.ContainsFunc(v.Unproved, UnprovedChain.Matters) && !slices.ContainsFunc(v.Attached, Beside.Matters)
}

// UnprovedChain is a base chain of another tool.
type UnprovedChain struct {
	host.ForeignChain
	Can   []string `json:"can"`   // "drop" and "rewrite" what the policy allows, or one of More
	Opens bool     `json:"opens"` // it may let pass what the policy refuses
}

// Matters says whether the chain keeps the policy from meaning what it says. What it
// has expected is asked by the policy's rules.
func (u UnprovedChain) Matters() bool { return u.Opens || u.Drops || u.Rewrites }

// Text says what the chain can do.
func (u UnprovedChain) Text() string {
	var parts []string
	if n := len(u.Can) - len(u.More); n > 0 {
		parts = append(parts, "can "+strings.Join(u.Can[:n], " and ")+" what the policy allows")
	}
	for _, e := range u.More {
		parts = append(parts, apply.EffectText(e))
	}
	return strings.Join(parts, "; it ")
}

// Beside is what decides about packets beside rules.
type Beside struct {
	attached.Thing
	Opens bool   `json:"opens"` // it may let pass what the policy refuses
	Text  string `json:"text"`
}

// Matters says whether it keeps the policy from meaning what it says. A program that may
// be of another network namespace, and a function of which nothing is known, is listed
// and no more.
func (b Beside) Matters() bool { return b.Opens || b.Kind == attached.Netfilter && !b.Anywhere }

// Verify is apply.Host.Verify against a policy file as it is now; without one (nil),
// against that of the generation that runs. Unless own is set, it also says what else on
// the host decides about packets, of which nothing is proved.
func (h *Host) Verify(ctx context.Context, s *Subject, own bool) (*Verified, error) {
	if h.Netns != nil {
		return inside(h, func(h *Host) (*Verified, error) { return h.Verify(ctx, s, own) })
	}
	facts, err := Facts(ctx, h.State, h.Namespace, h.Session)
	if err != nil {
		return nil, err
	}
	var expected *program.Program
	file := ""
	if s != nil {
		s.Facts = facts
		h.Pristine(&s.Facts)
		hold, err := h.Exceptions()
		if err == nil {
			err = s.except(ctx, hold)
		}
		if err != nil {
			return nil, err
		}
		if err := s.Resolve(ctx); err != nil {
			return nil, err
		}
		if expected, err = expectedOf(s.Resolved); err != nil {
			return nil, err
		}
		file = s.Policy.File
	}
	v, err := h.Host.Verify(ctx, file, expected)
	if err != nil {
		return nil, err
	}
	out := &Verified{Verified: v, Unproved: []UnprovedChain{}, Attached: []Beside{}}
	if own {
		return out, nil
	}
	facts.ReadAttached()
	out.Unproved = unprovedChains(facts)
	for _, t := range facts.Attached {
		out.Attached = append(out.Attached, Beside{t, t.Opens(), apply.AttachedText(t)})
	}
	out.Untold = slices.DeleteFunc(slices.Clone(facts.Unread), func(text string) bool {
		what, _, _ := strings.Cut(text, ":")
		return !slices.Contains([]string{host.UnreadNFTables, host.UnreadLegacy, host.UnreadAttached}, what)
	})
	return out, nil
}

// unprovedChains are those of other tools that can do something about a packet or a
// flow.
func unprovedChains(f host.Facts) []UnprovedChain {
	out := []UnprovedChain{}
	for _, c := range f.ForeignChains {
		var can []string
		if c.Drops {
			can = append(can, "drop")
		}
		if c.Rewrites {
			can = append(can, "rewrite")
		}
		u := UnprovedChain{ForeignChain: c, Can: can}
		for _, e := range c.More {
			u.Can, u.Opens = append(u.Can, string(e)), u.Opens || e.Opens()
		}
		if len(u.Can) > 0 {
			out = append(out, u)
		}
	}
	return out
}
