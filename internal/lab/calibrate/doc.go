// Package calibrate measures on a host what the cost model of a backend is made of:
// what a lookup, a comparison, a base chain cost a packet here; what sets and rules
// take of kernel memory, and how long they load. "sluice-lab bench calibrate" calls it
// and stores what it found (backend/nftables/calibration).
//
// A constant is one figure of nftables.CostModel, with a name, a unit and bounds.
//
// What is measured is measured in network namespaces that are made for it. Packets
// are injected as package measure does it, in turns over all constants; loads are
// nft's and those of sets by netlink, as an apply does them.
package calibrate
