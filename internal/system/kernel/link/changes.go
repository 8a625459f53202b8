package link

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Changes says whether what a firewall takes from a host has changed, and whether IPsec
// policies have, to one who asks for it and waits for nothing. It is for one goroutine.
type Changes struct {
	sockets []int
	deaf    bool // to some of it
	buffer  []byte
}

// NewChanges begins to listen in the network namespace of the calling thread.
func NewChanges() (*Changes, error) {
	c := &Changes{buffer: make([]byte, 32<<10)}
	var groups uint32
	for _, group := range watched {
		groups |= 1 << (group - 1)
	}
	for _, of := range []struct {
		protocol int
		groups   uint32
	}{{unix.NETLINK_ROUTE, groups}, {unix.NETLINK_XFRM, 1 << (policies - 1)}} {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, of.protocol)
		if errors.Is(err, unix.EPROTONOSUPPORT) && of.protocol == unix.NETLINK_XFRM {
			c.deaf = true // others may load it
			continue
		}
		if err == nil {
			c.sockets = append(c.sockets, fd)
			err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: of.groups})
		}
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("listen for changes of the network: %w", err)
		}
	}
	return c, nil
}

// policies is XFRMNLGRP_POLICY (include/uapi/linux/xfrm.h).
const policies = 4

// Close ends it.
func (c *Changes) Close() {
	for _, fd := range c.sockets {
		_ = unix.Close(fd)
	}
	c.sockets = nil
}

// Any says whether anything has changed since it was asked last. The kernel reports a change
// before it says to whoever made it that it is done, but of an IPv6 address, which takes it
// some milliseconds.
func (c *Changes) Any() (changed bool) {
	changed = c.deaf
	for _, fd := range c.sockets {
		for {
			n, _, err := unix.Recvfrom(fd, c.buffer, 0)
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			changed = changed || err != nil || c.matter(c.buffer[:n])
			if err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOBUFS) {
				break
			}
		}
	}
	return changed
}

func (c *Changes) matter(text []byte) bool {
	messages, err := syscall.ParseNetlinkMessage(text)
	if err != nil {
		return true
	}
	for _, m := range messages {
		if matters(netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(m.Header.Type)}, Data: m.Data}) {
			return true
		}
	}
	return false
}
