// Package kernels runs commands on other kernels than the machine's own, in an
// emulated machine: no KVM is needed and nothing is installed. The commands
// "sluice-lab story --kernel" and "make kernels" call it (internal/lab/kernels/matrix), the
// latter for the kernel tests, for what a packet costs in instructions, and for
// what each kernel is able to.
//
// The words:
//
//   - A [Kernel] is one of Debian's packages linux-image-*-cloud-amd64, fetched and
//     checked by apt (signature of the suite, hash of the package), unpacked into a
//     cache, found again by its version.
//   - The guest is the emulated machine. Its files are a cpio archive in memory
//     (initramfs): the kernel's modules for networks, busybox, and the programs and
//     files of this machine that [Options] name, with the libraries they load.
//   - A counted run has one processor and a clock that goes on by one nanosecond with
//     every instruction and jumps over idle time (-icount), so that a time in the
//     guest is a number of instructions and the same from run to run; programs in
//     the guest know it by SLUICE_COUNTED=1.
//
// Known of QEMU 7.2 (Debian 12): an instruction SETcc that writes to memory forgets the
// flags when the page has to be faulted in first, and writes a wrong value. A program in
// the guest that stores the result of a comparison into fresh memory may see it: that
// was a proof of TCP flags that failed once in two runs, on emulated kernels alone.
//
// One picture of a run:
//
//	Options ──▶ cpio archive ─┐
//	                          ├─▶ qemu ─ first serial port ──▶ what the kernel says (kept for errors)
//	Find ──▶ vmlinuz ─────────┘        ─ second serial port ─▶ Options.Out
//	                                   ─ disk ─▶ tar archive: exit status, Options.Results
package kernels
