// Package addrset holds sets of IP addresses of both families: what a policy's
// names, files, lists and countries resolve to, and what backends lay out in the
// kernel. resolve builds them; compile, the backends and whatever proves something
// read them.
//
// A [Set] is immutable and always in its one minimal form: sorted, disjoint,
// non-adjacent ranges, IPv4 before IPv6. Two sets with the same addresses
// therefore hold the same ranges, and every operation is one merge over two
// sorted lists. Inside, an IPv4 range takes 8 bytes and an IPv6 range 32; the
// netip types appear only at the edges.
//
// IPv4-mapped IPv6 addresses (::ffff:0:0/96) are never members in their IPv6
// notation when they come in as addresses: they stand for the IPv4 address. A
// zone is never part of an address here.
package addrset
