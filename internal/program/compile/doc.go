// Package compile turns a resolved policy into a program. It records what
// the policy means, in the plainest form; to make that cheap is optimize's and
// the backends' work, so that what a policy means is read off here. Caller: engine.
//
// One packet's way through what compile makes:
//
//	prerouting raw   what bypasses tracking, stateless maps
//	prerouting nat   redirects, one-to-one maps
//	input, forward,  loopback, bans, ICMP that is needed, established and
//	output filter    related, invalid, answers that no state covers, rules
//	postrouting nat  masquerade, one-to-one maps
//
// A base chain carries its rules with a stage each and the optimizer puts them
// into the order of program.Stages. The rules of a section are in a chain of
// their own, SECTION_rules, which ends with the section's default; ICMP
// requests go there past the state, since a limit on them would otherwise
// count flows and not packets.
//
// Callers: cli and apply.
package compile
