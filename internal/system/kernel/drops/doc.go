// Package drops counts the packets that the kernel gives up, by the function that
// did it and the reason that it named, within chosen network namespaces, and copies
// some of them. hostwatch and the engine call it.
//
// A BPF program stands at the tracepoint kfree_skb, which the kernel passes with
// every packet that is dropped (one that was used up passes consume_skb). It counts
// in the kernel, so a flood that is dropped can be counted whole; what is copied out
// for a packet is bounded there by how many there were in a tenth of a second, in all
// and by place (Watcher.Sample). The namespace of a packet is that of the socket that it was
// meant for, of its device, or of the socket that it comes from, whichever is known.
//
// The program is written for the running kernel: where the fields of its structures
// are is asked of its type information (BTF), and so are the names of the reasons,
// which kernels before 5.17 do not give. Where there is none, WatchBlind counts without it.
package drops
