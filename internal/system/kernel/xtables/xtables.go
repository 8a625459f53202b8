// Package xtables tells one state of legacy iptables from another. The kernel tells nobody
// of a change of them. The agent calls it.
package xtables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// family is what the interfaces of iptables and ip6tables differ in; numbers are offsets
// in an entry of a table (struct ipt_entry, struct ip6t_entry).
type family struct {
	names          string
	domain, level  int
	next, counters int
}

var families = []family{
	{"ip_tables_names", unix.AF_INET, unix.SOL_IP, 90, 96},
	{"ip6_tables_names", unix.AF_INET6, unix.SOL_IPV6, 142, 152},
}

const (
	soGetInfo    = 64 // IPT_SO_GET_INFO, IP6T_SO_GET_INFO
	soGetEntries = 65 // IPT_SO_GET_ENTRIES, IP6T_SO_GET_ENTRIES

	nameSize     = 32 // XT_TABLE_MAXNAMELEN
	infoSize     = 84 // struct ipt_getinfo
	infoLength   = 80 // where it says how many bytes the entries are
	entriesBegin = 40 // struct ipt_get_entries without entries
	counterSize  = 16 // struct xt_counters
)

// Sum is of the rules of all tables in the network namespace of the calling thread,
// without their counters. It loads no module: what is not loaded has no rules.
func Sum() (uint64, error) {
	sum := fnv.New64a()
	for _, f := range families {
		names, err := os.ReadFile("/proc/thread-self/net/" + f.names)
		if errors.Is(err, fs.ErrNotExist) || err == nil && len(names) == 0 {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("list tables of legacy iptables: %w", err)
		}
		for name := range bytes.FieldsSeq(names) {
			entries, err := f.entries(name)
			if err != nil {
				return 0, fmt.Errorf("read table %s of legacy iptables: %w", name, err)
			}
			_, _ = sum.Write(append(name, 0))
			_, _ = sum.Write(entries)
		}
	}
	return sum.Sum64(), nil
}

// tries is how often a table is read again that others change meanwhile.
const tries = 10

// entries are those of a table, with counters of zero.
func (f family) entries(table []byte) ([]byte, error) {
	fd, err := unix.Socket(f.domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0) // a raw one needs CAP_NET_RAW
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	for try := 1; ; try++ {
		info := make([]byte, infoSize)
		copy(info, table)
		if err := getsockopt(fd, f.level, soGetInfo, info); err != nil {
			return nil, err
		}
		length := binary.NativeEndian.Uint32(info[infoLength:])
		data := make([]byte, entriesBegin+int(length))
		copy(data, table)
		binary.NativeEndian.PutUint32(data[nameSize:], length)
		switch err := getsockopt(fd, f.level, soGetEntries, data); {
		case errors.Is(err, unix.EAGAIN) && try < tries:
			continue
		case err != nil:
			return nil, err
		}
		return f.uncounted(data[entriesBegin:]), nil
	}
}

func (f family) uncounted(entries []byte) []byte {
	for at := 0; at+f.counters+counterSize <= len(entries); {
		entry := entries[at:]
		clear(entry[f.counters : f.counters+counterSize])
		next := int(binary.NativeEndian.Uint16(entry[f.next:]))
		if next == 0 {
			break
		}
		at += next
	}
	return entries
}

func getsockopt(fd, level, name int, value []byte) error {
	size := uint32(len(value))                                                                    //nolint:gosec // the kernel's own length
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name), //nolint:gosec // descriptors and constants
		uintptr(unsafe.Pointer(unsafe.SliceData(value))), uintptr(unsafe.Pointer(&size)), 0) //nolint:gosec // the system call's own form
	if errno != 0 {
		return errno
	}
	return nil
}
