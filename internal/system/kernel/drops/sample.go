package drops

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"sluice/internal/base/sorting"
)

// Copy is a packet that was dropped.
type Copy struct {
	Place
	Time time.Time
	// Device is the index of the interface that it was at last, Arrived of the one that it
	// came in by; 0 where the packet does not say.
	Device, Arrived uint32
	EtherType       uint16 // ETH_P_IP, ETH_P_IPV6, in the host's order
	Bytes           uint32 // of it that were there, from the layer on that dropped it
	// Callers are return addresses: of the function that gave it up, and of those that called
	// it. Empty where the kernel does not say.
	Callers []uint64
	Packet  []byte // from the network layer on, 128 bytes at most
}

// What the kernel is told of the copies that it may make.
type sampling struct {
	Epoch  uint32 // no copies are made in epoch 0
	Copied uint32 // of this epoch
	Most   uint32 // of an epoch
	OfOne  uint32 // of an epoch, of one place on one processor
}

const (
	samplingSize = 16
	copiesBytes  = 1 << 18
	epochTime    = 100 * time.Millisecond
)

// The layout of a copy, in bytes.
const (
	copyTime     = 0
	copyLocation = 8
	copyNamesp   = 16
	copyReason   = 20
	copyDevice   = 24
	copyArrived  = 28
	copyBytes    = 32
	copyDepth    = 36 // bytes of the stack, or an error
	copyLength   = 40 // of the packet, that were copied
	copyProtocol = 44
	copyStack    = 48
	stackBytes   = 24 * 8
	copyPacket   = copyStack + stackBytes
	packetBytes  = 128
	copySize     = copyPacket + packetBytes
)

// sample copies a packet, unless the epoch has had its copies. R9 is the copy.
func (l layout) sample(m *held) asm.Instructions {
	field := func(from asm.Register, offset int16, size asm.Size, to int16) asm.Instructions {
		return asm.Instructions{asm.LoadMem(asm.R2, from, offset, size), asm.StoreMem(asm.R9, to, asm.R2, asm.Word)}
	}
	p := asm.Instructions{
		asm.LoadMapValue(asm.R3, m.sampling.FD(), 0),
		asm.LoadMem(asm.R1, asm.R3, 0, asm.Word),
		asm.JEq.Imm(asm.R1, 0, "end"),
		asm.LoadMem(asm.R2, asm.R8, epochAt, asm.Word),
		asm.JEq.Reg(asm.R1, asm.R2, "same"),
		asm.StoreMem(asm.R8, epochAt, asm.R1, asm.Word),
		asm.StoreImm(asm.R8, copiedAt, 0, asm.Word),
		asm.LoadMem(asm.R1, asm.R8, copiedAt, asm.Word).WithSymbol("same"),
		asm.LoadMem(asm.R2, asm.R3, 12, asm.Word),
		asm.JGE.Reg(asm.R1, asm.R2, "end"),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R8, copiedAt, asm.R1, asm.Word),
		// Processors at once may make a copy more each.
		asm.LoadMem(asm.R1, asm.R3, 4, asm.Word),
		asm.LoadMem(asm.R2, asm.R3, 8, asm.Word),
		asm.JGE.Reg(asm.R1, asm.R2, "end"),
		asm.Mov.Imm(asm.R1, 1),
		asm.AddAtomic.Mem(asm.R3, asm.R1, asm.Word, 4),
		asm.LoadMapPtr(asm.R1, m.copies.FD()),
		asm.Mov.Imm(asm.R2, copySize),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnRingbufReserve.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"), // nobody reads them
		asm.Mov.Reg(asm.R9, asm.R0),
		asm.FnKtimeGetNs.Call(),
		asm.StoreMem(asm.R9, copyTime, asm.R0, asm.DWord),
		asm.LoadMem(asm.R1, asm.R6, 8, asm.DWord),
		asm.StoreMem(asm.R9, copyLocation, asm.R1, asm.DWord),
		asm.StoreMem(asm.R9, copyNamesp, asm.R7, asm.Word),
		asm.LoadMem(asm.R1, asm.RFP, firstAt+reasonAt, asm.Word),
		asm.StoreMem(asm.R9, copyReason, asm.R1, asm.Word),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Reg(asm.R2, asm.R9),
		asm.Add.Imm(asm.R2, copyStack),
		asm.Mov.Imm(asm.R3, stackBytes),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnGetStack.Call(),
		asm.StoreMem(asm.R9, copyDepth, asm.R0, asm.Word),
		asm.LoadMem(asm.R8, asm.R6, 0, asm.DWord), // the packet
	}
	p = append(p, field(asm.R8, l.arrived, asm.Word, copyArrived)...)
	p = append(p, field(asm.R8, l.length, asm.Word, copyBytes)...)
	p = append(p, field(asm.R8, l.protocol, asm.Half, copyProtocol)...)
	p = append(p, asm.LoadMem(asm.R1, asm.R8, l.device, asm.DWord))
	p = append(p, field(asm.R1, l.index, asm.Word, copyDevice)...)
	return append(p,
		asm.StoreImm(asm.R9, copyLength, 0, asm.Word),
		asm.LoadMem(asm.R3, asm.R8, l.head, asm.DWord),
		asm.LoadMem(asm.R1, asm.R8, l.network, asm.Half),
		asm.LoadMem(asm.R2, asm.R8, l.tail, asm.Word),
		asm.JEq.Imm(asm.R1, 0, "submit"), // it has not come so far that it has one
		asm.Add.Reg(asm.R3, asm.R1),
		asm.Sub.Reg(asm.R2, asm.R1),
		asm.JSLE.Imm(asm.R2, 0, "submit"),
		asm.JLE.Imm(asm.R2, packetBytes, "short"),
		asm.Mov.Imm(asm.R2, packetBytes),
		asm.StoreMem(asm.R9, copyLength, asm.R2, asm.Word).WithSymbol("short"),
		asm.Mov.Reg(asm.R1, asm.R9),
		asm.Add.Imm(asm.R1, copyPacket),
		asm.FnProbeReadKernel.Call(),
		asm.Mov.Reg(asm.R1, asm.R9).WithSymbol("submit"),
		asm.Mov.Imm(asm.R2, 1), // BPF_RB_NO_WAKEUP: who reads comes by himself
		asm.FnRingbufSubmit.Call(),
	)
}

// Sample has so many packets a second copied, at most, until the context ends, and calls seen
// with what came in a tenth of a second; of one place it copies at most half of them on one
// processor, so that a flood hides nothing. Packets whose namespace cannot be told are left
// out. There is one caller at a time; it ends with the watcher, too. Where that is blind it does
// nothing.
func (w *Watcher) Sample(ctx context.Context, perSecond int, seen func([]Copy)) error {
	if w.blind {
		<-ctx.Done()
		return nil
	}
	w.copying.Lock()
	defer w.copying.Unlock()
	select {
	case <-w.closing:
		return nil
	default:
	}
	in, err := ringbuf.NewReader(w.copies)
	if err != nil {
		return fmt.Errorf("read dropped packets: %w", err)
	}
	defer in.Close()
	now := sampling{Most: uint32(max(1, perSecond/int(time.Second/epochTime)))} //nolint:gosec // a few
	now.OfOne = max(1, now.Most/2)
	defer func() { _ = w.sampling.Update(uint32(0), sampling{}, ebpf.UpdateAny) }()
	var rec ringbuf.Record
	for ctx.Err() == nil {
		now.Epoch++
		if err := w.sampling.Update(uint32(0), now, ebpf.UpdateAny); err != nil {
			return fmt.Errorf("read dropped packets: %w", err)
		}
		over := false
		select {
		case <-ctx.Done():
		case <-w.closing:
			over = true
		case <-time.After(epochTime):
		}
		var all []Copy
		in.SetDeadline(time.Now())
		for err = in.ReadInto(&rec); err == nil; err = in.ReadInto(&rec) {
			if c, is := copyOf(rec.RawSample, time.Now(), monotonic()); is && c.Namespace != 0 {
				all = append(all, c)
			}
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("read dropped packets: %w", err)
		}
		if len(all) > 0 {
			sorting.StableBy(all, func(a, b Copy) int { return a.Time.Compare(b.Time) })
			seen(all)
		}
		if over {
			break
		}
	}
	return nil
}

// monotonic is the clock of bpf_ktime_get_ns.
func monotonic() time.Duration {
	var at unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &at)
	return time.Duration(at.Nano())
}

// copyOf reads what the program wrote; ago is its clock at the moment now.
func copyOf(b []byte, now time.Time, clock time.Duration) (c Copy, is bool) {
	if len(b) < copySize {
		return c, false
	}
	word := func(at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }
	c = Copy{
		Place:  Place{word(copyNamesp), word(copyReason), binary.NativeEndian.Uint64(b[copyLocation:])},
		Time:   now.Add(time.Duration(binary.NativeEndian.Uint64(b[copyTime:])) - clock), //nolint:gosec // of this boot
		Device: word(copyDevice), Arrived: word(copyArrived), Bytes: word(copyBytes),
		EtherType: binary.BigEndian.Uint16(b[copyProtocol:]),
		Packet:    slices.Clone(b[copyPacket : copyPacket+min(word(copyLength), packetBytes)]),
	}
	for at := 0; at+8 <= int(int32(word(copyDepth))) && at < stackBytes; at += 8 { //nolint:gosec // an error is below 0
		c.Callers = append(c.Callers, binary.NativeEndian.Uint64(b[copyStack+at:]))
	}
	// What is before it is the way to the tracepoint.
	c.Callers = c.Callers[max(0, slices.Index(c.Callers, c.Location)):]
	return c, true
}
