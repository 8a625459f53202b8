// Package nftables is the backend that runs programs on nf_tables. It lowers a
// program to a tree of nft's own things, prints the tree as text for nft,
// reads the same tree back from what nft lists, and compares the two by
// meaning. What sets hold goes and comes by netlink (package nfset). apply and
// the commands call it through package backend. Tables of other owners are read by the same
// statements, for package importer (foreign.go).
//
//	program ─passes▶ Tree ─print▶ steps: text and contents ─apply▶ kernel
//	                  ▲  └─normalise─┐                      │
//	                  │           compare ◀──normalise──────┤
//	                  └──────────── read ◀─nft -j, netlink──┘
//
// Words:
//
//	tree      one table of family inet, and those of one family beside it
//	          (tables.go): counters, limits, sets, flowtables and chains of rules
//	rule      statements in order; a match is a statement too
//	value     the text of one value in the one form that is used everywhere
//	          inside: numbers in decimal, addresses and ranges as addrset
//	          writes them; only the printer puts names in their place
//	part      one of the kernel sets that a set of the program became: by
//	          family, and of living sets by exact addresses and prefixes
//	living    see program.Life; a living set's exact addresses keep their
//	          kernel name and are edited in place
//
// Invariants:
//
//   - The same program gives the same bytes.
//   - A static set's name ends in a hash of its contents and layout. A set of
//     that name that no rule uses may be half filled, by a load that was
//     killed, and is never trusted.
//   - A set is filled and committed before the transaction that makes rules
//     use it: otherwise packets are lost in between.
//   - The table is deleted by removal alone, so counters and what the kernel
//     put into dynamic sets outlive a reload.
package nftables
