package engine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/engine/apply"
	"sluice/internal/engine/shadow"
	"sluice/internal/language/bans"
	"sluice/internal/language/policy"
	"sluice/internal/program"
	"sluice/internal/program/optimize"
	"sluice/internal/prove/check"
)

// Shadowing is a policy that is tried on live traffic without being enforced.
type Shadowing struct {
	Request
	Life  time.Duration
	Track bool // also where it would be the first to track connections
	// Began, where it is not nil, is called when it counts.
	Began func()
	// Look, where it is not nil, is shown from time to time what was counted up to then.
	Look func(*shadow.Report)
}

// NoSectionError says that a policy polices no section, so that it would drop nothing.
type NoSectionError struct{ File string }

func (e *NoSectionError) Error() string {
	return e.File + " has no section input, forward or output, so it would drop nothing\nhint: add such a section"
}

// Shadow builds a policy so that it only counts, and says what it would have dropped
// until its life was over or ctx ended it.
func (h *Host) Shadow(ctx context.Context, in Shadowing) (out *shadow.Report, err error) {
	if h.Netns != nil {
		return inside(h, func(h *Host) (*shadow.Report, error) { return h.Shadow(ctx, in) })
	}
	p, err := h.prepare(ctx, in.Request)
	if err != nil {
		return nil, err
	}
	legend, built, err := p.counting(ctx)
	if err != nil {
		return nil, err
	}
	for _, text := range p.brokenText() {
		h.warn(text)
	}
	for _, n := range built.Artifact.Notes() {
		h.note(apply.NoteText(n))
	}
	if legend.Tracks && !in.Track {
		if err := shadow.Tracking(ctx, p.Backend); err != nil {
			return nil, err
		}
	}
	if cost, free := built.Artifact.Cost(), apply.FreeMemory(); free > 0 && cost.Memory+cost.Growth > free/2 {
		return nil, fmt.Errorf("the shadow may take %s of kernel memory, and %s are free\nnothing was loaded", mebibytes(cost.Memory+cost.Growth), mebibytes(free))
	}
	running, err := shadow.Start(ctx, p.Backend, built.Artifact, legend, in.Life, func(done, total int, name string) {
		h.progress(apply.Progress{Purpose: "load", Name: name, Done: done, Total: total})
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, running.Close()) }()
	names := p.names()
	if in.Began != nil {
		in.Began()
	}
	named := func(r *shadow.Report) *shadow.Report {
		r.Policy, r.Namespace = in.File, h.Namespace
		return r
	}
	var look func(*shadow.Report)
	if in.Look != nil {
		look = func(r *shadow.Report) { in.Look(named(r)) }
	}
	if out, err = running.Watch(ctx, in.Life, names, look); err != nil {
		return nil, err
	}
	return named(out), nil
}

func mebibytes(n uint64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// counting builds the policy with the counting form in place of its program.
func (p *preparation) counting(ctx context.Context) (legend *shadow.Legend, built *Built, err error) {
	banned, err := p.host.banned()
	if err != nil {
		return nil, nil, err
	}
	if err := p.except(ctx); err != nil {
		return nil, nil, err
	}
	// Lines are counted apart from its own, and nothing is logged.
	p.Policy.Uncounted, p.Policy.LogsNetlink = false, false
	// What base chains are for is to see every packet, whatever the passes make of
	// the rest; and rules stay in the order of the policy.
	built, err = Build(ctx, p.Policy, p.Facts, p.Can, Options{
		Sources: p.Sources, Backend: p.Backend, Without: append(slices.Clone(p.Without), "base-chains", "terminal"),
		Compiled: func(compiled *program.Program, _ *optimize.Options) (*program.Program, error) {
			counting, l, err := shadow.Counting(compiled, banned)
			if legend = l; err == nil && len(l.Hooks) == 0 {
				err = &NoSectionError{p.File}
			}
			return counting, err
		},
	})
	if built != nil && check.Errors(built.Findings) == nil {
		for _, text := range warnings(built.Findings) {
			p.host.warn(text)
		}
	}
	if err == nil {
		err = shadow.Checked(built.Program)
	}
	return legend, built, err
}

// banned is what is banned by command at this moment.
func (h *Host) banned() (addrset.Set, error) {
	list, err := bans.Open(h.Dir).Read()
	if err != nil {
		return addrset.Set{}, err
	}
	var banned addrset.Builder
	for _, b := range list.Live(time.Now()).All() {
		banned.AddSet(b.Set())
	}
	return banned.Set(), nil
}

// names are what a report calls numbers by: countries as far as there is a database,
// services by the built-in list and the policy's own.
func (p *preparation) names() shadow.Names {
	out := shadow.Names{Service: p.service()}
	database, err := p.Sources.Countries()
	if err != nil {
		p.host.warn(fmt.Sprintf("the countries of sources are unknown: %v", err))
		return out
	}
	out.Country = func(a netip.Addr) (string, string) {
		if at, known := database.Lookup(a); known {
			return at.Code, at.Name
		}
		return "", ""
	}
	return out
}

// service names services as the policy would.
func (p *preparation) service() func(protocol, port int) (string, string) {
	known := slices.Concat(p.Policy.Services, policy.Builtin())
	return func(protocol, port int) (string, string) {
		if protocol == packet.ICMPv6 { // has no word of its own in policies, where icmp is both
			return "icmpv6", ""
		}
		text := policy.ServiceMatch{Protocol: uint8(protocol)} //nolint:gosec // one byte of a packet
		if port >= 0 {
			text.Ports = []policy.PortRange{{From: uint16(port), To: uint16(port)}} //nolint:gosec // two bytes of a packet
		}
		for _, s := range known {
			for _, m := range s.Matches {
				if port >= 0 && m.Protocol == text.Protocol && len(m.Ports) == 1 && m.Ports[0] == text.Ports[0] {
					return text.String(), s.Name
				}
			}
		}
		if words := text.String(); port < 0 || strings.Contains(words, "/"+strconv.Itoa(port)) {
			return words, ""
		}
		return fmt.Sprintf("%s port %d", text, port), "" // policies know no ports of it
	}
}
