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

## Bans before tracking

Connection tracking takes a packet that begins a flow longer than all rules, and a
look-up in a set longer than two comparisons: on the machine that the default costs are
from 70 ns, and 6; "sluice-lab bench calibrate" says what they take on yours. So whom a
packet comes from is asked before tracking, but of TCP only where it has no ACK, as what
begins a flow has none. Other TCP goes past that, and is asked behind established flows
where it is of none. Bans hold for flows that exist anyway: when a policy comes
whose bans hit flows, these are deleted from the connection table behind the switch, and
their next packet starts again and is dropped. Bans by command come while the policy
runs, and are asked of every packet, before tracking where the policy has a reason to
look at packets there: bans of its own or services that bypass tracking. Those by a limit
are asked of what begins a flow, behind established flows, and end none that lives. A
flowtable carries flows past all of this: a ban by command ends what it carries, so that
the next packet of each flow is asked again.

Whom a packet goes to is known behind its rewriting, and asked behind established flows.
A packet that comes to the host is asked for its source alone: its destination is
the host's own address, which is never banned, or one that all of a network hear.
Of what is forwarded both ends are asked, of what leaves the destination.
`)
	return []byte(b.String())
}
