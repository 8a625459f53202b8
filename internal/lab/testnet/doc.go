// Package testnet makes small networks out of Linux network namespaces, and
// tries packets on them. Kernel tests and whatever measures call it: the commands
// bench, load and story, and the demo. No command that changes or explains a
// firewall does.
//
// The words:
//
//   - A [Net] is one laboratory: the namespaces, links and processes made for
//     one test. [New] ties its life to a test, [Create] to the caller.
//   - A [Namespace] is one host of it. [Namespace.Do] runs a function inside.
//     Named namespaces live under /run/netns, so that "ip netns exec NAME" and
//     every tool that takes a namespace's name can reach them.
//   - A [Port] is one end of a veth pair; [Net.Join] makes both.
//   - A try ([Namespace.TryTCP], [Namespace.TryUDP], [Namespace.TryEcho]) uses
//     real sockets and says what came back: an [Outcome].
//   - Hand-made packets are built by [TCP], [UDP], [TooBig] and their like as
//     whole IP packets, sent by [Port.Send], and seen again by a [Capture] (what
//     a device carries) or a [Listener] (what the input hook let through).
//
// Set-up methods do not return errors: in a test a failure ends the test, else
// it ends the function given to [Net.Try]. Methods that try traffic return a
// result and never end the test.
//
// Everything that a Net made is gone after [Net.Close], which a test, SIGINT and
// SIGTERM call as well. What a killed process leaves behind carries its process
// id in its name and is removed by the next Net made on the machine.
//
// Root is needed, or a user namespace with its own mount namespace:
//
//	unshare -rnm go test ./internal/...
package testnet
