package doctor

import (
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/importer"
	"sluice/internal/program"
)

// translation is a rule that gives packets another destination.
type translation struct {
	rule     *program.Rule
	hook     program.HookKind
	protocol uint8 // 0: of several
	to       netip.AddrPort
	inRow    bool // one of manyPorts in a row
}

// manyPorts in a row that lead to one address are published for a program that opens each
// as it needs it: for calls, for transfers of FTP.
const manyPorts = 4

// translations are those that a packet can meet, with the port that the packet keeps where
// the rule gives it no other; 0 where that is not known.
func translations(r *importer.Ruleset) (out []translation) {
	seen := map[*program.Rule]bool{}
	for _, h := range r.Program.Hooks {
		if h.Phase != program.NAT || h.Kind != program.Prerouting && h.Kind != program.Output {
			continue
		}
		for _, c := range chainsFrom(r.Program, h.Chain) {
			for i := range c.Rules {
				rule := &c.Rules[i]
				for _, a := range rule.Actions {
					e := program.EffectOf(a)
					if !rewritesDestination(e) || !e.Rewrites.To.IsValid() || seen[rule] {
						continue
					}
					seen[rule] = true
					t := translation{rule: rule, hook: h.Kind}
					port := e.Rewrites.Port
					if of := numbersOf(rule, program.Protocol); len(of) == 1 && of[0].From == of[0].To {
						t.protocol = uint8(of[0].From) //nolint:gosec // a protocol
					}
					if of := numbersOf(rule, program.Port); port == 0 && len(of) == 1 && of[0].From == of[0].To {
						port = uint16(of[0].From) //nolint:gosec // a port
					}
					t.to = netip.AddrPortFrom(e.Rewrites.To, port)
					out = append(out, t)
				}
			}
		}
	}
	led := map[Endpoint]bool{}
	for _, t := range out {
		led[Endpoint{t.protocol, t.to}] = true
	}
	for i := range out {
		t, row := &out[i], 1
		for _, step := range []int{-1, 1} {
			for n := step; row < manyPorts && led[Endpoint{t.protocol, netip.AddrPortFrom(t.to.Addr(), uint16(int(t.to.Port())+n))}]; n += step { //nolint:gosec // what overflows leads nowhere
				row++
			}
		}
		t.inRow = row >= manyPorts
	}
	return out
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 4
	}
	return 6
}

// anyDevice says that a setting is on for all devices or for one.
func (s *Seen) anyDevice(before, after string) bool {
	return s.setting(before+"all"+after) == "1" || slices.ContainsFunc(s.Devices, func(d Device) bool { return s.setting(before+slashed(d.Name)+after) == "1" })
}

// slashed is a device as a sysctl names it.
func slashed(device string) string { return strings.ReplaceAll(device, ".", "/") }
