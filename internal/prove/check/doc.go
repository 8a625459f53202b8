// Package check finds what is wrong with a policy that is right by its
// language: rules that can never match, sets without an address, bypasses that
// break NAT, bans of the host itself. engine calls it for every policy, query for
// what a finding says of a rule.
//
// A finding is an error, which keeps a policy from being applied, a warning, or
// a remark. What the host is (host.Facts) sharpens many findings; where it is
// not known they are left out rather than guessed.
//
// The reasoning about rules is exact, not by pairs: the packets that a rule can
// match are a list of boxes (see box), the boxes of all earlier rules that end
// a packet's way are taken out, and a rule that nothing is left of can never
// match. A rule with a limit or a bound of connections takes nothing out, since
// packets over it go on.
package check
