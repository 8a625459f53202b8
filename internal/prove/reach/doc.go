// Package reach says what a program does to packets, without a kernel: to one
// packet, or to all of them.
//
// One packet ([Evaluate]): apply asks whether a new connection would get through,
// to keep people from locking themselves out and to find tracked flows that a
// policy refuses. An evaluation walks the base chains of a packet's way (input,
// forward or output) in the order of the kernel. What it cannot know, such as
// opaque text or an interface that nobody named, it tries both ways: the result is
// certain only when every way ends in the same verdict. What depends on the moment
// is assumed in the packet's favour and named: rates hold, tables of sources do not
// yet hold a ban.
//
// All packets ([NewUniverse]): query, diff, verify and the tests of the optimizer
// ask which packets a program lets through, and whether two programs are equal.
// The packets of one question are parted at every boundary that a program draws
// (the atomic predicates of H. Yang and S. Lam, "Real-Time Verification of Network
// Properties Using Atomic Predicates", 2013), so that the classes are few however
// many ranges a set has, and sets of classes are decision diagrams (package
// bdd). The walk is the same, with sets of packets in place of one; what
// it gives holds for every packet of a class.
package reach
