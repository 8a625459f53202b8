// Package demo shows Sluice at work, on real packets: it makes a host, a
// resolver and clients of several countries out of network namespaces, applies
// the only-Europe example with real country data, and asks explain, query, diff
// and verify before it tries with packets whether what they said is so. It plays
// three of the incidents that Sluice is there for, a change by hand among them; then
// it measures what a packet costs, lets a customer in who was blocked, and has a fleet of
// five hosts take a change, a mistake and a change by hand. It is a command of sluice-lab;
// `make demo` calls it.
//
// It ends with status 0 only if everything was seen as expected, and leaves
// nothing behind, also when it is interrupted.
package demo
