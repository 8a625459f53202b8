// Package engine is the one door from a policy to what a kernel runs, and to the host
// that it runs on. The commands, tests and the lab call it, and whoever needs the same
// later: it prints nothing, reads no flags, and names no command.
//
// Without a host:
//
//	Build     policy, facts, capabilities ▶ resolved, checked, compiled, optimized,
//	          lowered; Resolve, Program and Expected are its stages for whoever needs fewer
//	Sources   where the names of policies come from: lists, country data, set files
//	Subject   a policy that a question is about: Check, Lint, Query, Test, Meaning
//	Facts     what this host is; ReadFacts reads those of another one
//	Costs     by which figures layouts are chosen and packets are priced
//
// With one, a Host: a network namespace and a state directory. It embeds apply.Host,
// whose methods (Confirm, Ban, Unban, Bans, Sync, Remove, ...) run in that namespace, and
// puts before the others what they need to know:
//
//	Apply, Plan        a Request: which policy, and how it is built
//	Refresh            the running policy with new lists
//	Rollback, Restore  with who is logged in over ssh
//	Status             with what of the policy's files was edited since
//
// AskLoaded asks what is loaded about a packet, and says where it does otherwise than a
// policy and why.
//
//	Running            the running policy as a Subject
//	Explain            one packet: what a policy and the loaded firewall do with it
//	Verify             with what else on the host decides about packets
//	Shadow             a policy that counts and decides nothing
//
// Every method takes a context, reports progress by Host.Progress, of notes and
// warnings by Host.Note and Host.Warn, and returns values whose JSON is what --json
// prints. Errors have types, and say what is wrong; what to type against it is the
// caller's to know.
package engine
