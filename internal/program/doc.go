// Package program is the small common form that every backend, every reader of
// rulesets and every analysis speaks. It holds types and their invariants and
// nothing else: compile makes programs, optimize rewrites them, the backends
// lower them, reach and verify prove things of them.
//
// Words:
//
//	hook      a place of the kernel's packet path with a phase (raw, mangle,
//	          nat, filter) and a default; one base chain starts there
//	chain     an ordered list of rules; base chains belong to a hook, others
//	          are reached by jump and goto
//	rule      a match (AND of conditions) and actions in order; the rules of
//	          one policy line share its id, and with it counter and limit
//	effect    what an action does, said once for all who ask: does it end the rule,
//	          gate it, what does it read, write and need (Effect)
//	condition field, values or a set, negation
//	set       named keys with origins; static, living or dynamic
//
// A condition on an address says nothing about the family: a set may hold IPv4
// and IPv6 together, and a rule that has no condition of one family applies to
// both. Backends that need a rule per family split it.
//
// A rule without a terminal action (accept, drop, reject, goto, return) falls
// through to the next one. A gate (Limit, ConnectionLimit) that does not let
// the packet through ends the rule there: the packet goes on with the next
// rule as if the rule had not matched. Accept ends its base chain, not the
// packet's way: later base chains still see the packet.
package program
