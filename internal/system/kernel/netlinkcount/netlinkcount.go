// Package netlinkcount counts the bytes that go over the netlink sockets of one
// network namespace, whoever owns them. Package applybench calls it, since a
// monitor device (nlmon) is not there on every kernel.
//
// It hangs two BPF programs on the kernel's tracepoints sock_send_length and
// sock_recv_length (include/trace/events/sock.h, Linux 6.3 and later): each tells
// the socket and how many bytes a call has sent or received. What a call only
// looked at (MSG_PEEK) is not counted: another one will receive it.
package netlinkcount

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"sluice/internal/system/kernel/drops"
)

// Bytes is what went over netlink.
type Bytes struct {
	Sent     uint64 // to the kernel
	Received uint64 // from it
}

// Counter counts until it is closed.
type Counter struct {
	counts *ebpf.Map
	links  []link.Link
}

// The tracepoints, in the order of the keys of the map.
var tracepoints = [...]string{"sock_send_length", "sock_recv_length"}

// Start counts the netlink sockets of a network namespace, given as a path that
// stands for it, such as /run/netns/NAME. The error says so where the kernel lacks
// the tracepoints or the rights are missing.
func Start(namespace string) (*Counter, error) {
	var st unix.Stat_t
	if err := unix.Stat(namespace, &st); err != nil {
		return nil, fmt.Errorf("namespace %s: %w", namespace, err)
	}
	at, err := offsets()
	if err != nil {
		return nil, fmt.Errorf("count bytes over netlink: %w", err)
	}
	c := &Counter{}
	c.counts, err = ebpf.NewMap(&ebpf.MapSpec{Name: "netlink_bytes", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: uint32(len(tracepoints))})
	if err != nil {
		return nil, fmt.Errorf("count bytes over netlink: %w", err)
	}
	for key, name := range tracepoints {
		if err := c.attach(name, at.program(int32(key), uint32(st.Ino), c.counts)); err != nil {
			return nil, errors.Join(fmt.Errorf("count bytes over netlink by %s: %w", name, err), c.Close())
		}
	}
	return c, nil
}

func (c *Counter) attach(name string, what asm.Instructions) error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: name, License: "GPL", Instructions: what,
	})
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }() // the link holds it
	l, err := link.AttachTracing(link.TracingOptions{Program: p})
	if err != nil {
		return err
	}
	c.links = append(c.links, l)
	return nil
}

// Read is what has gone over netlink since Start.
func (c *Counter) Read() (b Bytes, err error) {
	return b, errors.Join(c.counts.Lookup(uint32(0), &b.Sent), c.counts.Lookup(uint32(1), &b.Received))
}

// Close stops counting.
func (c *Counter) Close() error {
	var errs []error
	for _, l := range c.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, c.counts.Close())...)
}

// at is where a socket says what it is: offsets in bytes.
type at struct {
	family, net, inode int16
}

// offsets asks the kernel's type information.
func offsets() (at, error) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return at{}, err
	}
	var (
		a    at
		errs [3]error
	)
	a.family, errs[0] = drops.Offset(spec, "sock_common", "skc_family")
	a.net, errs[1] = drops.Offset(spec, "sock_common", "skc_net", "net")
	a.inode, errs[2] = drops.Offset(spec, "net", "ns", "inum")
	return a, errors.Join(errs[:]...)
}

// program adds what a call has moved to the element of the map, where the socket
// is netlink's and of the namespace. R1 points at the tracepoint's arguments:
// the socket, what the call returned, its flags.
func (a at) program(key int32, namespace uint32, counts *ebpf.Map) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, 0, asm.DWord), // struct sock *
		asm.LoadMem(asm.R7, asm.R1, 8, asm.DWord), // int ret
		asm.LoadMem(asm.R8, asm.R1, 16, asm.DWord),
		asm.LSh.Imm(asm.R7, 32),
		asm.ArSh.Imm(asm.R7, 32),
		asm.JSLE.Imm(asm.R7, 0, "out"),
		asm.And.Imm(asm.R8, unix.MSG_PEEK),
		asm.JNE.Imm(asm.R8, 0, "out"),
		// __sk_common is the first member of struct sock.
		asm.LoadMem(asm.R2, asm.R6, a.family, asm.Half),
		asm.JNE.Imm(asm.R2, unix.AF_NETLINK, "out"),
		asm.LoadMem(asm.R2, asm.R6, a.net, asm.DWord),
		asm.LoadMem(asm.R2, asm.R2, a.inode, asm.Word),
		asm.LoadImm(asm.R3, int64(namespace), asm.DWord),
		asm.JNE.Reg(asm.R2, asm.R3, "out"),
		asm.StoreImm(asm.RFP, -4, int64(key), asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, counts.FD()),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.StoreXAdd(asm.R0, asm.R7, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	}
}
