package stress

import (
	"fmt"
	"strings"
)

// hook is the way that a flow takes through the host.
type hook int

const (
	input hook = iota
	forward
	output
	hooks
)

func (h hook) String() string { return [...]string{"input", "forward", "output"}[h] }

// class says which of the two policies allow a flow.
type class int

const (
	both class = iota
	first
	second
	neither
	classes
)

func (c class) String() string {
	return [...]string{"both allow", "first allows", "second allows", "neither allows"}[c]
}

// family is 4 or 6.
type family int

var families = [...]family{4, 6}

// kind is what flows are counted by.
type kind struct {
	hook   hook
	family family
	class  class
}

// kinds is every kind.
func kinds() (out []kind) {
	for h := range hooks {
		for _, f := range families {
			for c := range classes {
				out = append(out, kind{h, f, c})
			}
		}
	}
	return out
}

// flowPort is the service that flows are for. Their source port tells their
// class.
const (
	flowPort  = 7000
	firstPort = 21000 // below what the kernel gives to connections
)

func (k kind) port() uint16 { return firstPort + uint16(k.hook)*10 + uint16(k.class) }

func (k kind) name() string { return fmt.Sprintf("flow%d_%d", k.family, k.port()) }

// Names of counters: before Sluice's hooks and behind them.
const (
	before = "before_"
	behind = "behind_"
)

// watchTable is the watch. Its chains come before and behind every priority that
// Sluice takes; a flow is counted by its source port, a packet of streams and the
// first of a connect by the service's.
func watchTable() string {
	var b strings.Builder
	b.WriteString("table inet watch {\n")
	var names []string
	for _, k := range kinds() {
		names = append(names, k.name())
	}
	for _, s := range services {
		for _, f := range families {
			names = append(names, s.streamName(f), s.connectName(f))
		}
	}
	for _, n := range names {
		fmt.Fprintf(&b, "\tcounter %s%s { }\n\tcounter %s%s { }\n", before, n, behind, n)
	}
	flows := func(side string, hooks ...hook) {
		for _, f := range families {
			var of []string
			for _, h := range hooks {
				for c := range classes {
					k := kind{h, f, c}
					of = append(of, fmt.Sprintf("%d : %q", k.port(), side+k.name()))
				}
			}
			fmt.Fprintf(&b, "\t\tmeta l4proto { tcp, udp } meta nfproto ipv%d counter name th sport map { %s }\n", f, strings.Join(of, ", "))
		}
	}
	ports := func(side, field string, ways ...way) {
		for _, f := range families {
			var streams, connects []string
			for _, s := range services {
				for _, w := range ways {
					if s.way == w {
						streams = append(streams, fmt.Sprintf("%d : %q", s.streamPort(), side+s.streamName(f)))
						connects = append(connects, fmt.Sprintf("%d : %q", s.connectPort(), side+s.connectName(f)))
					}
				}
			}
			fmt.Fprintf(&b, "\t\tmeta nfproto ipv%d counter name tcp %s map { %s }\n", f, field, strings.Join(streams, ", "))
			if field == "dport" { // the packet that opens a connection goes to the server
				fmt.Fprintf(&b, "\t\tmeta nfproto ipv%d tcp flags & (syn | ack) == syn counter name tcp dport map { %s }\n", f, strings.Join(connects, ", "))
			}
		}
	}
	chain := func(name string, priority int, rules func()) {
		fmt.Fprintf(&b, "\tchain %s_%s {\n\t\ttype filter hook %s priority %d;\n", name, map[bool]string{true: "first", false: "last"}[priority < 0], name, priority)
		rules()
		b.WriteString("\t}\n")
	}
	chain("prerouting", -450, func() {
		flows(before, input, forward)
		ports(before, "dport", toHost, through)
		ports(before, "sport", fromHost, through)
	})
	chain("input", 450, func() {
		flows(behind, input)
		ports(behind, "dport", toHost)
		ports(behind, "sport", fromHost)
	})
	chain("output", -450, func() {
		flows(before, output)
		ports(before, "dport", fromHost)
		ports(before, "sport", toHost)
	})
	chain("postrouting", 450, func() {
		flows(behind, forward, output)
		ports(behind, "dport", fromHost, through)
		ports(behind, "sport", toHost, through)
	})
	b.WriteString("}\n")
	return b.String()
}

// reading is the packets that each counter of the watch has counted.
type reading map[string]uint64

func (l *lab) read() (reading, error) { return l.host.Counters("inet watch") }

// since is what was counted since an earlier reading.
func (r reading) since(earlier reading) reading {
	out := reading{}
	for name, n := range r {
		out[name] = n - earlier[name]
	}
	return out
}
