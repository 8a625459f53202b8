// Package estimate says what a packet is expected to cost under a program: a
// mix of packets is made from the program as it was compiled, each walks
// through the program as reach has it, and the backend's prices are added up
// for what it meets. Connection tracking and the rest of the stack are not in
// it.
//
// The mix stays the same while passes rewrite the program, so that their
// figures can be compared. Caller: engine, for compile --explain
// and the choice of layouts.
package estimate
