// Package reference says what a policy means for packets, by the shortest way
// from the language's text to an answer: it walks the policy's own lines in
// their order and asks each word. It shares nothing with the compiler but the
// policy, its resolved names and sets of addresses, so that the two can be held
// against each other and against the kernel, and one mistake cannot hide in both.
//
// Three questions:
//
//   - [Judge]: what happens to a packet at one hook.
//   - [Explain]: its whole way, with every stage that it passes: tracking,
//     rewriting, routing, the section that decides, rewriting again.
//   - [Flows]: the same of packet after packet, with a small model of connection
//     tracking that says which of them are new, established, related, invalid.
//
// Limits of rates and of connections count as not reached, except for [Flows], which
// takes the burst of a rate that is not by source for all that it gives. Fragments are no
// case of their own: wherever Sluice asks for more than addresses, connection
// tracking is in use, and the kernel puts a packet together from its fragments
// before the first hook that Sluice has (nf_defrag_ipv4 and nf_defrag_ipv6, at
// priority -400, tracked or not). What is never complete meets no rule.
//
// Callers: cli for explain, and for asking again what query and diff have found;
// expect; tests.
package reference
