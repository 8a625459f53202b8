package measure

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Source is a traffic that can be sent: by live frames, the program in the kernel
// that writes it and its table; by a ring, its packets. Any lab that has the device
// can take it, one at a time.
type Source struct {
	way     Way
	flows   int
	in      string // device, "" is a lab's first
	frame   []byte // of the first flow
	program *ebpf.Program
	entries *ebpf.Map
	state   *ebpf.Map

	frames [][]byte // for a ring
	next   int
	sent   uint64
}

// The state of a source: the flow that comes next, and the frames written.
const (
	stateNext  = 0
	stateSent  = 8
	stateBytes = 16
)

// Load makes a source for the way that this kernel has. The caller closes it.
func Load(t Traffic) (*Source, error) { return LoadFor(t, Available()) }

// LoadFor makes a source for one way.
func LoadFor(t Traffic, way Way) (*Source, error) {
	l, err := layOut(t)
	if err != nil {
		return nil, err
	}
	s := &Source{way: way, flows: len(t.Flows), in: t.In, frame: l.frame()}
	if way == ByPacketRing {
		s.frames = l.frames(t.Flows)
		return s, nil
	}
	if err := s.load(l, t.Flows); err != nil {
		s.Close()
		return nil, fmt.Errorf("load traffic: %w", err)
	}
	return s, nil
}

func (s *Source) load(l layout, flows []Flow) error {
	table := l.table(flows)
	if len(table) == 0 {
		table = make([]byte, 8) // one flow: nothing is written
	}
	var err error
	s.entries, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "flows", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(table)), MaxEntries: 1,
	})
	if err != nil {
		return err
	}
	if err := s.entries.Put(uint32(0), table); err != nil {
		return err
	}
	s.state, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "state", Type: ebpf.Array, KeySize: 4, ValueSize: stateBytes, MaxEntries: 1,
	})
	if err != nil {
		return err
	}
	s.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "next_flow", Type: ebpf.XDP, License: "Apache-2.0",
		Instructions: l.program(len(flows), s.entries.FD(), s.state.FD()),
	})
	return err
}

// Flows is how many flows the traffic has.
func (s *Source) Flows() int { return s.flows }

// Close frees what the source holds in the kernel.
func (s *Source) Close() {
	if s.program != nil {
		_ = s.program.Close()
	}
	if s.entries != nil {
		_ = s.entries.Close()
	}
	if s.state != nil {
		_ = s.state.Close()
	}
}

// position is the flow that comes next and the number of frames written so far.
func (s *Source) position() (next int, sent uint64, err error) {
	if s.way == ByPacketRing {
		return s.next, s.sent, nil
	}
	var value []byte
	if value, err = s.state.LookupBytes(uint32(0)); err != nil {
		return 0, 0, err
	}
	if len(value) != stateBytes {
		return 0, 0, errors.New("state of a traffic: unexpected size")
	}
	next = int(binary.NativeEndian.Uint64(value[stateNext:])) % s.flows
	return next, binary.NativeEndian.Uint64(value[stateSent:]), nil
}

// The program's registers: frame in R7, state in R6, entry in R8, sums of the
// header checksum in R4 and of the other in R5, scratch in R0 to R3.
func (l layout) program(flows, entries, state int) asm.Instructions {
	const (
		pass = 2 // XDP_PASS
		drop = 1 // XDP_DROP
	)
	frame := l.frame()
	p := asm.Instructions{
		asm.LoadMem(asm.R7, asm.R1, 0, asm.Word), // xdp_md.data
		asm.LoadMem(asm.R2, asm.R1, 4, asm.Word), // xdp_md.data_end
		asm.Mov.Reg(asm.R3, asm.R7),
		asm.Add.Imm(asm.R3, int32(len(frame))),
		asm.JGT.Reg(asm.R3, asm.R2, "short"),

		asm.LoadMapValue(asm.R6, state, 0),
		asm.LoadMem(asm.R1, asm.R6, stateSent, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R6, stateSent, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, asm.R6, stateNext, asm.DWord),
		asm.JLT.Imm(asm.R1, int32(flows), "inside"),
		asm.Mov.Imm(asm.R1, 0),
		asm.Mov.Reg(asm.R2, asm.R1).WithSymbol("inside"),
		asm.Add.Imm(asm.R2, 1),
		asm.StoreMem(asm.R6, stateNext, asm.R2, asm.DWord),
	}
	// The stack works on the frames themselves, and they come back as it left them.
	for at := 0; at < l.headers; {
		if l.headers-at >= 4 {
			p = append(p, asm.StoreImm(asm.R7, int16(at), int64(int32(binary.NativeEndian.Uint32(frame[at:]))), asm.Word))
			at += 4
			continue
		}
		p = append(p, asm.StoreImm(asm.R7, int16(at), int64(binary.NativeEndian.Uint16(frame[at:])), asm.Half))
		at += 2
	}
	if len(l.fields) > 0 {
		p = append(p,
			asm.Mul.Imm(asm.R1, int32(l.stride)),
			asm.LoadMapValue(asm.R8, entries, 0),
			asm.Add.Reg(asm.R8, asm.R1),
			asm.LoadImm(asm.R4, int64(l.l3), asm.DWord),
			asm.LoadImm(asm.R5, int64(l.l4), asm.DWord),
		)
		at := int16(0)
		for _, f := range l.fields {
			for done := 0; done < f.size; {
				size, bytes := asm.Word, 4
				if f.size == 2 {
					size, bytes = asm.Half, 2
				}
				p = append(p,
					asm.LoadMem(asm.R0, asm.R8, at, size),
					asm.StoreMem(asm.R7, int16(14+f.at+done), asm.R0, size),
					asm.Add.Reg(asm.R5, asm.R0),
				)
				if !f.ports {
					p = append(p, asm.Add.Reg(asm.R4, asm.R0))
				}
				at += int16(bytes)
				done += bytes
			}
		}
		if l.ipv4 {
			p = append(p, fold(asm.R4)...)
			p = append(p, asm.StoreMem(asm.R7, int16(14+l.l3At), asm.R4, asm.Half))
		}
		p = append(p, fold(asm.R5)...)
		if l.udp { // RFC 768: zero would mean "no checksum"
			p = append(p,
				asm.JNE.Imm(asm.R5, 0, "checksum"),
				asm.Mov.Imm(asm.R5, 0xffff),
				asm.StoreMem(asm.R7, int16(14+l.l4At), asm.R5, asm.Half).WithSymbol("checksum"))
		} else {
			p = append(p, asm.StoreMem(asm.R7, int16(14+l.l4At), asm.R5, asm.Half))
		}
	}
	return append(p,
		asm.Mov.Imm(asm.R0, pass),
		asm.Return(),
		asm.Mov.Imm(asm.R0, drop).WithSymbol("short"),
		asm.Return(),
	)
}

// fold makes the Internet checksum of a sum of 32-bit words.
func fold(r asm.Register) asm.Instructions {
	p := asm.Instructions{
		asm.Mov.Reg(asm.R0, r),
		asm.RSh.Imm(asm.R0, 32),
		asm.Mov.Reg32(r, r), // the lower half, the upper one cleared
		asm.Add.Reg(r, asm.R0),
	}
	for range 3 {
		p = append(p,
			asm.Mov.Reg(asm.R0, r),
			asm.RSh.Imm(asm.R0, 16),
			asm.And.Imm(r, 0xffff),
			asm.Add.Reg(r, asm.R0))
	}
	return append(p, asm.Xor.Imm(r, 0xffff))
}
