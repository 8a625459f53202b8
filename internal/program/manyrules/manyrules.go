// Package manyrules writes policies of very many rules, in shapes that passes
// over all rules are slow at. Only tests and benchmarks call it; what they hold
// is that no shape takes a pass more than some steps for each rule.
package manyrules

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
)

// Shape is one way in which rules are many.
type Shape struct {
	Name string
	rule func(r *rand.Rand, i, n int) string // rule i of n of input
	sets int                                 // s0, s1, …: large ones that rules name
	// visible is how many rules at the beginning may match; 0: all may.
	visible int
	half    bool // half of them may
}

// Hidden is how many rules of n no packet reaches, as far as the shape says.
func (s Shape) Hidden(n int) int {
	switch {
	case s.half:
		return n - n/2
	case s.visible == 0:
		return 0
	default:
		return n - s.visible
	}
}

// Shapes are all of them.
var Shapes = []Shape{
	{Name: "similar", rule: func(_ *rand.Rand, i, _ int) string {
		return fmt.Sprintf("allow tcp/%d from 20.%d.%d.%d", 10000+i*7%50000, i/2500, i/50%50, 1+i%50*5)
	}},
	{Name: "different", rule: func(r *rand.Rand, _, _ int) string { return different(r) }},
	{Name: "prefixes", rule: func(r *rand.Rand, _, _ int) string {
		return fmt.Sprintf("%s %s from %s", verdict(r), oneOf(r, "any", "tcp", "udp", "tcp/443"), prefix(r))
	}},
	{Name: "ranges", rule: func(r *rand.Rand, _, _ int) string {
		return fmt.Sprintf("%s %s from %s", verdict(r), ports(r), prefix(r))
	}},
	{Name: "port-ranges", rule: func(r *rand.Rand, _, _ int) string { return verdict(r) + " " + ports(r) }},
	{Name: "lists", rule: func(r *rand.Rand, _, _ int) string {
		return fmt.Sprintf("%s [tcp/%d, udp/%d] from [%s, %s] to %s", verdict(r), port(r), port(r), prefix(r), prefix(r), prefix(r))
	}},
	{Name: "wide-behind-narrow", rule: func(r *rand.Rand, i, n int) string {
		if i < n/2 {
			return fmt.Sprintf("drop tcp/%d from 20.%d.%d.%d", port(r), r.IntN(256), r.IntN(256), r.IntN(256))
		}
		return fmt.Sprintf("drop %s from %s", ports(r), wide(r))
	}},
	{Name: "networks-behind-hosts", rule: func(r *rand.Rand, i, n int) string {
		if i < n/2 {
			return fmt.Sprintf("drop tcp/443 from 20.%d.%d.%d", r.IntN(256), r.IntN(256), r.IntN(256))
		}
		return fmt.Sprintf("drop tcp/443 from %s", wide(r))
	}},
	{Name: "alone", rule: func(r *rand.Rand, _, _ int) string { return fmt.Sprintf(`drop any from %s log "rule"`, prefix(r)) }},
	{Name: "some-limits", rule: func(r *rand.Rand, i, _ int) string {
		return fmt.Sprintf("%s %s from %s%s", verdict(r), oneOf(r, "tcp/22", "udp/53", "any"), prefix(r), oneOf(r, "", " limit 5/minute"))
	}},
	{Name: "sets", sets: 20, rule: func(r *rand.Rand, _, _ int) string {
		return fmt.Sprintf("%s tcp/%d from s%d%s", oneOf(r, "allow", "drop"), port(r), r.IntN(20), oneOf(r, "", fmt.Sprintf(" to %s", prefix(r)), " limit 5/minute"))
	}},
	{Name: "not", rule: func(r *rand.Rand, i, _ int) string {
		if i%2 == 0 {
			return fmt.Sprintf("%s tcp/%d from not %s", verdict(r), port(r), prefix(r))
		}
		return different(r)
	}},
	{Name: "limits", rule: func(r *rand.Rand, i, _ int) string {
		if i%2 == 0 {
			return fmt.Sprintf("allow tcp/%d from %s limit %d/minute", port(r), prefix(r), 1+r.IntN(100))
		}
		return different(r)
	}},
	{Name: "limited-ports", rule: func(r *rand.Rand, i, _ int) string {
		if i%2 == 0 {
			return fmt.Sprintf("allow tcp/%d limit %d/minute", 1+i, 1+r.IntN(100))
		}
		return fmt.Sprintf("drop tcp/%d from 20.%d.%d.1", 1+i, i/250, i%250)
	}},
	{Name: "logs", rule: func(r *rand.Rand, i, _ int) string { return different(r) + ` log "rule"` }},
	{Name: "hidden", rule: func(r *rand.Rand, i, _ int) string {
		if i < 500 {
			return fmt.Sprintf("drop tcp/%d-%d from 20.0.0.0/8", 1+i*100, 100+i*100)
		}
		return fmt.Sprintf("%s tcp/%d from 20.%d.%d.0/24", verdict(r), 1+r.IntN(50000), r.IntN(256), r.IntN(256))
	}, visible: 500},
	{Name: "hidden-by-many", rule: func(r *rand.Rand, i, n int) string {
		if i < n/2 {
			return fmt.Sprintf("drop any from 20.%d.%d.0/24", i>>8, i&255)
		}
		return fmt.Sprintf("allow tcp/%d from 20.%d.0.0/16", port(r), r.IntN(max(1, n/2/256)))
	}, half: true},
	{Name: "hidden-by-all", rule: func(r *rand.Rand, i, _ int) string {
		if i == 0 {
			return "drop any from 0.0.0.0/0"
		}
		return fmt.Sprintf("allow tcp/%d from 20.%d.%d.%d", port(r), r.IntN(256), r.IntN(256), r.IntN(256))
	}, visible: 1},
}

// Policy writes n rules of a shape; the same seed gives the same ones.
func (s Shape) Policy(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 10))
	var b strings.Builder
	b.WriteString("version: 1\n")
	if s.sets > 0 {
		b.WriteString("sets:\n")
	}
	for i := range s.sets {
		fmt.Fprintf(&b, "  s%d: [20.%d.0.0", i, i)
		for range 300 {
			fmt.Fprintf(&b, ", 20.%d.%d.%d", i, r.IntN(256), r.IntN(256))
		}
		b.WriteString("]\n")
	}
	b.WriteString("input:\n  default: drop\n  rules:\n")
	for i := range n {
		fmt.Fprintf(&b, "    - %s\n", s.rule(r, i, n))
	}
	return []byte(b.String())
}

func oneOf(r *rand.Rand, words ...string) string { return words[r.IntN(len(words))] }

func verdict(r *rand.Rand) string { return oneOf(r, "allow", "drop", "reject") }

func port(r *rand.Rand) int { return 1 + r.IntN(65535) }

func ports(r *rand.Rand) string {
	from := port(r)
	return fmt.Sprintf("%s/%d-%d", oneOf(r, "tcp", "udp"), from, min(65535, from+1+r.IntN(1<<r.IntN(14))))
}

// prefix is a network of any length but the shortest.
func prefix(r *rand.Rand) netip.Prefix {
	a := netip.AddrFrom4([4]byte{byte(1 + r.IntN(200)), byte(r.IntN(256)), byte(r.IntN(256)), byte(r.IntN(256))})
	return netip.PrefixFrom(a, 8+r.IntN(25)).Masked()
}

// different is a rule like hardly another one.
func different(r *rand.Rand) string {
	text := verdict(r) + " " + oneOf(r, "any", "tcp", "udp", "icmp", "proto/47",
		fmt.Sprintf("tcp/%d", port(r)), fmt.Sprintf("udp/%d", port(r)), fmt.Sprintf("sctp/%d", port(r)), ports(r))
	for _, side := range []string{"from", "to"} {
		if side == "from" || r.IntN(2) == 0 {
			text += fmt.Sprintf(" %s %s", side, prefix(r))
		}
	}
	return text
}

// wide is a large network of 20.0.0.0/8.
func wide(r *rand.Rand) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(r.IntN(256))}), 8+r.IntN(9)).Masked()
}
