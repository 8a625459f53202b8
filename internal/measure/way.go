package measure

// Way is how packets are put into a lab.
type Way string

// Ways.
const (
	// LiveFrames hands frames to the stack by a test run of an XDP program (Linux
	// 5.18): what a packet costs, and hardly anything else.
	ByLiveFrames Way = "XDP live frames"
	// PacketRing sends from the far end of the device by a ring of AF_PACKET: the
	// sender's work is part of the cost, in every lab alike.
	ByPacketRing Way = "AF_PACKET ring"
)
