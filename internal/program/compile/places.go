package compile

import (
	"fmt"
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/program"
)

// Places of "max N connections per source": a connection of TCP takes one by the
// client's first packet behind the SYN that connection tracking takes for an answer to
// the server's, and gives it back when the server ends it, or the client resets it, and
// also when the server shows that the handshake is not completed: it resets what a
// blind guess acknowledges, or sends its SYN-ACK again (tcp_check_req of
// net/ipv4/tcp_minisocks.c). So silent connections hold places, and forged ones until the
// server answers them or sends its SYN-ACK again, which Linux does after a second.
//
// Each place of a rule is a set of the sources that hold it; which of them a connection
// holds is in its label, as two digits. The kernel's own count of entries (ct count)
// goes on beside that: it is exact, but a forged SYN is an entry too. So a source is
// refused where both say that it has its N: forged SYNs fill no places, and a place
// whose connection ended unseen takes nothing from a source in whose name nobody forges.
const (
	// placesTableSize is how many connections hold places of a rule at once, in each
	// family.
	placesTableSize = limitTableSize
	// placeTime is after how long a place is free whose connection ended unseen, in
	// milliseconds.
	placeTime = 24 * 3600 * 1000
)

// Bits of the labels of connections, beside those of limit.go.
const (
	endedLabel    = 26 // one of the two has ended it
	placedLabel   = 25 // it has been let in, with a place or without
	highDigit     = 17 // of its place; eight bits each
	lowDigit      = 9
	returnedLabel = 8 // it has no place any more, and is asked for each packet
	resetLabel    = 7 // by a reset, so that nothing comes behind it
	digits        = 8
)

func placeLabels(n uint32) [2]uint8 {
	return [2]uint8{uint8(highDigit + n/digits), uint8(lowDigit + n%digits)} //nolint:gosec // fewer than policy.MostPlaces
}

// holdsPlaces says whether a rule's connections hold places.
func holdsPlaces(r *policy.Rule) bool {
	return r.Max != nil && r.Max.PerSource && r.Max.Count <= policy.MostPlaces
}

func (c *compiler) place(p *proven, n uint32) string {
	return c.dynamicSet(fmt.Sprintf("connections.%s.place%d", p.id, n+1), int(max(1024, placesTableSize/p.places.Max)), placeTime, p.o)
}

// freePlace makes the chain for a source of which the kernel counts too many entries:
// while one of its places is free, some of these may be forged.
func (c *compiler) freePlace(p *proven, actions []program.Action) string {
	chain, through := p.id+"_places", p.id+"_place"
	if c.program.Chain(chain) == nil {
		c.chain(chain, "sources that have a place left: "+p.o.Text)
		for n := range p.places.Max {
			c.append(chain, program.Rule{
				Match:   match{program.Condition{Field: program.Source, Set: c.place(p, n), Not: true}},
				Actions: []program.Action{program.Goto{Chain: through}}, Origin: p.o,
			})
		}
		c.chain(through, p.o.Text)
		c.append(through, program.Rule{ID: p.id, Actions: actions, Origin: p.o})
	}
	return chain
}

// takePlace makes the chain for the client's packets of a rule's connections until their
// handshakes are proved: the first takes a place. One that finds none is refused, unless
// the kernel counts no more entries than places.
func (c *compiler) takePlace(hook policy.Hook, p *proven, counts []program.Rule) string {
	chain, placed := p.id+"_"+string(hook)+"_take", p.id+"_"+string(hook)+"_placed"
	has := program.SetLabel{Bit: placedLabel}
	c.chain(chain, "a connection takes a place: "+p.o.Text)
	c.append(chain, program.Rule{Match: match{names(program.Status, program.Label(placedLabel))}, Actions: []program.Action{program.Goto{Chain: placed}}, Comment: "it has one"})
	for n := range p.places.Max {
		take := []program.Action{program.SetAdd{Set: c.place(p, n), Key: program.PerSource, Once: true}, has}
		for _, bit := range placeLabels(n) {
			take = append(take, program.SetLabel{Bit: bit})
		}
		c.append(chain, program.Rule{Actions: append(take, program.Accept), Origin: p.o})
	}
	c.append(chain, program.Rule{Actions: []program.Action{program.Goto{Chain: c.placeless(p)}}, Origin: p.o})
	c.chain(placed, "a connection with a place: "+p.o.Text)
	c.append(placed, counts...)
	c.append(placed, program.Rule{Actions: accept, Comment: "nothing to count, or no proof"})
	return chain
}

// placeless makes the chain for packets of connections without a place: they pass while
// the kernel counts no more entries than there are places.
func (c *compiler) placeless(p *proven) string {
	chain := p.id + "_placeless"
	if c.program.Chain(chain) == nil {
		c.chain(chain, "a connection without a place: "+p.o.Text)
		c.append(chain,
			program.Rule{Actions: []program.Action{p.places, program.SetLabel{Bit: placedLabel}, program.Accept}, Origin: p.o},
			program.Rule{Match: match{protocol(packet.TCP), tcpFlags(flagRST, flagRST)}, Actions: accept, Comment: "it ends the connection by itself"},
			program.Rule{Match: match{protocol(packet.TCP)}, Actions: []program.Action{program.Reject}, Origin: p.o})
	}
	return chain
}

// clientRules are the rules of a chain of established packets, of which a client's
// meet these.
func (c *compiler) clientRules(hook policy.Hook, list []*proven, counted program.Verdict, counts func(p *proven) []program.Rule) []program.Rule {
	out := c.gives(hook, list, program.PerSource, byClient())
	out = append(out,
		program.Rule{
			Match:   match{names(program.Status, program.Label(resetLabel)), protocol(packet.TCP), tcpFlags(0, flagRST)},
			Actions: []program.Action{program.Drop}, Comment: "nothing comes behind a reset",
		},
		countedRule(counted))
	for _, p := range list {
		out = append(out,
			program.Rule{
				Match:   match{names(program.Status, program.Label(returnedLabel)), names(program.Status, program.Label(p.label))},
				Actions: []program.Action{program.Goto{Chain: c.placeless(p)}}, Origin: p.o,
			},
			program.Rule{
				Match:   match{names(program.Status, program.Label(p.label)), protocol(packet.TCP), tcpFlags(flagACK, flagSYN|flagACK|flagRST)},
				Actions: []program.Action{program.Goto{Chain: c.takePlace(hook, p, counts(p))}}, Origin: p.o,
			})
	}
	return out
}

func countedRule(v program.Verdict) program.Rule {
	return program.Rule{Match: match{names(program.Status, program.Label(countedLabel))}, Actions: []program.Action{v}, Comment: "counted"}
}

// giving is a kind of packets by which connections give places back.
type giving struct {
	name, comment string
	match         match
	labels        []program.Action
}

// byServer are packets of the server: a FIN, behind which it takes nothing for its
// client any more; a reset; a SYN-ACK, which it sends again while nothing has completed
// the handshake.
func byServer() []giving {
	tcp := match{names(program.Direction, "reply"), protocol(packet.TCP)}
	return []giving{
		{"finished", "the server ends it", tcp.and(tcpFlags(flagFIN, flagFIN|flagRST)), labels(endedLabel)},
		{"refused", "the server resets it", tcp.and(tcpFlags(flagRST, flagRST)), labels(returnedLabel, resetLabel)},
		{"open", "its handshake is not completed", tcp.and(tcpFlags(flagSYN, flagSYN|flagRST)), labels(returnedLabel)},
	}
}

// byClient is a reset that connection tracking has found exact, as the server's stack
// does. What a client sends otherwise ends nothing: it may keep its half open.
func byClient() giving {
	return giving{"reset", "the client resets it", match{protocol(packet.TCP), tcpFlags(flagRST, flagRST), names(program.Status, program.Closed)}, labels(returnedLabel, resetLabel)}
}

func labels(bits ...uint8) (out []program.Action) {
	for _, bit := range bits {
		out = append(out, program.SetLabel{Bit: bit})
	}
	return out
}

// gives makes the rules about packets by which connections give their places back, each
// once, by which of the packets' ends is who began them.
func (c *compiler) gives(hook policy.Hook, list []*proven, key program.SourceKey, how ...giving) []program.Rule {
	back := string(hook) + "_give_" + string(key)
	c.chain(back, "connections give their places back")
	for _, p := range list {
		c.append(back, program.Rule{Match: match{names(program.Status, program.Label(p.label))}, Actions: []program.Action{program.Goto{Chain: c.givePlace(p, key)}}, Origin: p.o})
	}
	var out []program.Rule
	for _, g := range how {
		chain := string(hook) + "_" + g.name
		c.chain(chain, g.comment)
		for _, done := range []uint8{endedLabel, returnedLabel} {
			c.append(chain, program.Rule{Match: match{names(program.Status, program.Label(done))}, Actions: []program.Action{program.Return}, Comment: "given back before"})
		}
		c.append(chain, program.Rule{Actions: append(g.labels, program.Jump{Chain: back})})
		out = append(out, program.Rule{
			Match: g.match.and(names(program.Status, program.Label(placedLabel))), Actions: []program.Action{program.Jump{Chain: chain}}, Comment: g.comment,
		})
	}
	return out
}

func (c *compiler) givePlace(p *proven, key program.SourceKey) string {
	chain := p.id + "_give_" + string(key)
	if c.program.Chain(chain) != nil {
		return chain
	}
	c.chain(chain, "a connection gives its place back: "+p.o.Text)
	for n := range p.places.Max {
		var held match
		for _, bit := range placeLabels(n) {
			held = held.and(names(program.Status, program.Label(bit)))
		}
		c.append(chain, program.Rule{Match: held, Actions: []program.Action{program.SetAdd{Set: c.place(p, n), Key: key, Remove: true}, program.Return}, Origin: p.o})
	}
	return chain
}

// askPlaces asks established packets at a hook about places: the host's own, which end
// connections of input, or those of clients that are forwarded.
func (c *compiler) askPlaces(hook policy.Hook, list []*proven, port program.Field, rules []program.Rule) {
	base, chain := string(hook), string(hook)+"_places"
	m := match{names(program.State, "established"), protocol(packet.TCP)}
	if hook == policy.Forward {
		m = m.and(names(program.Direction, "original"))
	}
	if ports := portsOfAll(list); ports != nil {
		m = m.and(program.Condition{Field: port, Numbers: ports})
	}
	c.append(base, program.Rule{Stage: program.StageProof, Match: m, Actions: []program.Action{program.Jump{Chain: chain}}, Comment: "connections take places and give them back"})
	c.chain(chain, "connections take places and give them back")
	c.append(chain, rules...)
}

// ownAnswers asks what the host sends whether it ends connections that hold places.
func (c *compiler) ownAnswers() {
	if list := withPlaces(c.handshakes[policy.Input]); len(list) > 0 {
		c.base(program.Output, program.Filter, "output", "what output decides")
		c.askPlaces(policy.Output, list, program.SourcePort, append(c.gives(policy.Output, list, program.PerDestination, byServer()...), program.Rule{Actions: accept}))
	}
}

// withPlaces is those of a list whose connections hold places, each rule once.
func withPlaces(list []*proven) (out []*proven) {
	for _, p := range list {
		if p.places.Max > 0 && !slices.ContainsFunc(out, func(o *proven) bool { return o.id == p.id }) {
			out = append(out, p)
		}
	}
	return out
}
