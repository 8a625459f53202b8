package compile

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/program"
)

// Bounds of the tables that the kernel fills, in entries; an IPv4 and an IPv6
// table each.
const (
	limitTableSize = 65536
	banTableSize   = 65536
)

// limitBanned is the set of sources that a limit with "then ban" banned.
const limitBanned = "limit.banned"

// Bits of the labels of connections: the first is that the handshake has been
// counted, the others, downwards, to 27, are the rules that let a connection in.
// Those of places.go follow.
const (
	countedLabel  = 127
	mostProven    = 100
	highestOfRule = countedLabel - 1
	refusedLabel  = 6 // without countedLabel: its limit had no token for it
)

// limit gives the gate of a rate. A table of sources forgets a source when it
// has been silent for twice the time in which its bucket fills, a minute at
// the least.
func (c *compiler) limit(id string, l *policy.Limit, o program.Origin) program.Limit {
	burst := l.Burst
	if burst == 0 {
		burst = l.Count
	}
	out := program.Limit{
		Name: "limit-" + id,
		Rate: program.Rate{Packets: l.Count, Per: uint64(l.Per.Milliseconds()), Burst: burst},
	}
	if !l.PerSource {
		return out
	}
	out.Per = program.PerSource
	out.Table = c.dynamicSet("limit."+id, limitTableSize, tableTime(out.Rate), o)
	out.FullCounter = out.Name + "-full"
	c.counter(out.FullCounter, o, "sources that found the table of "+id+" full")
	if l.ThenBan > 0 {
		out.Ban = c.dynamicSet(limitBanned, banTableSize, uint64(l.ThenBan.Milliseconds()), o)
		c.program.Set(out.Ban).Counters = true // sluice bans shows the hits of each
		out.BanTimeout = uint64(l.ThenBan.Milliseconds())
		out.NeverBan = c.neverBan()
		if l.Widen {
			out.Over = c.widening(id, out, o)
		}
	}
	return out
}

func tableTime(r program.Rate) uint64 {
	return max(60_000, 2*r.Per*max(1, (r.Burst+r.Packets-1)/r.Packets))
}

func (c *compiler) connectionLimit(id string, m *policy.MaxConnections, o program.Origin) program.ConnectionLimit {
	out := program.ConnectionLimit{Name: "connections-" + id, Max: m.Count}
	if m.PerSource {
		out.Per = program.PerSource
		out.Table = c.dynamicSet("connections."+id, limitTableSize, 0, o)
		out.FullCounter = out.Name + "-full"
		c.counter(out.FullCounter, o, fmt.Sprintf("sources that found the table of %s full", id))
	}
	return out
}

// proven is a limit by source, or places of one, whose rule lets connections of TCP in
// at a hook. A SYN can be forged, so it is only asked whether its source is over the
// limit. It labels its connection, and what counts is the handshake, by the first
// packet that proves that it was completed.
type proven struct {
	id     string
	label  uint8
	limit  program.Limit           // without a name where the rule has none by source
	places program.ConnectionLimit // Max 0 where its connections hold no places
	ports  []program.NumberRange   // nil: of any
	o      program.Origin
}

// proves says whether a rule's limit counts completed handshakes, where its packets
// are TCP. What a rule refuses has none, and what the host itself begins is not
// forged.
func (c *compiler) proves(r *policy.Rule, hook policy.Hook) bool {
	limited := r.Limit != nil && r.Limit.PerSource
	if !limited && !holdsPlaces(r) || r.Action != policy.Allow || hook == policy.Output {
		return false
	}
	if _, labelled := c.labels[c.ruleIDs[r]]; !labelled && len(c.labels) == mostProven {
		c.note(originOf(r.Pos, r.Text), fmt.Sprintf("more than %d limits per source: this one counts SYNs, which can be forged", mostProven))
		return false
	}
	return true
}

// overSet is the id of the set of the sources that are over a limit. One is taken out
// when its bucket has a token again.
func (c *compiler) overSet(id string, l program.Limit, o program.Origin) string {
	return c.dynamicSet("limit."+id+".over", limitTableSize, max(1, (l.Rate.Per+l.Rate.Packets-1)/l.Rate.Packets), o)
}

// provenRules gives the rules of one whose limit counts handshakes: of TCP that is
// tracked those that ask, of the rest those that count.
func (c *compiler) provenRules(r *policy.Rule, hook policy.Hook, matches []match, o program.Origin) []program.Rule {
	id := c.ruleIDs[r]
	var tcp, rest []match
	for _, m := range matches {
		of, others := apartTCP(m)
		if of != nil && (c.stateless() || meets(of, c.bypassedAt(program.Port))) {
			rest = append(rest, of.and(untracked))
			of = of.and(not(untracked))
		}
		if of != nil {
			tcp = append(tcp, of)
		}
		if others != nil {
			rest = append(rest, others)
		}
	}
	var out []program.Rule
	if len(rest) > 0 {
		var gates []program.Action
		if r.Limit != nil {
			gates = append(gates, c.limit(id, r.Limit, o))
		}
		out = c.rules(id, id, rest, c.actions(r, append(gates, c.most(r, o)...)...), o)
	}
	if len(tcp) > 0 {
		p := c.proven(r, hook, tcp, o)
		var asks []program.Action
		switch {
		case p.limit.Name != "":
			asks = append(asks, program.Limit{
				Name: p.limit.Name + "-over", Rate: p.limit.Rate, Per: program.PerSource, Table: c.overSet(id, p.limit, o), Asks: true,
			})
		case r.Limit != nil:
			asks = append(asks, c.limit(id, r.Limit, o)) // of all sources together
		}
		label := program.SetLabel{Bit: p.label}
		chain := id + "_tcp"
		out = append(out, c.rules(id, chain, tcp, c.actions(r, slices.Concat(asks, c.most(r, o), []program.Action{label})...), o)...)
		if p.places.Max > 0 {
			free := append(slices.Clone(asks), program.Jump{Chain: c.freePlace(p, c.actions(r, label))})
			out = append(out, c.rules(id, id+"_free", tcp, free, o)...)
		}
	}
	return out
}

// most is the gate of a rule's greatest number of connections; none where it has none.
func (c *compiler) most(r *policy.Rule, o program.Origin) []program.Action {
	if r.Max == nil {
		return nil
	}
	return []program.Action{c.connectionLimit(c.ruleIDs[r], r.Max, o)}
}

// apartTCP parts what a match is of TCP from the rest; nil where there is none.
func apartTCP(m match) (tcp, rest match) {
	at := slices.IndexFunc(m, func(c program.Condition) bool { return c.Field == program.Protocol && !c.Not })
	if at < 0 {
		return match{protocol(packet.TCP)}.and(m...), match{not(protocol(packet.TCP))}.and(m...)
	}
	if slices.ContainsFunc(m[at].Numbers, func(n program.NumberRange) bool { return n.From <= packet.TCP && packet.TCP <= n.To }) {
		return m, nil // each way of a service is of one protocol
	}
	return nil, m
}

// proven notes that a limit of a rule counts handshakes at a hook.
func (c *compiler) proven(r *policy.Rule, hook policy.Hook, ways []match, o program.Origin) *proven {
	id := c.ruleIDs[r]
	p := &proven{id: id, label: c.label(id), o: o}
	if r.Limit != nil && r.Limit.PerSource {
		p.limit = c.limit(id, r.Limit, o)
	}
	if holdsPlaces(r) {
		p.places = c.connectionLimit(id, r.Max, o)
	}
	for _, m := range ways {
		ports := portsOf(m)
		if p.ports = append(p.ports, ports...); ports == nil {
			p.ports = nil
			break
		}
	}
	c.handshakes[hook] = append(c.handshakes[hook], p)
	return p
}

// label gives a rule's bit. It comes from the id, so that connections which an earlier
// policy labelled are those of the same rule, unless two rules have one bit.
func (c *compiler) label(id string) uint8 {
	if label, labelled := c.labels[id]; labelled {
		return label
	}
	sum := sha256.Sum256([]byte(id))
	taken := slices.Collect(maps.Values(c.labels))
	at := int(binary.BigEndian.Uint16(sum[:2]))
	for slices.Contains(taken, bitOfRule(at)) {
		at++
	}
	c.labels[id] = bitOfRule(at)
	return c.labels[id]
}

func bitOfRule(n int) uint8 { return uint8(highestOfRule - n%mostProven) } //nolint:gosec // of 128

func portsOf(m match) []program.NumberRange {
	for _, c := range m {
		if c.Field == program.Port && !c.Not && len(c.Numbers) > 0 {
			return c.Numbers
		}
	}
	return nil
}

// countHandshakes makes what counts at a hook, before established flows are accepted.
// On the way in, the proof is the socket: the kernel had found it among connections
// before any rule, and it is a full one. Of what is forwarded no socket is here; there
// the proof is data, or the end of it, from the server.
func (c *compiler) countHandshakes(hook policy.Hook) {
	list := c.handshakes[hook]
	if len(list) == 0 {
		return
	}
	base := string(hook)
	chain := base + "_handshakes"
	port, proof := program.Port, match{names(program.Status, program.Demultiplexed), names(program.Status, program.Socket)}
	if hook == policy.Forward {
		port = program.SourcePort
		proof = match{names(program.Direction, "reply"), tcpFlags(0, flagSYN|flagRST), not(tcpFlags(0, flagPSH|flagFIN))}
	} else {
		c.demultiplexing(list[0].o)
	}
	accelerated := hook == policy.Forward && len(c.program.Flowtables) > 0
	counted := program.Accept
	if accelerated {
		counted = program.Return // to be handed over
	}
	held := withPlaces(list)
	if hook == policy.Forward && len(held) > 0 {
		rules := c.clientRules(hook, held, counted, func(*proven) []program.Rule { return nil })
		if !accelerated {
			rules = append(rules, program.Rule{Actions: accept})
		}
		c.askPlaces(hook, held, program.Port, rules)
	}
	m := match{names(program.State, "established"), protocol(packet.TCP)}
	if ports := portsOfAll(list); ports != nil && !accelerated {
		m = m.and(program.Condition{Field: port, Numbers: ports})
	}
	c.append(base, program.Rule{Stage: program.StageProof, Match: m, Actions: []program.Action{program.Jump{Chain: chain}}, Comment: "limits count handshakes, not SYNs"})
	c.chain(chain, "the first packet that proves a handshake counts on the limit of the rule that let it in")
	counts := func(p *proven) []program.Rule {
		return []program.Rule{{Match: match{names(program.Status, program.Label(p.label))}.and(proof...), Actions: c.completed(hook, p), Origin: p.o}}
	}
	switch {
	case len(held) == 0:
		c.append(chain, countedRule(counted))
	case hook == policy.Input:
		c.append(chain, c.clientRules(hook, held, counted, counts)...)
	default:
		c.append(chain, c.gives(hook, held, program.PerDestination, byServer()...)...)
		c.append(chain, countedRule(counted), program.Rule{Match: match{names(program.Status, program.Label(returnedLabel))}, Actions: accept, Comment: "each of its client's packets is asked"})
	}
	seen := map[string]bool{}
	for _, p := range list {
		if seen[p.id] {
			continue
		}
		seen[p.id] = true
		if p.places.Max == 0 || hook == policy.Forward {
			c.append(chain, counts(p)...)
		}
		if accelerated {
			c.append(chain, program.Rule{Match: match{names(program.Status, program.Label(p.label))}, Actions: accept, Comment: "not handed over before it is counted"})
		}
	}
	if !accelerated {
		c.append(chain, program.Rule{Actions: accept, Comment: "nothing to count, or no proof"})
	}
}

// completed is what happens to the packet that proves a handshake.
func (c *compiler) completed(hook policy.Hook, p *proven) []program.Action {
	if p.limit.Name == "" {
		return []program.Action{program.SetLabel{Bit: countedLabel}, program.Accept}
	}
	return []program.Action{program.Goto{Chain: c.handshake(hook, p)}}
}

// handshake makes the chain that counts a handshake on a limit. The one that takes
// the last token of its source's bucket says so to the SYNs that follow, by a second
// bucket with one token less; one that finds none is refused. It stays refused, and
// what its ends send again is not asked: it would ban its source again once that is
// unbanned, or put it over the limit again.
func (c *compiler) handshake(hook policy.Hook, p *proven) string {
	chain := p.id + "_" + string(hook) + "_handshake"
	limit := p.limit
	key := program.SetAdd{Set: c.overSet(p.id, limit, p.o), Key: program.PerSource}
	if hook == policy.Forward {
		limit.Per = program.PerDestination
		if limit.Over != "" {
			limit.Over = c.widening(p.id, limit, p.o)
		}
		key.Key, key.Fields = program.Together, []program.Field{program.Destination}
	}
	label := program.SetLabel{Bit: countedLabel}
	c.chain(chain, "a completed handshake: "+p.o.Text)
	add := func(chain string, actions ...program.Action) {
		c.append(chain, program.Rule{Actions: actions, Origin: p.o})
	}
	refused := match{names(program.Status, program.Label(refusedLabel))}
	if limit.Ban != "" {
		// Who is banned is not refused here, since who is not over the limit is not
		// to be told that the next one bans. The limit drops by itself, so its
		// connections are labelled before; another packet that comes while it is asked
		// is dropped, and sent again.
		c.append(chain, program.Rule{Match: refused, Actions: []program.Action{program.Drop}, Comment: "it stays refused", Origin: p.o})
		add(chain, program.SetLabel{Bit: refusedLabel})
		add(chain, limit, label, program.Accept)
		add(chain, key)
		add(chain, program.Drop)
		return chain
	}
	within, refuse := chain+"_within", chain+"_refused"
	c.append(chain, program.Rule{Match: refused, Actions: []program.Action{program.Goto{Chain: refuse}}, Comment: "it stays refused", Origin: p.o})
	add(chain, limit, label, program.Goto{Chain: within})
	add(chain, program.SetLabel{Bit: refusedLabel})
	add(chain, key)
	add(chain, program.Goto{Chain: refuse})
	c.chain(refuse, "one beyond a limit: "+p.o.Text)
	c.append(refuse, program.Rule{Match: match{protocol(packet.TCP), tcpFlags(flagRST, flagRST)}, Actions: accept, Comment: "it ends the connection by itself"})
	c.append(refuse, program.Rule{Match: match{protocol(packet.TCP)}, Actions: []program.Action{program.Reject}, Origin: p.o})
	c.chain(within, "the last one within a limit: "+p.o.Text)
	if limit.Rate.Burst > 1 {
		last := limit
		last.Name, last.FullCounter = limit.Name+"-last", ""
		last.Rate.Burst--
		last.Table = c.dynamicSet("limit."+p.id+".last", limitTableSize, tableTime(limit.Rate), p.o)
		add(within, last, program.Accept)
	}
	add(within, key)
	add(within, program.Accept)
	return chain
}

// demultiplexing asks the kernel to look for sockets before any rule, as it does
// unless it was told not to: without it no handshake would be counted.
func (c *compiler) demultiplexing(o program.Origin) {
	for _, name := range []string{"ip_early_demux", "tcp_early_demux"} {
		s := program.Sysctl{Name: "net.ipv4." + name, Value: "1", Origin: o}
		if !slices.ContainsFunc(c.program.Sysctls, func(x program.Sysctl) bool { return x.Name == s.Name }) {
			c.program.Sysctls = append(c.program.Sysctls, s)
		}
	}
}

// portsOfAll is the ports of all of a list; nil where one has any.
func portsOfAll(list []*proven) []program.NumberRange {
	var ports []program.NumberRange
	for _, p := range list {
		if p.ports == nil {
			return nil
		}
		ports = append(ports, p.ports...)
	}
	return program.MergeNumbers(ports)
}
