// Package calibrate measures on a host what the cost model of a backend is made of,
// and keeps it: what a lookup, a comparison, a base chain cost a packet here; what
// sets and rules take of kernel memory, and how long they load. Callers: cli, for
// "sluice-lab bench calibrate" and for all that compiles a policy.
//
// The words:
//
//   - A constant is one figure of nftables.CostModel, with a name, a unit and bounds.
//   - A [Calibration] is a model as one host measured it, with that host and the
//     spread of each constant. It lies in the state directory ([File]).
//   - It fits a machine ([Calibration.Unfit]) that has the same kernel, processors
//     and mitigations: on another one it is left alone, and said to be.
//
// What is measured is measured in network namespaces that are made for it. Packets
// are injected as package measure does it, in turns over all constants; loads are
// nft's and those of sets by netlink, as an apply does them.
package calibrate
