// Package explain says what a policy does with one packet, and why: the verdict with the
// line that decides, every stage that the packet passes, the sets that were asked, what
// it becomes. Package engine calls it for "sluice explain".
//
//	question ─▶ packet, with what was not said filled in from the facts of the host
//	packet   ─▶ every way that it may go (interfaces, marks, next hops)
//	ways     ─▶ package reference follows each through the policy's own lines
//	answer   ─▶ words, notes, and whether the compiled program does the same
//
// Nothing is sent and no kernel is asked here: what is known of the host is what its
// facts and the caller's router say.
//
// What a question's fields are called where it is asked (flags of a command, keys of a
// request) is the caller's to say, in [Words]; answers and errors then speak of them so.
package explain
