// Package applybench measures what a change of the firewall takes: to load a policy
// from nothing, again without a change, with one element more, with 1 % of its
// countries' ranges changed; beside nft -f, ipset restore with swap, and a reload of
// firewalld with the same meaning. "sluice-lab bench apply" (lab/cli) is its command.
//
// The words:
//
//   - A [state] is what is to be in the kernel: the policy, its list of bans, the
//     country data, and what package reference says of it.
//   - A [rival] is one way of bringing a state into the kernel of a lab of its own.
//   - A [change] is the step from one state to another.
//   - A flow is one packet from a drawn source, sent over and over while a change is
//     made; its class says what old and new state do with it.
//
// Three kinds of rounds, in each of which every rival makes every change, in turn and
// every other round backwards: timed rounds, in which nothing else is done; flooded
// rounds, in which packets are counted before the first hook of a rival and behind its
// last one; and watched rounds, in which memory is sampled and the bytes over netlink
// are counted. So nothing that is counted is part of a time.
//
// Everything happens in network namespaces that are gone afterwards; firewalld has a
// bus and a mount namespace of its own.
package applybench
