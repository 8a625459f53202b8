package confine

import (
	"errors"
	"io/fs"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// readable is what looking names up and checking certificates reads: all of it is
// readable by everybody on a usual host, and secrets of root stay root's by their
// modes.
var readable = []string{
	"/etc", "/usr", "/lib", "/lib64", "/run/systemd/resolve", "/run/NetworkManager", "/run/resolvconf", "/run/nscd",
	self, // to start again
}

// read is what may be done with it.
const read = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR

// What each ABI of landlock knows to refuse beside that of the one before
// (Documentation/userspace-api/landlock.rst, "Previous limitations").
var (
	filesOf = map[int]uint64{
		1: 1<<13 - 1, // all from EXECUTE to MAKE_SYM
		2: unix.LANDLOCK_ACCESS_FS_REFER,
		3: unix.LANDLOCK_ACCESS_FS_TRUNCATE,
		5: unix.LANDLOCK_ACCESS_FS_IOCTL_DEV,
	}
	portsOf  = map[int]uint64{4: unix.LANDLOCK_ACCESS_NET_BIND_TCP}
	scopesOf = map[int]uint64{6: unix.LANDLOCK_SCOPE_SIGNAL}
)

// upTo is what all ABIs up to one know together.
func upTo(abi int, known map[int]uint64) (all uint64) {
	for from, what := range known {
		if from <= abi {
			all |= what
		}
	}
	return all
}

// limitFiles limits the thread, and says whether the kernel has landlock (5.13). The
// calls are made here: the library that makes them would have the whole program
// linked by the C compiler.
func limitFiles() (bool, error) {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 || abi < 1 {
		return false, nil
	}
	rules := unix.LandlockRulesetAttr{
		Handled_access_fs: upTo(int(abi), filesOf), Handled_access_net: upTo(int(abi), portsOf), Scoped: upTo(int(abi), scopesOf),
	}
	// An older kernel takes what it knows, and zeros behind it (copy_struct_from_user).
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&rules)), unsafe.Sizeof(rules), 0)
	if errno != 0 {
		return false, errno
	}
	defer func() { _ = unix.Close(int(fd)) }()
	for _, path := range readable {
		if err := allow(fd, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return false, errno
	}
	return true, nil
}

// allow adds a file, or a folder and all below it.
func allow(rules uintptr, path string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	beneath := unix.LandlockPathBeneathAttr{Allowed_access: read, Parent_fd: int32(fd)}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		beneath.Allowed_access &^= unix.LANDLOCK_ACCESS_FS_READ_DIR
	}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, rules, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&beneath)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
