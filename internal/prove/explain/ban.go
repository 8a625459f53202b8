package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/prove/reference"
)

// Ban is a ban that holds on the host and is not part of the policy.
type Ban struct {
	What    string      // as it is lifted: an address, a prefix, a country
	Drops   addrset.Set // whose packets it drops
	By      string      // "by command", "by a limit"
	Reason  string
	Until   time.Time // zero: it is lifted
	ByLimit bool      // connections that exist go on
	// Elsewhere says that it is of a limit of the policy that runs, and the one in question is
	// another.
	Elsewhere bool
	Fleet     bool // its controller lifts it

	address netip.Addr // of the packet
}

// findBan finds the ban that drops the packet, as the kernel looks bans up: ahead of what a
// section decides, and behind loopback and the addresses of guests.
func (e *Followed) findBan() {
	p := e.Resolved.Policy
	if slices.Contains([]string{"routing", "loopback", "held", "ban"}, e.Path.Stage) || p.Input == nil && p.Forward == nil && p.Output == nil {
		return
	}
	type end struct {
		netip.Addr
		over bool
	}
	ends := []end{{e.Packet.Source, e.Path.OverBan.Source}, {e.Path.Packet.Destination, e.Path.OverBan.Destination}}
	switch e.Path.Hook {
	case policy.Input:
		ends = ends[:1]
	case policy.Output:
		ends = ends[1:]
	}
	for _, ban := range e.Bans {
		for _, a := range ends {
			if a.over || !ban.Drops.Contains(a.Addr) || reference.NeverBanned(e.Resolved, a.Addr) || ban.ByLimit && e.goesOn() {
				continue
			}
			ban.address = a.Addr
			e.Ban = &ban
			return
		}
	}
}

// goesOn says that the packet is of a connection that exists, which bans by limits leave alone.
func (e *Followed) goesOn() bool {
	p := e.Path.Packet
	if !isICMP(p) {
		return p.State == packet.Established
	}
	return (p.State == packet.Established || p.State == packet.Related) && !reference.Requests(p)
}

// Banned says that a ban decides, whatever the policy says.
func (e *Followed) Banned() bool { return e.Ban != nil && !e.Ban.Elsewhere && !e.Undecided() }

// Decided is the way of the packet, with what the host does to it by a ban.
func (e *Followed) Decided() reference.Path {
	path := e.Path
	if e.Banned() {
		path.Verdict, path.Stage = policy.Drop, "ban"
	}
	return path
}

// String says who is banned, by what and how long.
func (b *Ban) String() string { return b.Of(b.address.String()) }

// Of is String about an address of the ban, or all of it.
func (b *Ban) Of(what string) string {
	text := fmt.Sprintf("%s is banned %s", what, b.By)
	if b.What != what {
		text += ", as part of " + b.What + ","
	}
	text += " until "
	if b.Until.IsZero() {
		text += "it is lifted"
	} else {
		text += b.Until.Local().Format(time.DateTime)
	}
	if b.Reason != "" {
		text += fmt.Sprintf(" (reason: %s)", b.Reason)
	}
	return text
}

// Lift is how a ban is lifted; "" where those who ask have no words for it.
func (w Words) Lift(b *Ban) string {
	switch {
	case w.Unban == nil:
		return ""
	case b.Fleet:
		return "`sluice-controller unban " + b.What + "` lifts the ban, on a controller of the fleet"
	default:
		return "`" + w.Unban(b.What) + "` lifts the ban"
	}
}

// With adds to what is said of a ban how it is lifted.
func (w Words) With(text string, b *Ban) string {
	if lift := w.Lift(b); lift != "" {
		text += "; " + lift
	}
	return text
}

// Note is what is said of a ban beside an answer about many packets.
func (w Words) Note(b *Ban) string {
	drops := "every packet from and to it"
	if b.ByLimit {
		drops = "every connection that it begins"
	}
	return w.With(fmt.Sprintf("%s: the host drops %s, whatever the policy says", b.Of(b.What), drops), b)
}

// banned is the note on the ban.
func (e *Followed) banned() string {
	switch b := e.Ban; {
	case b == nil:
		return ""
	case b.Elsewhere:
		return e.Words.With(b.String()+", which this policy alone does not show: what it begins is dropped", b)
	case e.Undecided():
		return e.Words.With(b.String(), b)
	}
	return e.Words.Lift(e.Ban)
}

// untilBan is what a packet passes up to the ban, which is looked up where those of the policy
// are.
func (e *Followed) untilBan() (steps []reference.Step) {
	for _, s := range e.Path.Steps {
		if s.Hook == string(e.Path.Hook) && !slices.Contains([]string{"tracking", "nat", "routing", "rewrite", "loopback", "held", "ban"}, s.Stage) {
			break
		}
		steps = append(steps, s)
	}
	return append(steps, reference.Step{Hook: string(e.Path.Hook), Stage: "ban", Reason: e.Ban.String(), Decides: true})
}
