// Package fleetbench measures what a fleet costs: how long a change takes from its
// publication until it is proved on all hosts, and what memory and processor time the
// controller and the agents take for that. Command bench fleet of sluice-lab calls it.
//
// The controller is the program itself. Some hosts are real: namespaces with an agent each
// and rules of the kernel. The others are simulated in one process (Simulate): each is a
// member of the fleet as agents are, with a certificate, a stream, and the bundles that it
// fetches and verifies; what the kernel and the compiler do is replaced by waiting for as
// long as it took a real host. Controller, agents and simulated hosts are a control group
// each.
package fleetbench
