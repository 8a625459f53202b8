// Package kernelbench is what the kernel lab measures on each of its kernels:
// package kernels boots them, and the command of `make kernels` calls [Run] inside
// of each, and [Merge] with what all of them found.
//
//   - Layouts: the real country data ("all but Europe") in every layout that peers
//     use, and in Sluice's own; what a blocked and an allowed packet pays.
//   - Lists: 650 banned addresses, rule by rule and otherwise, as in the second story.
//   - Forward: packets of known connections through a host, on the classic path and
//     by a flowtable, with the proof that they took that way.
//   - Examples: every kind of packet of the examples, beside the same by hand.
//   - Kinds: every kind of packet that a policy knows, under Sluice.
//   - Limits: what established packets of other services pay where limits count
//     handshakes.
//   - Candidates: every layout of a large set among which Sluice chooses, and whether
//     its default costs choose the cheapest.
//   - Fallback: what is done where the kernel has no flowtables.
//   - Capabilities: what the kernel says to each question of package host.
//
// It knows nothing of emulation: on a real machine the same figures are nanoseconds.
// The same packets in the same order are sent in every run (fixed numbers, fixed
// seed), so where time is counted in instructions two runs agree; [Agree] holds them
// to that.
package kernelbench
