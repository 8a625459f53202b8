// Package optimize rewrites programs without changing what they mean. Each
// pass is a file of its own and a row of the table Passes; a pass knows no
// backend. Two programs mean the same when they give every packet the same
// verdict, rewriting, tracking, counters, log and limits.
//
// Run takes the passes in the order of the table, checks the table's own
// constraints first and, when asked to, the program's invariants after each.
// Callers: engine, and those that print the table.
package optimize
