package measure

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ring is a packet socket on the far end of a device with a ring of frames that it
// shares with the kernel (packet_mmap: Documentation/networking/packet_mmap.rst,
// TPACKET_V2).
type ring struct {
	fd     int
	memory []byte
	at     int // the slot that comes next
}

const (
	slotSize = 2048
	slots    = 4 * batch
	// The status word of a slot is its first; its length the second. A frame of the
	// sender begins behind the header (TPACKET2_HDRLEN less the address).
	slotLength = 4
	slotFrame  = 32

	statusAvailable, statusSend = 0, 1 // TP_STATUS_AVAILABLE, TP_STATUS_SEND_REQUEST
)

func (l *Lab) openRing(p *port) (*ring, error) {
	far, err := l.far.Links().LinkByName(p.Peer.Device)
	if err != nil {
		return nil, err
	}
	r := &ring{}
	err = l.far.Do(func() (err error) {
		r.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if err := unix.SetsockoptInt(r.fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2); err != nil {
			return err
		}
		// The queueing discipline of the far end is nothing that is measured.
		_ = unix.SetsockoptInt(r.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
		request := unix.TpacketReq{Block_size: slotSize * slots, Block_nr: 1, Frame_size: slotSize, Frame_nr: slots}
		if err := unix.SetsockoptTpacketReq(r.fd, unix.SOL_PACKET, unix.PACKET_TX_RING, &request); err != nil {
			return err
		}
		r.memory, err = unix.Mmap(r.fd, 0, slotSize*slots, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		return unix.Bind(r.fd, &unix.SockaddrLinklayer{Ifindex: far.Attrs().Index})
	})
	if err != nil {
		return nil, fmt.Errorf("make a packet ring: %w", err)
	}
	return r, nil
}

func (r *ring) close() error {
	_ = unix.Munmap(r.memory)
	return unix.Close(r.fd)
}

// status is the word of a slot by which it goes to the kernel and comes back.
func (r *ring) status(slot int) *uint32 {
	return (*uint32)(unsafe.Pointer(&r.memory[slot*slotSize])) //nolint:gosec // the kernel's layout
}

// put fills the next slot.
func (r *ring) put(frame []byte) {
	for atomic.LoadUint32(r.status(r.at)) != statusAvailable {
		runtime.Gosched()
	}
	slot := r.memory[r.at*slotSize : (r.at+1)*slotSize]
	binary.NativeEndian.PutUint32(slot[slotLength:], uint32(len(frame)))
	copy(slot[slotFrame:], frame)
	atomic.StoreUint32(r.status(r.at), statusSend)
	r.at = (r.at + 1) % slots
}

// flush has the kernel send what was put, on this thread, and returns when all of it
// has been.
func (r *ring) flush() error {
	_, _, errno := unix.Syscall6(unix.SYS_SENDTO, uintptr(r.fd), 0, 0, 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("send by a packet ring: %w", errno)
	}
	return nil
}

// byRing sends by the far end. The time is the thread's: the kernel's work on a
// packet is done where it was sent, as soon as the sending ends. The thread is not
// put before others, since the kernel may leave some of the work to a thread of its
// own.
func (l *Lab) byRing(p *port, s *Source, packets int) (took time.Duration, err error) {
	if p.ring == nil {
		if p.ring, err = l.openRing(p); err != nil {
			return 0, err
		}
		l.net.OnClose(p.ring.close)
	}
	err = l.far.Do(func() error {
		return pinned(false, func() error {
			start, err := threadTime()
			if err != nil {
				return err
			}
			for done := 0; done < packets; done += batch {
				for range batch {
					p.ring.put(s.frames[s.next])
					s.next = (s.next + 1) % s.flows
				}
				if err := p.ring.flush(); err != nil {
					return err
				}
				s.sent += batch
			}
			end, err := threadTime()
			took = end - start
			return err
		})
	})
	return took, err
}
