// Package reach says what a program does to packets, without a kernel. apply
// asks it whether a new connection would get through, to keep people from
// locking themselves out and to find tracked flows that a policy refuses.
//
// An evaluation walks the base chains of a packet's way (input, forward or
// output) in the order of the kernel. What it cannot know, such as opaque text
// or an interface that nobody named, it tries both ways: the result is certain
// only when every way ends in the same verdict. What depends on the moment is
// assumed in the packet's favour and named: rates hold, tables of sources do
// not yet hold a ban.
package reach
