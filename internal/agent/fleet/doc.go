// Package fleet is the host's half of a fleet: it holds the stream to a controller, believes
// what is signed for this host alone (package trust), and brings it into force as a command
// would, by the engine. Callers: the agent, and cli to enrol and to leave.
//
// A Member follows what is desired, the newest word alone, whatever was lost on the way:
//
//	none ▶ fetched ▶ checked ▶ pending ▶ proved ▶ confirmed
//	                 refused   reverted, also by the engine's own watcher
//
// Bans and allows, which come and go without a signature of the policy, are a log of their own:
// a host takes it in order, fetches what it lacks, and has all of it judged again where the
// bounds change.
//
// What it has done is recorded before it is reported, so that the next agent goes on where
// one ended. Time is that of package time, and the network, the kernel and the host come in
// by interfaces, so that all of it runs under testing/synctest.
//
// Files, below the folder of the firewall's state:
//
//	fleet/host.json      which fleet this is, as which host (apply.Membership)
//	fleet/key.pem        the host's key and certificate
//	fleet/trust.json     what it believes
//	fleet/state.json     what is desired and where that is (apply.FleetState reads it)
//	fleet/bundles/N      the files of a bundle for this host, and host.yaml, which is applied
package fleet
