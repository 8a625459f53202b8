// Package hostwatch records what the kernel says of its network while something
// else runs: the connection table against its limit, packets dropped by kernel
// function and reason, the share of softirq of each processor, what TCP counts of
// lost connections. "sluice-lab load --watch-host" and the stories call it; lab/hostcharts
// draws what it has seen.
//
// The words:
//
//   - A [Watch] samples every interval until it is stopped. It reads counters alone
//     and changes nothing except for one BPF program, which goes with it.
//   - A [Space] is one network namespace that is watched.
//   - A [Course] is one counter or level over time: a value a sample.
//   - Time is in seconds since Options.From, which load shares, so that one moment
//     is one place on every chart.
//
// What cannot be seen on this machine is said in Result.Warnings and left out.
package hostwatch
