package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Change is a transaction of anybody that changed something.
type Change struct {
	Generation uint32 // the number of the ruleset behind it
	// PID and Name are of who made it, for a reader: a process can have what name it
	// likes, and has ended before long.
	PID  int
	Name string
}

// newGeneration is the message that reports a transaction.
const newGeneration = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN

// Watch calls changed, from a goroutine of its own, for every transaction in the network
// namespace of the calling thread, until the context ends, or with the error of a socket
// that cannot be read. It calls it with nothing when it listens and where transactions were
// lost, so that what is read behind a call is never older than the last one. Of what a
// transaction did the kernel copies nothing here: 50,000 elements wake nobody.
func Watch(ctx context.Context, changed func(Change)) error {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return fmt.Errorf("listen for changes of the ruleset: %w", err)
	}
	defer conn.Close()
	filter, err := bpf.Assemble(generationsAlone())
	if err == nil {
		err = errors.Join(conn.SetBPF(filter), conn.JoinGroup(unix.NFNLGRP_NFTABLES))
	}
	if err != nil {
		return fmt.Errorf("listen for changes of the ruleset: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })()
	changed(Change{})
	for ctx.Err() == nil {
		messages, err := conn.Receive()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
		case errors.Is(err, unix.ENOBUFS):
			changed(Change{})
		case err != nil:
			return fmt.Errorf("listen for changes of the ruleset: %w", err)
		}
		for _, m := range messages {
			if m.Header.Type == newGeneration {
				changed(changeOf(m.Data))
			}
		}
	}
	return nil
}

// generationsAlone is a filter of a socket by the type of a message, which is in the
// machine's byte order.
func generationsAlone() []bpf.Instruction {
	kind := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, newGeneration))
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: 4, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(kind), SkipFalse: 1},
		bpf.RetConstant{Val: 1 << 16},
		bpf.RetConstant{},
	}
}

func changeOf(message []byte) (c Change) {
	attributes, err := netlink.UnmarshalAttributes(message[min(nfgenmsg, len(message)):])
	if err != nil {
		return c
	}
	for _, a := range attributes {
		switch {
		case a.Type == unix.NFTA_GEN_ID && len(a.Data) == 4:
			c.Generation = binary.BigEndian.Uint32(a.Data)
		case a.Type == unix.NFTA_GEN_PROC_PID && len(a.Data) == 4:
			c.PID = int(binary.BigEndian.Uint32(a.Data))
		case a.Type == unix.NFTA_GEN_PROC_NAME:
			c.Name = unix.ByteSliceToString(a.Data)
		}
	}
	return c
}
