// Package peer says who is at the other end of a Unix socket, as the kernel knows it. The
// agent calls it.
package peer

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"sluice/internal/system/kernel/process"
)

// Peer is the process that connected. User and groups are those of that moment, and may
// permit something. PID is 0 where the process cannot be seen from here; what is read by
// it reports it alone, and holds only if the process was [Peer.There] behind the reading.
type Peer struct {
	PID      int
	UID, GID uint32
	Groups   []uint32 // beside GID
	handle   int      // pidfd; -1: there is none
}

// Of asks a connection. What it returns has to be closed.
func Of(conn syscall.Conn) (*Peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("ask who has connected: %w", err)
	}
	var p *Peer
	var asked error
	if err := raw.Control(func(fd uintptr) { p, asked = of(int(fd)) }); err != nil {
		asked = err
	}
	if asked != nil {
		return nil, fmt.Errorf("ask who has connected: %w", asked)
	}
	return p, nil
}

// Self is this process, as a user whom somebody else has judged. It needs no Close.
func Self(uid uint32) *Peer { return &Peer{PID: os.Getpid(), UID: uid, GID: uid, handle: -1} }

func of(fd int) (*Peer, error) {
	who, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, err
	}
	p := &Peer{PID: int(who.Pid), UID: who.Uid, GID: who.Gid, handle: -1}
	if p.Groups, err = groups(fd); err != nil {
		return nil, err
	}
	if handle, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD); err == nil {
		p.handle = handle
	} else if p.PID > 0 { // before Linux 6.5
		if p.handle, err = unix.PidfdOpen(p.PID, 0); err != nil {
			p.handle = -1
		}
	}
	return p, nil
}

// groups are the supplementary ones.
func groups(fd int) ([]uint32, error) {
	list := make([]uint32, 32)
	for {
		size := uint32(len(list) * 4) //nolint:gosec // 65,536 groups at most
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&list[0])), uintptr(unsafe.Pointer(&size)), 0) //nolint:gosec // there is no other way
		switch {
		case errno == 0:
			return list[:size/4], nil
		case errno == unix.ERANGE && int(size/4) > len(list):
			list = make([]uint32, size/4)
		default:
			return nil, errno
		}
	}
}

// There says whether the process that connected is there still, so that what was read by
// its number was of it.
func (p *Peer) There() bool {
	return p.PID == os.Getpid() || p.handle >= 0 && unix.PidfdSendSignal(p.handle, 0, nil, 0) == nil
}

// Mounts is the file name of the mount namespace that the process is in, which is that of
// this one where both see the same files; the error is os.ErrProcessDone where it has ended.
func (p *Peer) Mounts() (string, error) {
	of, err := os.Readlink("/proc/" + strconv.Itoa(p.PID) + "/ns/mnt")
	if !p.There() {
		return "", os.ErrProcessDone
	}
	return of, err
}

// Login is the number of the user who logged in to start the process, as process.Login has
// it; false too where the process has ended.
func (p *Peer) Login() (uint32, bool) {
	login, known := process.Login(p.PID)
	if !known || !p.There() {
		return 0, false
	}
	return login, true
}

// Name is what the process calls itself; "" where it has ended.
func (p *Peer) Name() string {
	name := process.Name(p.PID)
	if !p.There() {
		return ""
	}
	return name
}

// Close gives up the hold on the process.
func (p *Peer) Close() error {
	if p.handle < 0 {
		return nil
	}
	return unix.Close(p.handle)
}
