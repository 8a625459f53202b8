// Package replica copies what makes up a network namespace into another one:
// devices, addresses, routes, routing rules, sysctls, the whole of nf_tables and
// legacy iptables. The live trace (nftables/live) calls it, to ask a firewall what it does with a packet
// without sending one through the firewall itself. The source is only read.
//
// Words:
//
//	space    a network namespace without a name (netns.Namespace). It lives by the file
//	         that this process holds open, so it ends with the process, however that ends.
//	device   every device but loopback becomes one end of a veth pair of the same
//	         name, index, MTU and hardware address. The other end, its cable, lies
//	         in a second space: what is sent there arrives on the device.
//	replay   the kernel describes an object in the same attributes in which it
//	         takes one. So a copy is what was dumped, without handles, counters of
//	         uses and ids: no text stands between that could lose something, and
//	         rules that nft cannot print (extensions of iptables) are copied too.
//
// Devices keep their index, so that rules, elements of sets and routes that name
// a device by its number mean the same one. They are set not to need neighbours
// (IFF_NOARP): a copy is silent except for what is sent into it.
package replica
