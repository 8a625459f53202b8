package link

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// watched are the rtnetlink groups (rtnetlink(7)) of what a firewall takes from a host.
var watched = []uint32{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE}

// matters says that a message may be of what a firewall takes from a host: of routes only
// default ones are. A router of the internet changes others all the time.
func matters(m netlink.Message) bool {
	route := m.Header.Type == unix.RTM_NEWROUTE || m.Header.Type == unix.RTM_DELROUTE
	return !route || len(m.Data) < routeHeader || m.Data[routeLength] == 0
}

// Watch calls changed, from a goroutine of its own, whenever links, addresses or default
// routes of the calling thread's network namespace have changed, and once when it listens.
// Messages that were lost count as a change, so that what is read behind a call is never
// older than the last change. It ends with the context, or with the error of a socket
// that cannot be read.
func Watch(ctx context.Context, changed func()) error {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return fmt.Errorf("listen for changes of the network: %w", err)
	}
	defer conn.Close()
	for _, group := range watched {
		if err := conn.JoinGroup(group); err != nil {
			return fmt.Errorf("listen for changes of the network: %w", err)
		}
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })()
	changed()
	for ctx.Err() == nil {
		messages, err := conn.Receive()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
		case err == nil && !slices.ContainsFunc(messages, matters):
		case err == nil, errors.Is(err, unix.ENOBUFS):
			changed()
		default:
			return fmt.Errorf("listen for changes of the network: %w", err)
		}
	}
	return nil
}
