// Package doctor says what makes the network of a host slow or lossy, whatever firewall it
// runs, and what to do about it. "sluice doctor" calls it.
//
// The words:
//
//   - [Seen] is what was read of one network namespace and its machine: counters at both
//     ends of a window, levels within it, the connection table, sockets, settings.
//     Reading changes nothing.
//   - A [Check] knows one illness. It reads Seen alone, and says a [Finding] where the host
//     has the illness. Each check is a file; the manual is made of the same texts.
//   - [Evidence] is a figure that a finding rests on, and where it was read.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"sluice/internal/base/english"
	"sluice/internal/base/sorting"
	"sluice/internal/prove/check"
)

// Check is one illness, and what there is to say of it.
type Check struct {
	ID    string // does not change between versions
	What  string // the illness, a sentence without a full stop
	Why   string // why it matters, and what is looked at
	Fix   string // what to do, in general
	Undo  string // how that is taken back
	Least check.Severity
	// Fixable says that settings fix it, which a program may set: its findings name them.
	// ByHand is why they do not, where that is not the usual: see [Check.Unfixed].
	Fixable bool
	ByHand  string

	look func(s *Seen, say func(Finding))
}

// Unfixed is why no program fixes it, a sentence without a full stop; "" where one may.
func (c *Check) Unfixed() string {
	if c.Fixable {
		return ""
	}
	return cmp.Or(c.ByHand, "the fix changes rules, programs or cards; judge yourself what else that affects")
}

// Finding is an illness that the host has.
type Finding struct {
	Check    string         `json:"check"`
	Severity check.Severity `json:"severity"`
	Text     string         `json:"text"` // with its figures, one sentence
	Evidence []Evidence     `json:"evidence"`
	Cost     string         `json:"cost,omitempty"` // what the host pays for it
	Fix      []string       `json:"fix,omitempty"`  // commands, or what to do
	Undo     []string       `json:"undo,omitempty"`
	Settings []Setting      `json:"settings,omitempty"` // sysctls that fix it; none: no program may
}

// Evidence is one figure.
type Evidence struct {
	Text string `json:"text"`
	From string `json:"from"` // a file, a counter, a command
}

// Report is what an examination has found.
type Report struct {
	Window   float64   `json:"window-seconds"`
	Checks   int       `json:"checks"`
	Findings []Finding `json:"findings"` // the worst first; of the same severity, causes before effects
	// Taken is what packets took of the processors' time, most first.
	Taken []Taken `json:"processor-time,omitempty"`
	// Costs are of base chains that ask packets anything, the dearest first.
	Costs []ChainCost `json:"chains,omitempty"`
	// Unread says what could not be read, and why: checks that rest on it found nothing.
	Unread []string `json:"unread,omitempty"`
}

// Ill says that there is more than remarks.
func (r *Report) Ill() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity != check.Remark })
}

// Options say how a host is examined.
type Options struct {
	Window time.Duration // for which rates are counted
	// Expect is how many new connections a second the host is to bear; 0: what it has.
	Expect uint64
	// Namespace is the name of the network namespace, for files that it has of its own; "" is
	// the host's own.
	Namespace string
	// Since is when something was set that fixes: lines of the kernel's log from before are
	// skipped. The zero value passes over none.
	Since time.Time
}

// Examine looks at the network namespace of the calling thread.
func Examine(ctx context.Context, o Options) (*Report, error) {
	s, err := see(ctx, o)
	if err != nil {
		return nil, err
	}
	return s.report(), nil
}

// mostFindings bounds those of one check: what is named may be as many as any user of the
// host likes.
const mostFindings = 20

func (s *Seen) report() *Report {
	r := &Report{Window: s.Window.Seconds(), Checks: len(checks), Findings: []Finding{}, Taken: s.Taken, Costs: Costs(s.Rules), Unread: s.Unread}
	for _, c := range checks {
		var all []Finding
		c.look(s, func(f Finding) {
			f.Check = c.ID
			f.Severity = cmp.Or(f.Severity, c.Least)
			all = append(all, f)
		})
		worstFirst(all)
		if n := len(all) - mostFindings; n > 0 {
			more := Finding{Check: c.ID, Severity: all[mostFindings].Severity, Text: english.Grouped(n) + " more of this kind", Evidence: []Evidence{}}
			all = append(all[:mostFindings], more)
		}
		r.Findings = append(r.Findings, all...)
	}
	worstFirst(r.Findings)
	return r
}

func worstFirst(list []Finding) {
	sorting.StableBy(list, func(a, b Finding) int { return cmp.Compare(rank(a.Severity), rank(b.Severity)) })
}

func rank(s check.Severity) int {
	return slices.Index([]check.Severity{check.Error, check.Warning, check.Remark}, s)
}

// found is a figure of the evidence.
func found(from, format string, args ...any) Evidence {
	return Evidence{Text: fmt.Sprintf(format, args...), From: from}
}
