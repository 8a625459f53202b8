package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"sluice/internal/backend"
	"sluice/internal/engine/verify"
	"sluice/internal/program"
)

// Proof is a proof with how long it took, reading included.
type Proof struct {
	*verify.Proof
	Seconds float64 `json:"seconds"`
}

// DisprovedError says that what was loaded does not mean what the policy says.
type DisprovedError struct{ Proof *Proof }

func (e *DisprovedError) Error() string {
	return fmt.Sprintf("the loaded rules do not do what the policy says: %d differences", len(e.Proof.Differences)) +
		shown(e.Proof.Differences, func(d verify.Difference) string {
			return fmt.Sprintf("%s: meant %s (%s), the kernel %s (%s)", d.Packet, d.Expected.Verdict, d.Expected.By, d.Kernel.Verdict, d.Kernel.By)
		})
}

// longestProof is how long an apply waits for a proof of what runs already;
// proofMemory is the part of the free memory that a proof may take.
const (
	longestProof = time.Minute
	proofMemory  = 3
)

// prove holds what was read back of a load against what the policy means. What the
// reader does not know is told of, and does not keep a policy from running that was
// read back as it was loaded.
func (s *session) prove(ctx context.Context, c change, have backend.State) error {
	lifter, can := s.Backend.(backend.Lifter)
	if !can {
		return nil
	}
	began := time.Now()
	expected := c.expected
	if expected == nil {
		var err error
		if expected, err = s.expected(c.to); err != nil {
			s.note("not proved: %v", err)
			return nil
		}
	}
	if c.fitted != nil {
		expected = without(expected, c.fitted.Missing)
	}
	s.asks(c.artifact) // knows which sets of bans are asked
	whole, err := lifter.Complete(ctx, have, c.artifact, s.bansRead)
	if err != nil {
		return fmt.Errorf("read the rules back: %w", err)
	}
	bounds := verify.Bounds{Time: longestProof, Memory: FreeMemory() / proofMemory}
	proof, err := s.proof(ctx, lifter, expected, whole, bounds)
	if err != nil {
		s.note("not proved: %v", err)
		return nil
	}
	s.proved = &Proof{proof, time.Since(began).Seconds()}
	for i, u := range proof.Unread {
		if i == maxShown {
			s.note("not proved: %d more rules", len(proof.Unread)-i)
			break
		}
		s.note("not proved: chain %s rule %d: %s: %s", u.Chain, u.Rule, u.Text, u.Why)
	}
	// What was not read may be why something differs.
	if len(proof.Differences) > 0 && len(proof.Unread) == 0 {
		return &DisprovedError{s.proved}
	}
	return nil
}

// proof holds a state, read wholly, against a program.
func (s *session) proof(ctx context.Context, lifter backend.Lifter, expected *program.Program, have backend.State, bounds verify.Bounds) (out *verify.Proof, err error) {
	// It runs in the middle of a change, which a fault of the reader must not end.
	defer func() {
		if fault := recover(); fault != nil {
			out, err = nil, fmt.Errorf("a bug in reading the rules back: %v", fault)
		}
	}()
	lifted, err := lifter.Lift(have)
	if err != nil {
		return nil, err
	}
	var can backend.Capabilities
	if s.Capabilities != nil {
		can = s.Capabilities(ctx, s.Backend)
	}
	if expected, err = lifter.Expected(expected, can, have, s.bans); err != nil {
		return nil, err
	}
	return verify.Prove(ctx, expected, lifted, devices(), bounds)
}

// devices are the interfaces of the thread's network namespace but loopback, none
// where they cannot be read: they make for likelier witnesses, and no proof rests on them.
func devices() (out []verify.Device) {
	list, err := net.Interfaces()
	if err != nil {
		return nil
	}
	for _, i := range list {
		if i.Flags&net.FlagLoopback != 0 {
			continue
		}
		d := verify.Device{Name: i.Name}
		addresses, _ := i.Addrs()
		for _, a := range addresses {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				d.Addresses = append(d.Addresses, prefix.Addr().Unmap())
			}
		}
		out = append(out, d)
	}
	return out
}

// expected is the program of a generation with only the passes that it needs; of one
// that an older Sluice wrote, with all.
func (s *session) expected(g *Generation) (*program.Program, error) {
	if g.Expected == "" {
		return s.program(g)
	}
	as := *g
	as.Program = g.Expected
	return s.program(&as)
}

// without is a program without devices, which stays as it is.
func without(p *program.Program, missing []string) *program.Program {
	out := *p
	out.Hooks, out.Flowtables, out.Chains = slices.Clone(p.Hooks), slices.Clone(p.Flowtables), slices.Clone(p.Chains)
	for i := range out.Chains {
		out.Chains[i].Rules = slices.Clone(out.Chains[i].Rules)
	}
	withoutDevices(&out, func(name string) bool { return !slices.Contains(missing, name) })
	return &out
}

// Verified is what Verify found.
type Verified struct {
	Generation int    `json:"generation"`       // that should run
	Policy     string `json:"policy,omitempty"` // what was held against the kernel
	// Closed says that the closed policy should run, since a restore failed.
	Closed bool `json:"closed,omitempty"`
	*Proof
	// Nothing says that the kernel has nothing of Sluice at all; Boot is the
	// generation that a restore would load, 0 for none.
	Nothing bool `json:"nothing-loaded"`
	Boot    int  `json:"boot,omitempty"`
	// Bans is where the sets of bans by command do not hold what the journal says.
	Bans []backend.Difference `json:"bans,omitempty"`
	// Exceptions is how those of the generation differ from those that hold.
	Exceptions []ExceptionDrift `json:"exception-drift,omitempty"`
	// Unasked is what other hands put into sets of bans that no rule asks: it is no
	// difference, since it does nothing.
	Unasked []Unasked `json:"unasked,omitempty"`
	// Grace is for how many seconds TCP of unknown connections still passes, since
	// tracking began; what is proved is what holds behind it.
	Grace float64 `json:"grace,omitempty"`
	// Longer is where that lasts for longer than the policy gives.
	Longer []backend.Difference `json:"longer,omitempty"`
	// Host is how the host compares with what the rules were loaded for.
	Host Standing `json:"host"`
	// Form is in how many places the kernel holds something else than was loaded,
	// whatever it means: see Status.
	Form int `json:"form"`
}

// errNoReader is for backends whose state cannot be read as a program.
var errNoReader = errors.New("this backend cannot interpret the kernel's rules")

// errNothingRuns is for a proof of nothing.
var errNothingRuns = remedied(NamePolicy, errors.New("no policy runs"))

// nothingToProve is why there is no policy to hold the kernel against.
func (s *session) nothingToProve(ctx context.Context) error {
	mark, err := s.mark(ctx)
	if err != nil {
		return err
	}
	empty, err := s.empty(ctx)
	if err != nil || mark == "" && empty {
		return cmp.Or(err, errNothingRuns)
	}
	return remedied(NamePolicyOrReplace, fmt.Errorf("rules of Sluice are loaded that this state directory does not know (%s), so there is nothing to compare them with", cmp.Or(mark, "without a mark")))
}

// Verify proves that the kernel does with every packet what a policy means: that of
// the generation that should run, or the one that is given with its name. It changes
// nothing, but settles what a killed command left.
func (h *Host) Verify(ctx context.Context, policy string, expected *program.Program) (*Verified, error) {
	s, ctx, err := h.openToRead(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	lifter, can := s.Backend.(backend.Lifter)
	if !can {
		return nil, errNoReader
	}
	began := time.Now()
	out := &Verified{Generation: s.cur.Running, Boot: s.cur.Boot, Policy: policy}
	var artifact backend.Artifact
	if s.cur.Running != 0 {
		have, err := s.Backend.Read(ctx, false)
		if err != nil {
			return nil, err
		}
		g, err := s.generation(s.cur.Running)
		if err != nil {
			return nil, s.unreadable(ctx, have, err)
		}
		if artifact, err = s.held(g); err != nil {
			return nil, s.unreadable(ctx, have, err)
		}
		out.Closed = g.Closed
		if !have.Empty() {
			if out.Exceptions, err = s.exceptionDrift(g); err != nil {
				return nil, err
			}
		}
		if expected == nil {
			if expected, err = s.expected(g); err != nil {
				return nil, s.unreadable(ctx, have, err)
			}
			out.Policy = g.Policy
			if g.Closed {
				out.Policy = "the closed policy"
			}
		}
		if g.Fitted != nil {
			expected = without(expected, g.Fitted.Missing)
		}
	}
	if expected == nil {
		return nil, s.nothingToProve(ctx)
	}
	var drift []backend.Difference
	if artifact != nil {
		since := s.instantNow()
		if drift, err = s.banDrift(ctx, artifact); err != nil {
			return nil, err
		}
		s.keepBans(since)
	}
	have, err := lifter.ReadWhole(ctx, s.bansRead)
	if err != nil {
		return nil, err
	}
	s.asks(artifact) // knows which sets of bans are asked
	proof, err := s.proof(ctx, lifter, expected, have, verify.Bounds{Memory: FreeMemory() / proofMemory})
	if err != nil {
		return nil, err
	}
	out.Proof, out.Nothing = &Proof{proof, 0}, have.Empty()
	if artifact != nil && !have.Empty() {
		out.Bans = drift
		differences, err := s.Backend.Compare(s.asks(artifact), have)
		if err != nil {
			return nil, err
		}
		for _, d := range differences {
			if d.Longer {
				out.Longer = append(out.Longer, d)
			}
		}
		mark, err := s.mark(ctx)
		if err != nil {
			return nil, err
		}
		if out.Host, err = s.standing(ctx, mark); err != nil {
			return nil, err
		}
		out.Form = len(out.Host.withoutMoves(differences))
		if out.Unasked, err = s.unaskedBans(ctx, artifact); err != nil {
			return nil, err
		}
	}
	if !out.Proved || len(out.Bans)+len(out.Longer)+out.Form > 0 {
		s.disbelieve()
	}
	out.Grace = graceLeft(have)
	out.Proved = out.Proved && len(out.Bans)+len(out.Exceptions) == 0 && len(out.Longer) == 0 && len(out.Host.Moved)+len(out.Host.Fixed) == 0
	out.Seconds = time.Since(began).Seconds()
	return out, nil
}
