// Package verify proves that what a kernel holds means what a policy says, for
// every packet, or names packets for which it does not. The backend reads the
// kernel back as a program (backend.Lifter); package reach compares it with the
// program of the policy, with only those passes of the optimizer that it needs.
// So a mistake of the optimizer, of the lowering, of nft, and a rule that somebody
// changed by hand are all found the same way. apply calls it after every load, and
// "sluice verify" whenever it is asked.
//
// Assumed are the assumptions of package reach about packets (see
// reach.Universe), and that nft lists what the kernel runs.
package verify
