// Package resolve turns the names of a policy into what they stand for on one
// host: zones into interfaces and networks, sets into addresses (from the
// policy, from files, from lists, from country data), users into numbers.
//
// Compile, check and the reference all work on its result, so that none of
// them reads a file. engine calls it.
package resolve
