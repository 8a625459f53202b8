package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"time"

	"sluice/internal/backend"
	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/language/bans"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/prove/estimate"
	"sluice/internal/prove/explain"
)

// Explaining is a packet that a policy is asked about.
type Explaining struct {
	*Subject // nil: what runs here
	explain.Question
	explain.Words
	Elsewhere bool // the policy is for another host than this one
	Live      bool // the firewall that is loaded here is asked too
}

// Explained is what a policy does with a packet, and why.
type Explained struct {
	*explain.Answer
	// Cost is what the rules cost the packet; nil where that is not known.
	Cost *PacketCost `json:"cost"`
	Live *Live       `json:"live,omitempty"` // with Explaining.Live
}

// PacketCost is what one packet pays for the rules that it meets.
type PacketCost struct {
	CostsView
	NS float64 `json:"ns"`
}

// ErrNotHere says that the loaded firewall was to be asked of another host.
var ErrNotHere = errors.New("the firewall that is loaded is that of this host, and the policy is for another one")

// Explain says what a policy does with one packet, and asks the rules that it is built
// to the same. With an error of explain.QuestionError there is no such packet; a
// *LiveError says that the loaded firewall could not be asked.
func (h *Host) Explain(ctx context.Context, q Explaining) (*Explained, error) {
	if h.Netns != nil {
		return inside(h, func(h *Host) (*Explained, error) { return h.Explain(ctx, q) })
	}
	if q.Subject == nil {
		var err error
		if q.Subject, err = h.asked(ctx, h.sources()); err != nil {
			return nil, err
		}
	}
	by, costs := h.Backend, Costs{Elsewhere: q.Elsewhere}
	if !q.Elsewhere {
		by, costs = h.calibrated(by)
	}
	// As an apply here would build it: for this kernel, with the rules in the order that
	// the running policy has them in.
	var can backend.Capabilities
	o := Options{Sources: q.Sources, Backend: by}
	s := explain.Subject{Words: q.Words}
	var unread error // why it is not known what is banned
	if q.Elsewhere {
		s.Route = q.Facts.Route
	} else {
		can, o.Profile = Capabilities(ctx, h.State, by), h.Profile()
		q.Facts.ReadRouting()
		s.Route = q.Facts.Kernel
		var err error
		if s.Bans, err = h.bansNow(ctx, q.Subject); err != nil && !errors.Is(err, fs.ErrPermission) {
			unread = err
		}
	}
	if err := q.Resolve(ctx); err != nil {
		return nil, err
	}
	if q.Runs != nil && !q.Elsewhere {
		if err := h.readOthers(ctx, q.Resolved); err != nil {
			return nil, err
		}
	}
	s.Resolved = q.Resolved
	followed, err := explain.Follow(s, q.Question)
	if err != nil {
		return nil, err
	}
	out := &Explained{}
	if q.Live {
		if q.Elsewhere {
			return nil, ErrNotHere
		}
		if out.Live, err = askLoaded(ctx, h.Host, followed, q.Out != ""); err != nil {
			return nil, err
		}
	}
	built, err := Program(q.Resolved, can, o)
	if err != nil {
		return nil, err
	}
	if out.Answer, err = followed.Answer(built); err != nil {
		return nil, err
	}
	if unread != nil {
		out.Notes = append(out.Notes, unreadBans(unread))
	}
	pricer, is := by.(backend.Pricer)
	if is && out.Program.Agrees != nil && !followed.Undecided() {
		asked, way := followed.AsAsked()
		if out.Banned != "" {
			built = banning(built, followed.Ban)
		}
		out.Cost = &PacketCost{costs.View(), math.Round(estimate.Packet(pricer.Prices(built), built, asked, way))}
	}
	return out, nil
}

// readOthers reads what other programs have in the sets that they fill.
func (h *Host) readOthers(ctx context.Context, r *resolve.Resolved) error {
	var have backend.Filled
	for _, set := range r.Sets {
		if !set.Others {
			continue
		}
		if have == nil {
			state, err := h.Backend.Read(ctx, false)
			if err != nil {
				return err
			}
			var can bool
			if have, can = state.(backend.Filled); !can {
				return nil
			}
		}
		entries, err := have.Filled(ctx, set.Name)
		if err != nil {
			return fmt.Errorf("read set %s: %w", set.Name, err)
		}
		var b addrset.Builder
		for _, e := range entries {
			b.AddRange(addrset.PrefixRange(e.Address))
		}
		set.Addresses = b.Set()
	}
	return nil
}

// banning is a program with a ban in the set that commands fill, where it would cost a packet
// what it does.
func banning(p *program.Program, ban *explain.Ban) *program.Program {
	out := *p
	out.Sets = slices.Clone(p.Sets)
	for i := range out.Sets {
		if set := &out.Sets[i]; set.Commands {
			set.Life, set.Commands, set.Addresses = program.Static, false, ban.Drops
		}
	}
	return &out
}

// bansNow are the bans that hold here besides those of the policy: by command, of whatever
// policy runs, and by limits of the one that does. Where they cannot be read there are none:
// not everybody may.
func (h *Host) bansNow(ctx context.Context, s *Subject) ([]explain.Ban, error) {
	var out []explain.Ban
	for _, b := range h.bannedByCommand() {
		ban := explain.Ban{What: b.Name(), Drops: b.Set(), By: "by command", Reason: b.Reason, Until: b.Until, Fleet: b.ID != ""}
		if ban.Fleet {
			ban.By = "by the fleet"
		}
		out = append(out, ban)
	}
	byLimits, _, err := h.BansByLimits(ctx)
	if err != nil {
		return out, err
	}
	for _, b := range byLimits {
		if !b.InForce {
			continue
		}
		ban := explain.Ban{What: b.What, Drops: b.Of, By: "by a limit", Until: b.Until, ByLimit: true, Elsewhere: s.Runs == nil}
		switch {
		case b.Before:
			ban.By += " of an earlier policy"
		case b.Rule != "":
			ban.By = "by the limit of " + b.Rule
		}
		out = append(out, ban)
	}
	return out, nil
}

// shownBans is of how many bans each is named.
const shownBans = 3

// notesOnBans are notes on the bans that hold now for addresses.
func (h *Host) notesOnBans(ctx context.Context, s *Subject, of addrset.Set, note func(*explain.Ban) string) []string {
	list, err := h.bansNow(ctx, s)
	list = slices.DeleteFunc(list, func(b explain.Ban) bool { return !b.Drops.Overlaps(of) })
	var out []string
	for i := range list[:min(len(list), shownBans)] {
		out = append(out, note(&list[i]))
	}
	if n := len(list) - shownBans; n > 0 {
		out = append(out, fmt.Sprintf("%s of it", english.Plural(n, "more ban")))
	}
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		out = append(out, unreadBans(err))
	}
	return out
}

func unreadBans(err error) string {
	return fmt.Sprintf("what limits ban now could not be read: %v", err)
}

// bannedByCommand are the bans by command that hold now. Where they cannot be read there
// are none: not everybody may.
func (h *Host) bannedByCommand() []bans.Ban {
	list, err := bans.Open(h.Dir).Read()
	if err != nil {
		return nil
	}
	return list.Live(time.Now()).All()
}
