package kerneltest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
)

// witness tells what the input hook of a host let through, by the kernel's packet
// log (nfnetlink_log). Its chain is the last of all, behind the point where
// connection tracking keeps a new flow, and drops what it has told of: no socket
// and no reset of the host changes the state of a flow.
type witness struct {
	fd     int
	buffer []byte
}

const (
	witnessGroup = 77
	// The chain has the priority of the kernel's own last hook. Of two hooks of one
	// priority the later one to come is asked first (nf_hook_entries_grow), and
	// connection tracking's comes with the first rule that asks for a state. So it
	// comes behind this chain and is asked before it; TestMeaningWitness holds the
	// kernel to that. The rule in the chain beside keeps connection tracking, and
	// with it the reassembly of fragments, whatever the policy asks for.
	witnessTable = `
table inet witness {
	chain last { type filter hook input priority 2147483647; log group 77 snaplen 256 queue-threshold 1 drop; }
	chain keeps-tracking { ct state new accept; }
}
`
)

// packetLog is the feature that the kernel reports packets over netlink.
var packetLog = testnet.Probed("nfnetlink_log", func() error {
	n, err := testnet.Create("witness")
	if err != nil {
		return err
	}
	defer func() { _ = n.Close() }()
	return n.Try(func() {
		n.Unnamed("host").Nft(witnessTable)
	})
})

func newWitness(t *testing.T, s *testnet.Namespace) *witness {
	t.Helper()
	w := &witness{buffer: make([]byte, 65536)}
	err := s.Do(func() (err error) {
		if w.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER); err != nil {
			return err
		}
		if err := unix.Bind(w.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(w.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
			return err
		}
		// struct nfulnl_msg_config_cmd and nfulnl_msg_config_mode of
		// linux/netfilter/nfnetlink_log.h: bind to the group, copy packets.
		if err := w.configure(1, []byte{1}); err != nil {
			return err
		}
		return w.configure(2, []byte{0, 0, 1, 0, 2, 0})
	})
	if err != nil {
		t.Fatalf("listen to the packet log: %v", err)
	}
	t.Cleanup(func() { _ = unix.Close(w.fd) })
	s.Nft(witnessTable)
	return w
}

const (
	logSubsystem = 4 // NFNL_SUBSYS_ULOG
	logInDevice  = 4 // NFULA_IFINDEX_INDEV
	logPayload   = 9 // NFULA_PAYLOAD
)

// configure sends one attribute of NFULNL_MSG_CONFIG and waits for the answer.
func (w *witness) configure(attribute uint16, value []byte) error {
	body := []byte{unix.AF_UNSPEC, 0, 0, witnessGroup}
	body = binary.NativeEndian.AppendUint16(body, uint16(4+len(value)))
	body = binary.NativeEndian.AppendUint16(body, attribute)
	body = append(body, value...)
	for len(body)%4 != 0 {
		body = append(body, 0)
	}
	m := binary.NativeEndian.AppendUint32(nil, uint32(16+len(body)))
	m = binary.NativeEndian.AppendUint16(m, logSubsystem<<8|1)
	m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	m = append(m, make([]byte, 8)...)
	if err := unix.Sendto(w.fd, append(m, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	n, _, err := unix.Recvfrom(w.fd, w.buffer, 0)
	if err != nil {
		return err
	}
	if n < 20 {
		return errors.New("short answer of the packet log")
	}
	if code := int32(binary.NativeEndian.Uint32(w.buffer[16:])); code != 0 {
		return fmt.Errorf("packet log: %w", unix.Errno(-code))
	}
	return nil
}

// read gives every packet that waits, with the device that it came by.
func (w *witness) read(take func(packet []byte, device uint32)) error {
	for {
		n, _, err := unix.Recvfrom(w.fd, w.buffer, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the packet log: %w", err) // ENOBUFS: something was lost
		}
		for b := w.buffer[:n]; len(b) >= 20; {
			size := int(binary.NativeEndian.Uint32(b))
			if size < 20 || size > len(b) {
				break
			}
			if binary.NativeEndian.Uint16(b[4:]) == logSubsystem<<8 {
				loggedPacket(b[20:size], take)
			}
			b = b[min((size+3)&^3, len(b)):]
		}
	}
}

func loggedPacket(b []byte, take func([]byte, uint32)) {
	var device uint32
	var payload []byte
	for len(b) >= 4 {
		size := int(binary.NativeEndian.Uint16(b))
		if size < 4 || size > len(b) {
			break
		}
		switch binary.NativeEndian.Uint16(b[2:]) & 0x3fff {
		case logInDevice:
			device = binary.BigEndian.Uint32(b[4:])
		case logPayload:
			payload = b[4:size]
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	if payload != nil {
		take(payload, device)
	}
}
