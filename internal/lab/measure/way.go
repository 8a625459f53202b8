package measure

import (
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Way is how packets are put into a lab.
type Way string

// Ways.
const (
	// ByLiveFrames hands frames to the stack by a test run of an XDP program (Linux
	// 5.18): what a packet costs, and hardly anything else.
	ByLiveFrames Way = "XDP live frames"
	// ByPacketRing sends from the far end of the device by a ring of AF_PACKET: the
	// sender's work is part of the cost, in every lab alike.
	ByPacketRing Way = "AF_PACKET ring"
)

// Available is the better way that this kernel has.
var Available = sync.OnceValue(func() Way {
	if askLiveFrames() == nil {
		return ByLiveFrames
	}
	return ByPacketRing
})

// askLiveFrames runs a program that drops one frame.
func askLiveFrames() error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "ask", Type: ebpf.XDP, License: "Apache-2.0",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()},
	})
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }()
	_, err = p.Run(&ebpf.RunOptions{Data: make([]byte, 60), Repeat: 1, Flags: liveFrames})
	return err
}
