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
}

// ask finds the layout in a kernel's types.
func ask(types *btf.Spec) (layout, error) {
	var (
		l    layout
		errs [5]error
	)
	l.device, errs[0] = Offset(types, "sk_buff", "dev")
	l.socket, errs[1] = Offset(types, "sk_buff", "sk")
	l.ofDevice, errs[2] = Offset(types, "net_device", "nd_net")
	l.ofSocket, errs[3] = Offset(types, "sock_common", "skc_net")
	l.number, errs[4] = Offset(types, "net", "ns", "inum")
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

// The key of a count, and what of the stack the program uses.
const (
	keySize  = 16 // namespace, reason, location
	keyAt    = -keySize
	firstAt  = keyAt - 8 // the value of a new count
	helperOK = 0
)

// program counts a packet in counts, or in lost where there is no room. Registers:
// the tracepoint's arguments in R6, the namespace in R7, scratch in R0 to R5.
func (l layout) program(namespaces []uint32, counts, lost int) asm.Instructions {
	p := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
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
	p = append(p,
		asm.Ja.Label("end"),
		asm.StoreMem(asm.RFP, keyAt, asm.R7, asm.Word).WithSymbol("count"),
	)
	if l.hasReason {
		p = append(p, asm.LoadMem(asm.R1, asm.R6, 16, asm.DWord))
	} else {
		p = append(p, asm.Mov.Imm(asm.R1, 0))
	}
	return append(p,
		asm.StoreMem(asm.RFP, keyAt+4, asm.R1, asm.Word),
		asm.LoadMem(asm.R1, asm.R6, 8, asm.DWord),
		asm.StoreMem(asm.RFP, keyAt+8, asm.R1, asm.DWord),
		asm.LoadMapPtr(asm.R1, counts),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, keyAt),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "first"),
		// The processor's own, and no two runs of a program at once on one.
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.Ja.Label("end"),
		asm.Mov.Imm(asm.R1, 1).WithSymbol("first"),
		asm.StoreMem(asm.RFP, firstAt, asm.R1, asm.DWord),
		asm.LoadMapPtr(asm.R1, counts),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, keyAt),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, firstAt),
		asm.Mov.Imm(asm.R4, 0), // BPF_ANY: another processor may have been first
		asm.FnMapUpdateElem.Call(),
		asm.JEq.Imm(asm.R0, helperOK, "end"),
		asm.LoadMapValue(asm.R1, lost, 0),
		asm.Mov.Imm(asm.R2, 1),
		asm.AddAtomic.Mem(asm.R1, asm.R2, asm.DWord, 0),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return(),
	)
}
