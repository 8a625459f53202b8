// Package stress changes the firewall of a host over and over while packets go
// through it, and counts what happened to them. `make stress` runs the long form
// through the program in main/; the package's own tests are the short form.
// docs/internals/measuring.md tells the method and the counts.
//
// No command of sluice imports it. It works in namespaces of its own, and leaves
// nothing behind.
//
// Words:
//
//   - a flow is a packet that opens a connection, from a drawn source; its class
//     says which of two policies allow it, as package reference judges: both, the
//     first, the second, neither. Of the class both none may be lost, of the class
//     neither none may pass
//   - a stream is a TCP connection between real sockets that carries data in both
//     directions from before the first change to behind the last
//   - a connect is a TCP connection that is opened, used once and closed
//   - the watch is a table of counters before Sluice's first hook and behind its
//     last one: what is missing between them was dropped in between
//   - the hand is a process inside the host that applies policies by the packages
//     that "sluice apply" is made of, again and again, so that what it does not
//     give back adds up
//   - a footprint is what the kernel and the hand hold at a moment, on disk too
//   - a control is a run in which something is wrong on purpose; the counts have
//     to show it, else they prove nothing
package stress
