// Package packetbench says what each kind of packet pays under a policy: it finds
// the kinds that the policy has, makes a host after the policy's zones, and measures
// the policy in it beside no rules at all, and beside other ways to say the same.
// The command bench packet calls it, and the kernel lab and stories.
//
// The words:
//
//   - A [Kind] is what packets have in common for a reader: banned, blocked,
//     allowed, established, …
//   - A case is one kind in one family with its traffic: up to 65,536 sources that
//     are drawn from the policy's own sets, and of each the verdict that package
//     reference gives it. A packet that is treated otherwise ends the run: what is
//     measured always means the same.
//   - A [Subject] is one way to have the policy in the kernel: sluice itself, or
//     what people write by hand. Each has a lab of its own; beside them stand a lab
//     without rules ([Bare]) and a second one of the first subject, whose difference
//     to the first is the error of the method (A/A).
package packetbench
