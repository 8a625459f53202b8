// Package stories replays incidents in which a firewall took a service down: each
// is built out of network namespaces with the real programs, measured, explained
// by what the kernel shows, given Sluice's answer by the real command, and
// measured again. "sluice-lab story" calls it.
//
// The words:
//
//   - A [Story] is one incident: what happened, what it needs, and how it is played.
//   - A [Stage] is what a story plays on: a laboratory of namespaces, the binary of
//     sluice, a folder, and a report that fills as the story goes on.
//   - The cause ([Stage.Found]) is said of what was read from the kernel, and the
//     evidence is next to it.
//   - What differs from the way the incident was told is said too ([Stage.Honest]).
//
// The limit of the connection table belongs to the whole machine. A story that
// changes it plays in the kernel lab ([RunInLab]), or on this machine where the
// caller allows it ([Options.HostSysctl]); a process that outlives every signal
// brings the values back.
package stories
