// Package apply is the only code that changes the host's network state: it
// loads artifacts into the kernel, keeps what it loaded on disk, waits for a
// confirmation and takes back what was not confirmed. The commands apply,
// confirm, rollback, remove, restore, status, history, plan, conntrack tune and doctor --fix
// call it.
//
// Words:
//
//	generation  one policy as it was applied, with a number that is never used
//	            again and everything that it takes to load it once more: neither
//	            the policy's files, nor country data, nor a network are needed
//	mark        a name that the kernel takes in the same transaction that
//	            switches the rules, in a table of its own; so the kernel itself
//	            says which generation it holds, whatever happened to the process
//	journal     a file that stands while a change is under way: from where to
//	            where. Who finds one asks the kernel for its mark and then
//	            finishes the change or forgets it
//	pending     a generation that returns to what was before it unless somebody
//	            confirms it; a watcher, a process of its own, sees to that
//	boot        the generation that restore loads: the last confirmed one
//	tuned       a setting of the kernel that a command has set beside any policy; a
//	            record of its own has what it was, from before it was set, and the
//	            trial that it may be on
//
// One change goes:
//
//	lock ▶ settle what a killed command left ▶ read the kernel ▶ write the
//	generation ▶ journal ▶ fill sets ▶ sysctls ▶ arm the watcher ▶ switch and
//	mark, one transaction ▶ edit, sweep ▶ read back and compare ▶ state ▶ end of
//	the journal
//
// Invariants:
//
//   - Every file is written beside its place, synced, and renamed over it.
//   - Before the switch the kernel holds the old policy, after it the new one;
//     the mark tells which, at any moment, without the disk.
//   - The lock is inherited by the programs that change the kernel, so a load
//     that outlives its killed parent still holds it.
//   - Only a confirmed generation is loaded at boot. Nothing is loaded there only
//     where the state has nothing at all, or says that the policy was removed. Where
//     it is incomplete, the record is rebuilt from the generations and the kernel,
//     and the host is closed where these do not say for certain what was confirmed.
//   - A generation on trial is on disk as such before the rules switch. From the end
//     of its time on every reader counts it as taken back, unless it is confirmed on
//     disk or, until the next boot, in the kernel.
//   - The sets of what returns without a confirmation stay in the kernel until it
//     comes, so that going back fills nothing, and are no drift.
//   - Loading what is on disk already, at boot and on the way back from a trial, needs
//     no file. A journal is ended only when the record says what it said; where no
//     journal stands, the kernel's mark says what runs.
package apply
