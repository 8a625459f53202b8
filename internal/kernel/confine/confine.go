// Package confine takes from a process what it does not need to ask a server and
// read what it sends: capabilities, new privileges, the file system, system calls.
// The child that fetches lists calls it before it reads a byte of the network.
package confine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// readable is what looking names up and checking certificates reads: all of it is
// readable by everybody on a usual host, and secrets of root stay root's by their
// modes.
var readable = []string{"/etc", "/usr", "/lib", "/lib64", "/run/systemd/resolve", "/run/NetworkManager", "/run/resolvconf", "/run/nscd"}

// Process confines the whole process, every thread of it, for good. What this
// kernel or this process cannot do is left out and comes back in words; an error
// says that something could be done and failed, and the process should end.
func Process() (lacks []string, err error) {
	if os.Geteuid() == 0 {
		if err := dropCapabilities(); err != nil {
			return nil, fmt.Errorf("drop capabilities: %w", err)
		}
		lacks = append(lacks, "a user of its own")
	}
	if _, _, errno := psx.Syscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return nil, fmt.Errorf("set no_new_privs: %w", errno)
	}
	limited, err := limitFiles()
	if err != nil {
		return nil, fmt.Errorf("landlock: %w", err)
	}
	if !limited {
		lacks = append(lacks, "landlock")
	}
	filtered, err := filterCalls()
	if err != nil {
		return nil, fmt.Errorf("seccomp: %w", err)
	}
	if !filtered {
		lacks = append(lacks, "seccomp")
	}
	return lacks, nil
}

// dropCapabilities is for a process that is root all the same: in a user namespace
// that maps nobody else, say.
func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, errno := psx.Syscall3(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0)
	runtime.KeepAlive(&header)
	runtime.KeepAlive(&none)
	if errno != 0 {
		return errno
	}
	return nil
}

// limitFiles says whether the kernel has landlock (5.13, Documentation/userspace-api/landlock.rst).
// From ABI 4 on no TCP port can be listened on, from 6 on no process outside gets a signal.
func limitFiles() (bool, error) {
	if version, err := ll.LandlockGetABIVersion(); err != nil || version < 1 {
		return false, nil //nolint:nilerr // the kernel has none
	}
	listening, err := landlock.NewConfig(landlock.AccessNetSet(ll.AccessNetBindTCP))
	if err != nil {
		return false, err
	}
	scoped, err := landlock.NewConfig(landlock.ScopedSet(ll.ScopeSignal))
	if err != nil {
		return false, err
	}
	for _, limit := range []func() error{
		func() error { return listening.BestEffort().Restrict() },
		func() error { return scoped.BestEffort().Restrict() },
		func() error { return landlock.V5.BestEffort().RestrictPaths(landlock.RODirs(readable...).IgnoreIfMissing()) },
	} {
		if err := limit(); err != nil {
			return false, err
		}
	}
	return true, nil
}

// calls are the system calls of the Go runtime, of its network and name look-ups,
// and of the C library's look-ups where the program is linked with it. All else
// fails with EPERM: no program is started, no process looked into, no namespace,
// key, mount, module, BPF program, ring of io_uring or raw socket made.
const calls = `
	read write readv writev pread64 close close_range lseek fstat newfstatat stat lstat statx fstatfs statfs
	open openat readlink readlinkat access faccessat faccessat2 getcwd getdents64 fcntl dup dup3 flock pipe2
	mmap mprotect munmap mremap brk madvise membarrier
	rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack tgkill restart_syscall
	poll ppoll select pselect6 epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd2 ioctl
	connect bind sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg shutdown getsockname getpeername setsockopt getsockopt
	futex set_robust_list set_tid_address rseq arch_prctl prctl sched_yield sched_getaffinity exit exit_group
	nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time timer_create timer_settime timer_delete setitimer
	getpid gettid getuid geteuid getgid getegid getrandom uname sysinfo getrlimit prlimit64 getrusage
`

// namespaceFlags are what clone(2) makes namespaces by.
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWTIME

// filterCalls says whether the kernel has seccomp filters, and the library the
// architecture.
func filterCalls() (bool, error) {
	machine, err := arch.GetInfo("")
	if err != nil || !seccomp.Supported() {
		return false, nil //nolint:nilerr // the library does not know the architecture
	}
	var names []string
	for name := range strings.FieldsSeq(calls) {
		if _, there := machine.SyscallNames[name]; there { // arm64 has no open, for one
			names = append(names, name)
		}
	}
	filter := seccomp.Filter{
		NoNewPrivs: true, Flag: seccomp.FilterFlagTSync,
		Policy: seccomp.Policy{
			DefaultAction: seccomp.ActionErrno,
			Syscalls: []seccomp.SyscallGroup{
				{Action: seccomp.ActionAllow, Names: names, NamesWithCondtions: conditions()},
				// Its flags are behind a pointer; without it, the C library takes clone.
				{Action: seccomp.ActionErrno | seccomp.Action(unix.ENOSYS), Names: []string{"clone3"}},
			},
		},
	}
	runtime.LockOSThread() // no_new_privs of this thread, which the other threads take over
	defer runtime.UnlockOSThread()
	if err := seccomp.LoadFilter(filter); err != nil {
		if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
			return false, nil
		}
		return false, err
	}
	return true, nil
}

// conditions allow threads and sockets, and no namespaces and no raw sockets.
func conditions() []seccomp.NameWithConditions {
	out := []seccomp.NameWithConditions{{Name: "clone", Conditions: seccomp.ArgumentConditions{
		{Argument: 0, Operation: seccomp.BitsNotSet, Value: namespaceFlags},
		{Argument: 0, Operation: seccomp.BitsSet, Value: unix.CLONE_THREAD},
	}}}
	for _, family := range []uint64{unix.AF_INET, unix.AF_INET6, unix.AF_UNIX} {
		for _, kind := range []uint64{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
			for _, flags := range []uint64{0, unix.SOCK_CLOEXEC, unix.SOCK_NONBLOCK, unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK} {
				out = append(out, socket(family, kind|flags))
			}
		}
	}
	// The interfaces, which both resolvers ask for.
	return append(out, socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC), socket(unix.AF_NETLINK, unix.SOCK_RAW))
}

func socket(family, kind uint64) seccomp.NameWithConditions {
	return seccomp.NameWithConditions{Name: "socket", Conditions: seccomp.ArgumentConditions{
		{Argument: 0, Operation: seccomp.Equal, Value: family},
		{Argument: 1, Operation: seccomp.Equal, Value: kind},
	}}
}
