package drops

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// layout is where the program finds what it needs: offsets in bytes.
type layout struct {
	device, socket      int16 // of struct sk_buff: dev, sk
	ofDevice, ofSocket  int16 // the pointer to the namespace, in a device and in a socket
	number              int16 // of a namespace
	hasReason, hasMeant bool  // the tracepoint says a reason, and the socket that the packet was meant for
	blind               bool  // nothing of a packet can be read

	// Of struct sk_buff and net_device, what a copy is made of.
	head, tail, network, protocol, length, arrived, index int16
}

// ask finds the layout in a kernel's types.
func ask(types *btf.Spec) (layout, error) {
	var (
		l    layout
		errs [12]error
	)
	l.device, errs[0] = Offset(types, "sk_buff", "dev")
	l.socket, errs[1] = Offset(types, "sk_buff", "sk")
	l.ofDevice, errs[2] = Offset(types, "net_device", "nd_net")
	l.ofSocket, errs[3] = Offset(types, "sock_common", "skc_net")
	l.number, errs[4] = Offset(types, "net", "ns", "inum")
	l.head, errs[5] = Offset(types, "sk_buff", "head")
	l.tail, errs[6] = Offset(types, "sk_buff", "tail")
	l.network, errs[7] = Offset(types, "sk_buff", "network_header")
	l.protocol, errs[8] = Offset(types, "sk_buff", "protocol")
	l.length, errs[9] = Offset(types, "sk_buff", "len")
	l.arrived, errs[10] = Offset(types, "sk_buff", "skb_iif")
	l.index, errs[11] = Offset(types, "net_device", "ifindex")
	if err := errors.Join(errs[:]...); err != nil {
		return l, err
	}
	var declared *btf.Typedef
	if err := types.TypeByName("btf_trace_kfree_skb", &declared); err != nil {
		return l, err
	}
	pointer, is := declared.Type.(*btf.Pointer)
	if !is {
		return l, fmt.Errorf("btf_trace_kfree_skb is a %T", declared.Type)
	}
	function, is := pointer.Target.(*btf.FuncProto)
	if !is {
		return l, fmt.Errorf("btf_trace_kfree_skb points to a %T", pointer.Target)
	}
	// The first parameter is the tracepoint's own, then packet and location.
	l.hasReason = len(function.Params) > 3
	if len(function.Params) > 4 {
		to, is := function.Params[4].Type.(*btf.Pointer)
		l.hasMeant = is && to.Target.TypeName() == "sock"
	}
	return l, nil
}

// Offset is where a member of a structure begins, through members without a name.
func Offset(types *btf.Spec, structure string, path ...string) (int16, error) {
	var at *btf.Struct
	if err := types.TypeByName(structure, &at); err != nil {
		return 0, err
	}
	var (
		members = at.Members
		sum     btf.Bits
	)
	for _, name := range path {
		found, m := find(members, name)
		if m == nil {
			return 0, fmt.Errorf("struct %s has no member %s", structure, name)
		}
		sum += found
		if inner, is := btf.As[*btf.Struct](m); is {
			members = inner.Members
		}
	}
	if sum.Bytes() > 1<<14 {
		return 0, fmt.Errorf("struct %s: %v is too far in", structure, path)
	}
	return int16(sum.Bytes()), nil
}

func find(members []btf.Member, name string) (btf.Bits, btf.Type) {
	for _, m := range members {
		if m.Name == name {
			return m.Offset, m.Type
		}
		if m.Name != "" {
			continue
		}
		var inner []btf.Member
		switch t := m.Type.(type) {
		case *btf.Struct:
			inner = t.Members
		case *btf.Union:
			inner = t.Members
		}
		if at, found := find(inner, name); found != nil {
			return m.Offset + at, found
		}
	}
	return 0, nil
}

// count is what a place has had on one processor, as the kernel holds it: in its slot of the
// map places or, where another place has that, in the map counts.
type count struct {
	Packets uint64
	// Epoch is the last in which a packet was copied, and Copied how many were.
	Epoch, Copied     uint32
	Namespace, Reason uint32
	Location          uint64
}

// Offsets in a count, and of the program's stack.
const (
	countSize  = 32
	epochAt    = 8
	copiedAt   = 12
	namespAt   = 16
	reasonAt   = 20
	locationAt = 24

	firstAt = -countSize         // a new count
	keyAt   = firstAt + namespAt // its last members are the key of the map counts
	keySize = countSize - namespAt
	slotAt  = firstAt - 8

	slots = 64
)

// program counts a packet: in a slot that its place has for itself, which takes a few
// nanoseconds, or in a hash. Registers: the tracepoint's arguments in R6, the namespace in R7,
// the count in R8, scratch in R0 to R5.
func (l layout) program(namespaces []uint32, m *held) asm.Instructions {
	p := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1), asm.Mov.Imm(asm.R7, 0)}
	if !l.blind {
		p = append(p, l.namespace(namespaces)...)
	}
	p = append(p,
		asm.Mov.Imm(asm.R1, 1).WithSymbol("count"),
		asm.StoreMem(asm.RFP, firstAt, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.RFP, firstAt+epochAt, asm.R1, asm.DWord),
		asm.StoreMem(asm.RFP, firstAt+namespAt, asm.R7, asm.Word),
	)
	if l.hasReason {
		p = append(p, asm.LoadMem(asm.R1, asm.R6, 16, asm.DWord))
	} else {
		p = append(p, asm.Mov.Imm(asm.R1, 0))
	}
	p = append(p,
		asm.StoreMem(asm.RFP, firstAt+reasonAt, asm.R1, asm.Word),
		asm.LoadMem(asm.R2, asm.R6, 8, asm.DWord),
		asm.StoreMem(asm.RFP, firstAt+locationAt, asm.R2, asm.DWord),
		// The slot.
		asm.Xor.Reg(asm.R1, asm.R2),
		asm.RSh.Imm(asm.R2, 6),
		asm.Xor.Reg(asm.R1, asm.R2),
		asm.Xor.Reg(asm.R1, asm.R7),
		asm.And.Imm(asm.R1, slots-1),
		asm.StoreMem(asm.RFP, slotAt, asm.R1, asm.Word),
		asm.LoadMapPtr(asm.R1, m.places.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, slotAt),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.Mov.Reg(asm.R8, asm.R0),
		// Is it this place's, or nobody's?
		asm.LoadMem(asm.R1, asm.RFP, firstAt+locationAt, asm.DWord),
		asm.LoadMem(asm.R3, asm.RFP, firstAt+namespAt, asm.DWord), // with the reason
		asm.LoadMem(asm.R2, asm.R8, locationAt, asm.DWord),
		asm.JEq.Imm(asm.R2, 0, "take"),
		asm.JNE.Reg(asm.R2, asm.R1, "hash"),
		asm.LoadMem(asm.R2, asm.R8, namespAt, asm.DWord),
		asm.JNE.Reg(asm.R2, asm.R3, "hash"),
		asm.Ja.Label("counted"),
		asm.StoreMem(asm.R8, namespAt, asm.R3, asm.DWord).WithSymbol("take"),
		asm.StoreMem(asm.R8, locationAt, asm.R1, asm.DWord),
		asm.Ja.Label("counted"),
		asm.LoadMapPtr(asm.R1, m.counts.FD()).WithSymbol("hash"),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, keyAt),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "first"),
		asm.Mov.Reg(asm.R8, asm.R0),
		// The processor's own, and no two runs of a program at once on one.
		asm.LoadMem(asm.R1, asm.R8, 0, asm.DWord).WithSymbol("counted"),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R8, 0, asm.R1, asm.DWord),
	)
	if !l.blind {
		p = append(p, l.sample(m)...)
	}
	return append(p,
		asm.Ja.Label("end"),
		asm.LoadMapPtr(asm.R1, m.counts.FD()).WithSymbol("first"),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, keyAt),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, firstAt),
		asm.Mov.Imm(asm.R4, 0), // BPF_ANY: another processor may have been first
		asm.FnMapUpdateElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.LoadMapValue(asm.R1, m.lost.FD(), 0),
		asm.Mov.Imm(asm.R2, 1),
		asm.AddAtomic.Mem(asm.R1, asm.R2, asm.DWord, 0),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return(),
	)
}

// namespace finds that of the packet, and goes on with those alone that are watched.
func (l layout) namespace(namespaces []uint32) (p asm.Instructions) {
	if l.hasMeant {
		p = append(p,
			asm.LoadMem(asm.R1, asm.R6, 24, asm.DWord),
			asm.JEq.Imm(asm.R1, 0, "device"),
			asm.LoadMem(asm.R1, asm.R1, l.ofSocket, asm.DWord),
			asm.LoadMem(asm.R7, asm.R1, l.number, asm.Word),
			asm.JNE.Imm(asm.R7, 0, "known"),
		)
	}
	// The kernel reads 0 where a pointer leads nowhere: a packet in the queue of a
	// socket has no device any more, and other data in its place.
	p = append(p,
		asm.LoadMem(asm.R1, asm.R6, 0, asm.DWord).WithSymbol("device"),
		asm.LoadMem(asm.R1, asm.R1, l.device, asm.DWord),
		asm.LoadMem(asm.R1, asm.R1, l.ofDevice, asm.DWord),
		asm.LoadMem(asm.R7, asm.R1, l.number, asm.Word),
		asm.JNE.Imm(asm.R7, 0, "known"),
		asm.LoadMem(asm.R1, asm.R6, 0, asm.DWord),
		asm.LoadMem(asm.R1, asm.R1, l.socket, asm.DWord),
		asm.JEq.Imm(asm.R1, 0, "known"), // R7 is 0: the namespace cannot be told
		asm.LoadMem(asm.R1, asm.R1, l.ofSocket, asm.DWord),
		asm.LoadMem(asm.R7, asm.R1, l.number, asm.Word),
	)
	known := len(p)
	for _, number := range append([]uint32{0}, namespaces...) {
		p = append(p, asm.JEq.Imm32(asm.R7, int32(number), "count")) //nolint:gosec // the same 32 bits
	}
	p[known] = p[known].WithSymbol("known")
	return append(p, asm.Ja.Label("end"))
}
