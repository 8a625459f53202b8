// Package controller is a fleet's controller: what agents are told on port 7443, what
// commands ask on a Unix socket, and the loops between the database and both. Callers: the
// command run, and tests.
//
//	commands ──▶ operator.go ──▶ store ──▶ follow.go ──▶ view ──▶ hub ──▶ agents
//	                               ▲                      │                │
//	                            drive.go (roll-outs) ◀────┴── status.go ◀──┘
//
// The database is the truth. A view is what it said at one position, in memory; agents are
// served from it also while the database does not answer. Nothing is computed from an
// error: a read that failed leaves the view as it was.
package controller
