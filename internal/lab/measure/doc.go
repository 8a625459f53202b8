// Package measure says what a packet costs on its way through a host's rules, in
// nanoseconds of processor time. The commands bench and story call it, tests, and
// what finds the constants of a cost model.
//
// The words:
//
//   - A [Lab] is one host: a network namespace with one veth device, and in it
//     whatever rules the caller loads. Each variant that is compared has a lab of
//     its own, so that going from one to another costs nothing.
//   - A [Traffic] is what arrives: one protocol and up to 65,536 [Flow] values,
//     cycled over in order. [Load] makes a [Source] of it, which any lab can take.
//   - A [Run] is one injection: packets sent, packets that survived, time.
//   - A [Cell] is a variant under one traffic, with the verdict that is expected of
//     every flow. [Compare] runs cells in turn, round after round, and the
//     [Result] answers medians, costs added to a cell without rules, and ratios
//     with a confidence interval.
//
// How it works: BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES
// (https://docs.kernel.org/bpf/bpf_prog_run.html) hands frames to the network
// stack as if the lab's device had received them, in batches of 64, on the thread
// that asks. An XDP program of our own writes the next flow's addresses, ports and
// checksums into each frame before. In every lab a base chain at priority 1000 of
// the input hook counts and drops what the rules under test let through, so that
// no socket and no ICMP answer is ever part of the cost. The thread stays on one
// processor, at real-time priority while it injects, and the clock is its own
// processor time, which stands while other threads run.
//
// A run whose survivors are not exactly those that were expected is an error, not
// a figure.
//
// From another package's benchmark:
//
//	net := testnet.New(b)
//	measure.Require(b)
//	bare, _ := measure.NewLab(net, "bare")
//	rules, _ := measure.NewLab(net, "rules")
//	err := rules.Nft(`table ip t { chain c { type filter hook input priority 0; ip saddr 203.0.113.0/24 drop; }; }`)
//	drawn := measure.ByAddress(blocked, addrset.IPv4, 1<<16, seed)
//	source, err := measure.Load(measure.UDP(drawn, measure.Target(addrset.IPv4, 9)))
//	defer source.Close()
//	result, err := measure.Compare(ctx, measure.Plan{Rounds: 15, Packets: 1 << 16}, []measure.Cell{
//		{Name: "bare", Lab: bare, Source: source, Survives: measure.All},
//		{Name: "rules", Lab: rules, Source: source, Survives: measure.None},
//	})
//	b.ReportMetric(result.Added("rules", "bare").Median, "ns/packet")
//
// (Outside of tests, testnet.Create makes the net.) Root is needed, and a kernel of
// 5.18 or later.
package measure
