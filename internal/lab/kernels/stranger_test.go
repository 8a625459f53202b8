package kernels

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// stranger is the machine at the other end of a guest's network device: it answers
// who asks for its hardware address, and from the first moment on asks for
// connections to ports of the guest, in both families, counting who answers.
type stranger struct {
	socket string
	mac    net.HardwareAddr // its own
	to     net.HardwareAddr // the guest's
	ends   [][2]netip.Addr  // its own address and the guest's, of each family
	ports  []uint16

	mutex    sync.Mutex
	asked    int
	next     uint16         // the port that it asks from
	since    uint16         // answers to earlier ones do not count
	answered map[uint16]int // by port: what came from it, whatever it says
}

// newStranger listens for the guest's network device number i.
func newStranger(t *testing.T, i int, ends [][2]netip.Addr, ports ...uint16) *stranger {
	t.Helper()
	s := &stranger{
		socket: filepath.Join(t.TempDir(), fmt.Sprint("net", i)), mac: net.HardwareAddr{0x52, 0x54, 0, 0, 1, byte(i)}, to: MAC(i),
		ends: ends, ports: ports, answered: map[uint16]int{},
	}
	listener, err := net.Listen("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		conn, err := listener.Accept()
		if err != nil {
			return // the test is over
		}
		frames := make(chan []byte, 64)
		running.Go(func() { s.listen(conn, frames) })
		s.send(conn, frames)
		_ = conn.Close()
	})
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	return s
}

// send asks, and sends what listen wants sent, until the guest is gone.
func (s *stranger) send(conn net.Conn, frames chan []byte) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var out [][]byte
		select {
		case frame, more := <-frames:
			if !more {
				return
			}
			out = append(out, frame)
		case <-tick.C:
			from := s.from()
			for _, end := range s.ends {
				for _, port := range s.ports {
					out = append(out, s.syn(end, from, port))
				}
			}
			s.mutex.Lock()
			s.asked += len(out)
			s.mutex.Unlock()
		}
		for _, frame := range out {
			if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)); err != nil {
				for range frames { // until listen has seen the end as well
				}
				return
			}
		}
	}
}

// from is the port to ask from next: each is used once, some twenty minutes long.
func (s *stranger) from() uint16 {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.next = max(s.next+1, 1024)
	return s.next
}

// forget has answers count to what is asked from now on alone.
func (s *stranger) forget() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.since, s.answered = s.next+1, map[uint16]int{}
}

func (s *stranger) listen(conn net.Conn, frames chan<- []byte) {
	defer close(frames)
	for {
		var size [4]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(conn, frame); err != nil {
			return
		}
		if answer := s.take(frame); answer != nil {
			frames <- answer
		}
	}
}

// take counts what answers, and gives the answer to a question for the hardware
// address.
func (s *stranger) take(frame []byte) []byte {
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	if tcp, is := p.Layer(layers.LayerTypeTCP).(*layers.TCP); is {
		s.mutex.Lock()
		if uint16(tcp.DstPort) >= s.since {
			s.answered[uint16(tcp.SrcPort)]++
		}
		s.mutex.Unlock()
		return nil
	}
	ethernet := &layers.Ethernet{SrcMAC: s.mac, DstMAC: s.to}
	if asked, is := p.Layer(layers.LayerTypeARP).(*layers.ARP); is && asked.Operation == layers.ARPRequest {
		for _, end := range s.ends {
			if end[0].Is4() && string(asked.DstProtAddress) == string(end[0].AsSlice()) {
				ethernet.EthernetType = layers.EthernetTypeARP
				return serialized(ethernet, &layers.ARP{
					AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
					Operation: layers.ARPReply, SourceHwAddress: s.mac, SourceProtAddress: end[0].AsSlice(),
					DstHwAddress: s.to, DstProtAddress: asked.SourceProtAddress,
				})
			}
		}
		return nil
	}
	asked, is := p.Layer(layers.LayerTypeICMPv6NeighborSolicitation).(*layers.ICMPv6NeighborSolicitation)
	if !is {
		return nil
	}
	for _, end := range s.ends {
		asks, _ := netip.AddrFromSlice(p.NetworkLayer().NetworkFlow().Src().Raw())
		if !end[0].Is6() || !asked.TargetAddress.Equal(end[0].AsSlice()) || asks.IsUnspecified() {
			continue
		}
		ethernet.EthernetType = layers.EthernetTypeIPv6
		ip := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: end[0].AsSlice(), DstIP: asks.AsSlice()}
		icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborAdvertisement, 0)}
		_ = icmp.SetNetworkLayerForChecksum(ip)
		return serialized(ethernet, ip, icmp, &layers.ICMPv6NeighborAdvertisement{
			Flags: 0x60, TargetAddress: end[0].AsSlice(), // solicited, override
			Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptTargetAddress, Data: s.mac}},
		})
	}
	return nil
}

func (s *stranger) syn(end [2]netip.Addr, from, port uint16) []byte {
	ethernet := &layers.Ethernet{SrcMAC: s.mac, DstMAC: s.to, EthernetType: layers.EthernetTypeIPv4}
	tcp := &layers.TCP{SrcPort: layers.TCPPort(from), DstPort: layers.TCPPort(port), Seq: uint32(from), SYN: true, Window: 64240}
	if end[0].Is4() {
		ip := &layers.IPv4{Version: 4, IHL: 5, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: end[0].AsSlice(), DstIP: end[1].AsSlice()}
		_ = tcp.SetNetworkLayerForChecksum(ip)
		return serialized(ethernet, ip, tcp)
	}
	ethernet.EthernetType = layers.EthernetTypeIPv6
	ip := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: end[0].AsSlice(), DstIP: end[1].AsSlice()}
	_ = tcp.SetNetworkLayerForChecksum(ip)
	return serialized(ethernet, ip, tcp)
}

func serialized(all ...gopacket.SerializableLayer) []byte {
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, all...); err != nil {
		panic(errors.Join(errors.New("a packet of the test's own"), err))
	}
	return b.Bytes()
}

// heard is how many packets came from each port, and how many asked for one.
func (s *stranger) heard() (asked int, answered map[uint16]int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.asked, s.answered
}
