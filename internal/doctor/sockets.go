package doctor

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"

	"sluice/internal/system/kernel/process"
	"sluice/internal/system/kernel/socket"
)

// Listener is a socket of TCP that waits for connections.
type Listener struct {
	At      netip.AddrPort
	Program string // "" where it cannot be told
	// Peers are the addresses of who is connected to its port, as far as there are any.
	Peers []netip.Addr
}

// Connection is one of TCP that the host has opened.
type Connection struct {
	Local, Remote netip.AddrPort
	Program       string // "a program" where it cannot be told
}

// Queue is that of a listening socket, with half of its backlog waiting or more.
type Queue struct {
	At            netip.AddrPort
	Program       string // "a program" where it cannot be told
	Waiting, Room uint32
}

// mostOutgoing bounds whose answers are asked of rules.
const mostOutgoing = 200

// Files is how many files are open.
type Files struct {
	Open, Most uint64 // of the machine: fs.file-nr
	// Full are programs that have sockets and nine tenths of the files that they may have.
	Full []OpenFiles
}

// OpenFiles is one program, and how many files it has open.
type OpenFiles struct {
	Name       string
	PID        int
	Open, Most uint64
}

const mostPeers = 1000

func (s *Seen) seeListening() {
	all, err := socket.TCP()
	if err != nil {
		s.unread("sockets", err)
		return
	}
	owners, err := process.Owners()
	if err != nil {
		s.unread("the programs that hold sockets", err)
	}
	if s.Waiting, err = waiting(all); err != nil {
		s.unread("sockets", err)
	}
	peers, at := map[uint16][]netip.Addr{}, map[netip.AddrPort]bool{}
	for _, l := range all {
		if l.Waiting > 0 && l.Waiting >= l.Room/2 {
			s.Queues = append(s.Queues, Queue{l.Local, programOf(owners[l.Inode]), l.Waiting, l.Room})
		}
		if l.State != socket.Listen || at[l.Local] { // SO_REUSEPORT: a socket for each worker
			continue
		}
		found := Listener{At: l.Local}
		if who := owners[l.Inode]; len(who) > 0 {
			found.Program = who[0].Name
		}
		at[l.Local], peers[l.Local.Port()] = true, nil
		s.Listening = append(s.Listening, found)
	}
	for _, c := range all {
		if c.State != socket.Established {
			continue
		}
		of, listens := peers[c.Local.Port()]
		if listens && len(of) < mostPeers {
			peers[c.Local.Port()] = append(of, c.Remote.Addr())
		}
		if !listens && !c.Remote.Addr().IsLoopback() && len(s.Outgoing) < mostOutgoing {
			s.Outgoing = append(s.Outgoing, Connection{c.Local, c.Remote, programOf(owners[c.Inode])})
		}
	}
	for i := range s.Listening {
		l := &s.Listening[i]
		l.Peers = peers[l.At.Port()]
	}
	seen := map[int]bool{}
	for _, who := range owners {
		for _, p := range who {
			if !seen[p.PID] {
				seen[p.PID] = true
				s.holders[p.PID] = p.Name
				s.seeProgram(p)
			}
		}
	}
}

func programOf(who []process.Process) string {
	if len(who) == 0 {
		return "a program"
	}
	return who[0].Name
}

// seeOpenFiles reads how many files the machine has open (Documentation/admin-guide/sysctl/fs.rst).
func (s *Seen) seeOpenFiles() {
	fields := strings.Fields(s.setting("fs.file-nr"))
	if len(fields) != 3 {
		return
	}
	open, err := strconv.ParseUint(fields[0], 10, 64)
	most, err2 := strconv.ParseUint(fields[2], 10, 64)
	if err == nil && err2 == nil {
		s.Files.Open, s.Files.Most = open, most
	}
}

// seeProgram notes who is near the number of files that it may have.
func (s *Seen) seeProgram(p process.Process) {
	proc, err := procfs.NewProc(p.PID)
	if err != nil {
		return // it is gone
	}
	limits, err := proc.Limits()
	if err != nil {
		return
	}
	open, err := proc.FileDescriptorsLen()
	if err != nil {
		return
	}
	if f := (OpenFiles{p.Name, p.PID, uint64(max(0, open)), limits.OpenFiles}); f.Most > 0 && f.Open*10 >= f.Most*9 {
		s.Files.Full = append(s.Files.Full, f)
	}
}
