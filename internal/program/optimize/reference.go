package optimize

import (
	"fmt"
	"strings"

	"sluice/internal/program"
)

// Reference is the page about the passes and the order of a base chain, as
// Markdown.
func Reference() []byte {
	var b strings.Builder
	b.WriteString(`# What the optimizer does

You need not read this to run a firewall. Read it when you want to know why the
rules in the kernel are not in the order of your policy, or to leave a pass out
while you look for the cause of something.

A policy is compiled to plain rules, in the order in which they decide. Passes
then make the way of a packet through them short. None changes what a packet
meets in the end: verdict, rewriting, tracking, counters, log and limits stay.
Random programs and packets in every state hold each pass to that.

    sluice compile --explain                  what each pass did, and what it saves
    sluice compile --dump-passes DIR          the program after each pass
    sluice compile --passes=-dispatch,-factor two of them left out
    sluice apply --profile                    rules by how often they were hit

## Passes

They run in this order; it is checked when the program starts.

| pass | afterwards | why, and why here |
|---|---|---|
`)
	for _, p := range Passes {
		name := "`" + p.Name + "`"
		if p.Required {
			name += " (always)"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, p.Promises, p.Reason)
	}
	b.WriteString(`
## The order of a base chain

| rules | why there |
|---|---|
`)
	for _, s := range program.Stages {
		fmt.Fprintf(&b, "| %s | %s |\n", s.Stage, s.Reason)
	}
	b.WriteString(`
Rules move from this order only where they commute: established flows, for one,
are asked before loopback, since both are accepted.

## Bans behind established flows

On the machine that the default costs are from, a look-up in a set takes a packet 70 ns,
a base chain 24 and two comparisons 6; "sluice-lab bench calibrate" says what they take on
yours. So the
bans of a policy are asked of what begins a flow, or keeps no state, and not of every
packet. They hold for flows that exist all the same: when a policy comes whose
bans hit flows, these are deleted from the connection table behind the switch, and
their next packet begins anew and is dropped. Bans by command come while the policy
runs, and are asked of every packet; those by a limit are asked of what begins a flow,
and end none that lives.

A packet that comes to the host is asked for its source alone: its destination is
the host's own address, which is never banned, or one that all of a network hear.
Of what is forwarded both ends are asked, of what leaves the destination.
`)
	return []byte(b.String())
}
