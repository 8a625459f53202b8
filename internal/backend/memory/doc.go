// Package memory is a backend that runs nothing: what another one has in the kernel is
// a model in the memory of the process. It shows that package backend can be kept by
// something that knows no nftables, and tests of package apply change to it and back.
// It carries verdicts, counters and untracked packets, and refuses all other actions. Tests
// alone import it.
package memory
