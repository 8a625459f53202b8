package attached

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The four questions below go to bpf(2) itself: github.com/cilium/ebpf has them too, but
// brings what loads programs with it, 1 MB of code. From include/uapi/linux/bpf.h:

const netkitPrimary, netkitPeer = 54, 55 // BPF_NETKIT_PRIMARY, BPF_NETKIT_PEER

// programQuery is what union bpf_attr has for BPF_PROG_QUERY, to its end: the kernel writes
// the revision whatever size it was given (bpf_mprog_query in kernel/bpf/mprog.c).
type programQuery struct {
	device, place, _, _ uint32
	ids                 *uint32
	count, _            uint32
	_                   [4]uint64 // flags and links of each program, the revision
}

// bpf makes a call; commands that open something give its descriptor.
func bpf[T any](command int, attributes *T) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(command), uintptr(unsafe.Pointer(attributes)), unsafe.Sizeof(*attributes))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// programsAt gives the ids of the programs at a place of a device.
func programsAt(device, place int) ([]uint32, error) {
	ids := make([]uint32, 64)                                                                                  // the kernel's limit for a place: BPF_MPROG_MAX
	query := programQuery{device: uint32(device), place: uint32(place), ids: &ids[0], count: uint32(len(ids))} //nolint:gosec // numbers of the kernel
	if _, err := bpf(unix.BPF_PROG_QUERY, &query); err != nil {
		return nil, err
	}
	return ids[:query.count], nil
}

// info reads what the kernel says of an object by its id into size bytes, by the command
// that opens such an object.
func info(open int, id uint32, size int) ([]byte, error) {
	fd, err := bpf(open, &struct{ id, next, flags uint32 }{id: id})
	for deadline := time.Now().Add(time.Second); errors.Is(err, unix.EAGAIN) && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // somebody is just making it (bpf_link_by_id of kernel/bpf/syscall.c)
		fd, err = bpf(open, &struct{ id, next, flags uint32 }{id: id})
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	out := make([]byte, size)
	_, err = bpf(unix.BPF_OBJ_GET_INFO_BY_FD, &struct {
		fd, size uint32
		info     *byte
	}{uint32(fd), uint32(size), &out[0]}) //nolint:gosec // a descriptor, a few bytes
	return out, err
}

// programName gives the name that a program was loaded with, empty where it cannot be read.
func programName(id uint32) string {
	const at = 64 // of name in struct bpf_prog_info
	said, err := info(unix.BPF_PROG_GET_FD_BY_ID, id, at+unix.BPF_OBJ_NAME_LEN)
	if err != nil {
		return ""
	}
	return unix.ByteSliceToString(said[at:])
}

// netfilterLink is struct bpf_link_info of a program at a netfilter hook.
type netfilterLink struct {
	Kind, ID, Program, _ uint32
	Family, Hook         uint32 // NFPROTO_*, NF_INET_*
	Priority             int32
	_                    uint32
}

// netfilterLinks gives the links of programs at netfilter hooks, of whichever network
// namespace: they do not say it (bpf_nf_link_fill_link_info).
func netfilterLinks() (out []netfilterLink, err error) {
	for at := (struct{ id, next, flags uint32 }{}); ; at.id = at.next {
		if _, err := bpf(unix.BPF_LINK_GET_NEXT_ID, &at); errors.Is(err, fs.ErrNotExist) {
			return out, nil
		} else if err != nil {
			return out, err
		}
		var link netfilterLink
		said, err := info(unix.BPF_LINK_GET_FD_BY_ID, at.next, binary.Size(link))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EOPNOTSUPP) { // it ended meanwhile, or is of a kind that says nothing
			continue
		} else if err != nil {
			return out, err
		}
		if _, err := binary.Decode(said, binary.NativeEndian, &link); err != nil {
			return out, err
		}
		if link.Kind == unix.BPF_LINK_TYPE_NETFILTER {
			out = append(out, link)
		}
	}
}
