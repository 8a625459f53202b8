// Package nfset reads and writes what nf_tables sets and maps of family inet
// hold, by netlink, in the network namespace of the calling thread. Sets are
// defined by nft text (package nft) and committed before; only their elements go
// this way, because a text of a hundred thousand of them takes nft twice the
// time and 900 bytes of memory for each. The nftables backend calls it to fill,
// edit, compare and list sets; nobody else does.
//
// Words:
//
//	key         the bytes that the kernel compares, in network order; the parts
//	            of a concatenation one after the other, each padded to 4 bytes
//	element     a key, or a first and a last one, and what belongs to it: verdict,
//	            counter, time-out, comment
//	transaction what the kernel takes as a whole or not at all: one netlink
//	            batch, one system call
//
// Of a set with intervals and one key (NFT_SET_INTERVAL, not
// NFT_SET_CONCAT) the kernel keeps two nodes for an element: one with the first
// key and one, flagged NFT_SET_ELEM_INTERVAL_END, with the key behind the last;
// the latter is left out where the last key is the last that there is. Callers
// see one element.
//
// What was measured on Linux 6.18, one core of two, to say why it is so:
//
//   - 48,300 ranges of IPv4 are added in 0.12 s and 96,000 of IPv6 in 0.28 s, of
//     which writing the messages takes a twentieth; nft takes 0.33 s for the
//     former. Sorted is the quickest order, falling takes a tenth longer, random
//     order a fifth, and makes reading three times as slow.
//   - One transaction for all takes as long as many of 256 KiB or more; below
//     that the grace period of each is felt. So they are cut at 1 MiB, and the
//     memory taken is twice that.
//   - Reading is cheap as long as a set is small: see Conn.Dump.
//   - 60,000 exact addresses are added in 35 to 75 ms and read in 25 to 40.
//
// Constants and layouts are those of include/uapi/linux/netfilter/nf_tables.h
// and nfnetlink.h.
package nfset
