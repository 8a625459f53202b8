// Package peers has the same meaning as a policy, written the way people write it
// today: nftables with one set or one rule an address, iptables with and without
// ipset, a chain per /8, ufw, firewalld. Those that measure (packetbench, applybench,
// kernelbench, limits, stories) put them beside Sluice's own ruleset.
//
// The words:
//
//   - A [Meaning] is what a policy decides, free of its names and of Sluice's ways:
//     bans, services that keep no state, rules of a section in order. [FromPolicy]
//     makes it of a resolved policy, [Blocked] of a set alone.
//   - A [Peer] is one way to have it in the kernel. [Peer.Without] says what the
//     peer leaves out, and refuses, by the policy's line, what would change a
//     verdict; [Peer.Load] loads it into a namespace.
//   - Peers of one name in different flavours (iptables-legacy and iptables-nft) are
//     several peers; [Named] gives all of a name.
//
// That a peer means the same is not believed: package measure counts what happens to
// every packet, and a difference ends the measurement.
//
// The programs are the machine's own. ufw and firewalld run in a mount namespace of
// their own, with a configuration made for them, and firewalld on a bus of its own,
// so that those of the host are neither read nor touched.
package peers
