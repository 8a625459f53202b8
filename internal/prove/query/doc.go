// Package query asks policies in a reader's words and gives the answers in
// them. The commands query and diff call it.
//
// Words:
//
//	question  what is asked about, as a rule would say it: a service, from, to,
//	          in, out, states, hooks
//	name      what a set of addresses is called: a set or zone of the policy, a
//	          country, "not X", "X except Y", a few of these together, or
//	          how many addresses of how many ranges
//	class     packets that differ in nothing that any rule asks, or in nothing
//	          that changes what happens to them; each has a witness, one packet
//	          of it
//	change    packets that two policies treat differently, and how
//
// Package reach proves; this package only says in words what it found. So that
// nobody has to believe either, every witness is asked of package reference too,
// which reads the policy and not the program: where the two differ that is an
// error, of Sluice and not of the policy.
package query
