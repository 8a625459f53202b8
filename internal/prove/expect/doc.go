// Package expect judges the expectations of a policy: lines such as "deny ssh
// from not office", which say what every packet must meet that fits them. The
// commands test, apply, plan and check call it.
//
// An expectation is a region of all packets ([line]), and the program of the
// policy has an outcome for every region, so that one comparison of package
// reach proves it for all packets, or leaves those for which it does not hold,
// as classes with a witness each. So that nobody has to believe the proof, every
// witness is asked of package reference too, which reads the policy and not the
// program; where the two differ that is a bug in Sluice ([FaultError]), not in the
// policy.
//
// What a line is about, where its words do not say it:
//
//   - packets as they arrive, or as a socket of the host sends them, before any
//     rewriting; what happens to them is said of their whole way
//   - packets that open a flow: new to connection tracking, which of TCP a SYN or
//     an ACK alone can be, and of ICMP a request; of what bypasses tracking, all
//     but TCP without a bare SYN
//   - limits count as not reached, and sets that the kernel or commands fill as
//     empty
//   - what holds whatever a policy says is left out: loopback, packets that come
//     in with an address of the host as their source, the ICMP that IP cannot
//     work without, answers to the host's own DHCP
package expect
