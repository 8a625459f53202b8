// Package drift looks after the rules of one network namespace: it finds what others than
// Sluice's commands changed, says what that does to packets, and has it put back where
// that is wanted. Callers: the agent.
//
// Whether a change is anybody else's is told by the number of the ruleset, which every
// command records that has seen the kernel hold what it should, and not by whoever made
// it. Only what is not told so is proved, by a process of its own and beside the lock.
package drift
