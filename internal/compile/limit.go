package compile

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"sluice/internal/policy"
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
const (
	countedLabel  = 127
	mostProven    = 100
	highestOfRule = countedLabel - 1
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
	}
	return out
}

func tableTime(r program.Rate) uint64 {
	return max(60_000, 2*r.Per*max(1, (r.Burst+r.Packets-1)/r.Packets))
}

func (c *compiler) connectionLimit(id string, m *policy.MaxConnections, o program.Origin) program.Action {
	out := program.ConnectionLimit{Name: "connections-" + id, Max: m.Count}
	if m.PerSource {
		out.Per = program.PerSource
		out.Table = c.dynamicSet("connections."+id, limitTableSize, 0, o)
		out.FullCounter = out.Name + "-full"
		c.counter(out.FullCounter, o, fmt.Sprintf("sources that found the table of %s full", id))
	}
	return out
}

// proven is a limit by source whose rule lets connections of TCP in at a hook. A SYN
// can be forged, so it is only asked whether its source is over the limit. It labels
// its connection, and what counts is the handshake, by the first packet that proves
// that it was completed.
type proven struct {
	id    string
	label uint8
	limit program.Limit
	ports []program.NumberRange // nil: of any
	o     program.Origin
}

// proves says whether a rule's limit counts completed handshakes, where its packets
// are TCP. What a rule refuses has none, and what the host itself begins is not
// forged.
func (c *compiler) proves(r *policy.Rule, hook policy.Hook) bool {
	if r.Limit == nil || !r.Limit.PerSource || r.Action != policy.Allow || hook == policy.Output {
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
		out = c.rules(id, id, rest, c.actions(r, c.limit(id, r.Limit, o)), o)
	}
	if len(tcp) > 0 {
		p := c.proven(r, hook, tcp, o)
		asks := program.Limit{
			Name: p.limit.Name + "-over", Rate: p.limit.Rate, Per: program.PerSource, Table: c.overSet(id, p.limit, o), Asks: true,
		}
		out = append(out, c.rules(id, id+"_tcp", tcp, c.actions(r, asks, program.SetLabel{Bit: p.label}), o)...)
	}
	return out
}

// apartTCP parts what a match is of TCP from the rest; nil where there is none.
func apartTCP(m match) (tcp, rest match) {
	at := slices.IndexFunc(m, func(c program.Condition) bool { return c.Field == program.Protocol && !c.Not })
	if at < 0 {
		return match{protocol(protoTCP)}.and(m...), match{not(protocol(protoTCP))}.and(m...)
	}
	if slices.ContainsFunc(m[at].Numbers, func(n program.NumberRange) bool { return n.From <= protoTCP && protoTCP <= n.To }) {
		return m, nil // each way of a service is of one protocol
	}
	return nil, m
}

// proven notes that a limit of a rule counts handshakes at a hook.
func (c *compiler) proven(r *policy.Rule, hook policy.Hook, ways []match, o program.Origin) *proven {
	id := c.ruleIDs[r]
	p := &proven{id: id, label: c.label(id), limit: c.limit(id, r.Limit, o), o: o}
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
	var ports []program.NumberRange
	all := accelerated
	for _, p := range list {
		all = all || p.ports == nil
		ports = append(ports, p.ports...)
	}
	m := match{names(program.State, "established"), protocol(protoTCP)}
	if !all {
		m = m.and(program.Condition{Field: port, Numbers: mergedRanges(ports)})
	}
	c.append(base, program.Rule{Stage: program.StageProof, Match: m, Actions: []program.Action{program.Jump{Chain: chain}}, Comment: "limits count handshakes, not SYNs"})
	c.chain(chain, "the first packet that proves a handshake counts on the limit of the rule that let it in")
	counted := program.Accept
	if accelerated {
		counted = program.Return // to be handed over
	}
	c.append(chain, program.Rule{Match: match{names(program.Status, program.Label(countedLabel))}, Actions: []program.Action{counted}, Comment: "counted"})
	seen := map[string]bool{}
	for _, p := range list {
		if seen[p.id] {
			continue
		}
		seen[p.id] = true
		label := names(program.Status, program.Label(p.label))
		c.append(chain, program.Rule{Match: match{label}.and(proof...), Actions: []program.Action{program.Goto{Chain: c.handshake(hook, p)}}, Origin: p.o})
		if accelerated {
			c.append(chain, program.Rule{Match: match{label}, Actions: accept, Comment: "not handed over before it is counted"})
		}
	}
	if !accelerated {
		c.append(chain, program.Rule{Actions: accept, Comment: "nothing to count, or no proof"})
	}
}

// handshake makes the chain that counts a handshake on a limit. The one that takes
// the last token of its source's bucket says so to the SYNs that follow, by a second
// bucket with one token less; one that finds none is refused.
func (c *compiler) handshake(hook policy.Hook, p *proven) string {
	chain := p.id + "_" + string(hook) + "_handshake"
	limit := p.limit
	key := program.SetAdd{Set: c.overSet(p.id, limit, p.o), Key: program.PerSource}
	if hook == policy.Forward {
		limit.Per = program.PerDestination
		key.Key, key.Fields = program.Together, []program.Field{program.Destination}
	}
	label := program.SetLabel{Bit: countedLabel}
	c.chain(chain, "a completed handshake: "+p.o.Text)
	add := func(chain string, actions ...program.Action) {
		c.append(chain, program.Rule{Actions: actions, Origin: p.o})
	}
	if limit.Ban != "" {
		// Who is banned is not refused here, since who is not over the limit is not
		// to be told that the next one bans.
		add(chain, limit, label, program.Accept)
		add(chain, key)
		add(chain, program.Drop)
		return chain
	}
	within := chain + "_within"
	add(chain, limit, label, program.Goto{Chain: within})
	add(chain, key)
	c.append(chain, program.Rule{Match: match{protocol(protoTCP), tcpFlags(flagRST, flagRST)}, Actions: accept, Comment: "it ends the connection by itself"})
	c.append(chain, program.Rule{Match: match{protocol(protoTCP)}, Actions: []program.Action{program.Reject}, Origin: p.o})
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

func mergedRanges(ranges []program.NumberRange) []program.NumberRange {
	ports := make([]policy.PortRange, len(ranges))
	for i, r := range ranges {
		ports[i] = policy.PortRange{From: uint16(r.From), To: uint16(r.To)} //nolint:gosec // ports
	}
	return mergePorts(ports)
}
