// Package live asks the firewall that is loaded what it does with one packet. It
// copies the network namespace (internal/system/kernel/replica), sends the packet into the copy,
// and reads which chains and rules it met (nf_tables' trace; for legacy iptables, which
// rules have counted). The nftables backend calls it for "sluice explain --live".
//
// Why a copy, and not the firewall itself: a packet in the host's own namespace would
// have to arrive on a real device, count in its counters, fill the tables of its limits
// (and could ban its source), enter its connection table, and go on to a service or
// another host; and to see it, a rule that marks packets would have to be in
// somebody's live ruleset. The copy has the same rules, sets with what they hold now,
// devices, addresses, routes and settings, and nobody is on its other end.
//
// What the copy does not have: sockets, the connection table (the state of the packet is
// given to it, see trace.Question), neighbours, XDP and traffic control programs, IPsec, and the
// settings of the whole machine (the size of the connection table). Limits start
// again, so they count as not reached, as in the policy's own answer.
//
// How a result happens:
//
//	question ─▶ copy ─▶ entry of conntrack, where one is asked for ─▶ own table ─▶ packet, mark
//	                                                               events ─▶ steps ─▶ result
//
// The own table has the first and the last chain of every hook, so that what happened
// between two hooks (routing) is told from what a chain did. The mark is a second packet
// behind the first, which says that the first has been worked off: nothing waits for time to
// pass.
//
// Sample follows packets of the host itself, for whoever watches what it drops: no copy has the
// packets that come. It is told in the same steps, and has its own table are in the host's
// ruleset meanwhile, which marks a bounded number of packets each second.
package live
