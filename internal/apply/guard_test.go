package apply

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"sluice/internal/program"
)

// TestGuardAsksForTheAnswer has ssh bypass tracking: input lets the peer in, and
// output decides on what the host answers.
func TestGuardAsksForTheAnswer(t *testing.T) {
	ports := func(f program.Field, n uint64) []program.Condition {
		return []program.Condition{
			{Field: program.Protocol, Numbers: []program.NumberRange{{From: 6, To: 6}}},
			{Field: f, Numbers: []program.NumberRange{{From: n, To: n}}},
		}
	}
	office := program.Condition{Field: program.Source, Addresses: []program.AddressRange{{From: netip.MustParseAddr("198.51.100.0"), To: netip.MustParseAddr("198.51.100.255")}}}
	bypassed := func(tracked bool, answers ...program.Rule) *program.Program {
		p := &program.Program{
			Hooks: []program.Hook{
				{Kind: program.Prerouting, Phase: program.Raw, Default: program.Accept, Chain: "prerouting_raw"},
				{Kind: program.Input, Phase: program.Filter, Default: program.Drop, Chain: "input"},
				{Kind: program.Output, Phase: program.Filter, Default: program.Drop, Chain: "output"},
			},
			Chains: []program.Chain{
				{Name: "prerouting_raw", Rules: []program.Rule{{Match: ports(program.Port, 22), Actions: []program.Action{program.NoTrack{}}}}},
				{Name: "input", Rules: []program.Rule{{Match: []program.Condition{office}, Actions: []program.Action{program.Accept}}}},
				{Name: "output", Rules: answers},
			},
		}
		if tracked {
			p.Chains[0].Rules = nil
		}
		return p
	}
	answer := program.Rule{Match: ports(program.SourcePort, 22), Actions: []program.Action{program.Accept}}
	peer := Peer{Remote: netip.MustParseAddrPort("198.51.100.9:50000"), Local: netip.MustParseAddrPort("203.0.113.1:22")}
	for name, test := range map[string]struct {
		p      *program.Program
		locked bool
	}{
		"answers dropped":              {bypassed(false), true},
		"answers allowed":              {bypassed(false, answer), false},
		"a state says who is answered": {bypassed(true), false},
	} {
		err := (&Host{}).guard(test.p, []Peer{peer})
		var lock *LockOutError
		if errors.As(err, &lock) != test.locked {
			t.Errorf("%s: %v", name, err)
		}
		if test.locked && (err == nil || !strings.Contains(err.Error(), "refused by the default of output (drop), which its answers meet")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
