// Package conformance is the suite that every backend passes. A backend's test
// calls Run with the backend, what the kernel at hand can do, and a Host that
// is its own network namespace.
//
// It holds a backend to what package backend promises: one program, one text;
// artifacts that survive the disk; what was loaded reads back without a
// difference; a loaded artifact takes no more steps; any program can follow any
// other; counters outlive that; steps that stop half way can be taken up again;
// removal leaves nothing; marks come with the switch, fingerprints tell who wrote, and
// bans are held; what cannot be done is refused by rule. What packets
// meet is held by the tests of meaning, which run on all backends too.
package conformance
