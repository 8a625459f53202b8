// Package store keeps a fleet in SQL: an SQLite file for one machine, PostgreSQL 14 or
// newer for more. The controller and the commands that work beside it call it; agents do
// not. One conformance suite (the tests here) holds for both.
//
//	desired state                                 what hosts say          what happened
//	─────────────────────────────────────────     ───────────────────     ─────────────
//	fleet      name, incarnation, revision ──────────────────────────────▶ audit_seq, audit_hash
//	change     what each revision changed         status   by host        audit  the chain
//	token ─▶ host ─▶ host_key ─▶ certificate      facts    by SHA-256
//	         host ─▶ guest                        host.seen
//	bundle ─▶ bundle_blob ─▶ blob ─▶ upload ─▶ chunk
//	metadata   signed: root chain, targets, …
//	access     who may ask the controller: tokens, links, sessions, by their hashes
//	live_list  what lists hold that the controller keeps live
//	living     the log of bans and allows, in an order of its own; ban: what it comes to
//	draft      texts that somebody proposes in place of a bundle's
//	rollout    plan and state ─▶ bundle
//	desired    host ─▶ bundle, rollout
//
// What the callers may rely on, with several controllers on one database as with one:
//
//   - A write that returned nil is on the disk, and in PostgreSQL on the synchronous
//     standby where there is one. A write that failed changed nothing, except for a commit
//     whose answer was lost: then the caller asks what is.
//   - A transaction that changes desired state raises fleet.revision as its last step, and
//     says in change what it changed. The row stays locked until the commit, so revisions
//     become visible in their order, without a gap. Neither status nor sightings raise it,
//     nor do bans and allows: their log has numbers of its own, in the order of commits too.
//   - The entry of the audit is written by the transaction that it reports.
//   - What two could do at the same time is a compare-and-set: one wins, the other gets
//     ErrConflict, ErrTaken or ErrToken.
//   - A read that failed is an error and never an empty answer. Errors other than the
//     package's own mean that the database did not answer.
//
// Labels, addresses and what a revision changed are JSON in a column: selectors are asked
// in memory, of a [Snapshot] that follows [Store.Changes].
package store
