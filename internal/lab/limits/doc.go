// Package limits measures what Sluice costs, beside what others do with the same
// addresses and rules, and says of every figure that was asked whether it is
// reached. "sluice-lab bench limits" (lab/cli) is its command, which `make bench` runs, and the demo
// shows its three-line Summary; docs/internals/benchmarks.md tells the method.
//
// Packet cost comes from package measure; times of whole commands are those of
// the real binary in a namespace of its own. Both sides of a ratio are always
// measured in turn within one run, and beside each ratio stands that of a side to
// itself (A/A), which is the error of the method.
//
// It leaves nothing behind, also when it is interrupted.
//
// Words:
//
//   - a section is a group of figures that share a set-up
//   - a limit is what was asked of a figure: a goal of package figures
//   - a peer is one way to have rules in the kernel; a contest has peers beside each
//     other under the same packets
package limits
