// Package shadow tries a policy on live traffic without enforcing it: it turns the
// program that a policy was compiled to into one that counts the verdicts instead
// of taking them, holds that in the kernel for a while, and says what would have
// been dropped. Package engine calls it.
//
//	compiled program ─Counting▶ counting program ─optimize, lower▶ artifact
//	    ─Start▶ Running ─Watch▶ Report, each second and at the end
//
// Words:
//
//	candidate  the policy that is tried
//	running    what enforces meanwhile: Sluice's own table, another tool's, or none
//	line       a rule, ban or default of the candidate at one hook, with the verdict
//	           that it has; each has a counter
//	noted      written into a bounded set of the kernel with a counter: the far
//	           address of a packet that would be dropped, its protocol and port
//	not judged a packet whose verdict under the candidate cannot be told from
//	           what the running firewall makes of it
//
// The counting program has base chains of its own just before the filter chains of
// others, so it sees what they drop. Every packet that enters one ends in accept,
// which ends that chain alone: what follows decides as before. Checked holds a
// program to doing nothing but that, and the backend holds the rules that it makes
// of it to the same once more.
//
// The table goes with the process: a guard that waits for the end of its input deletes
// it, whatever ended the process (package nft, Guard), and some seconds after its time
// the kernel itself lets every packet pass at the first rule. A socket with a name that
// only one process of a network namespace can have says whether a shadow runs.
//
// What a hook cannot show is made up for or said:
//
//   - The candidate keeps packets out of tracking; the running firewall may not. So
//     what the candidate would not track is decided by a copy of its chains in which
//     every such packet is untracked.
//   - What the running firewall does not track and the candidate would has no state
//     to ask; where the candidate asks for it, the packet is not judged.
//   - The candidate's address translation is not made. New flows that it would lead
//     elsewhere, and what its stateless maps would rewrite, are not judged.
package shadow
