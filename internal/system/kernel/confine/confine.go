// Package confine takes from a process what it does not need to ask a server and
// read what it sends: capabilities, new privileges, the file system, system calls.
// cli calls it in the process that fetches lists and country data (apart), before that
// reads a byte of them.
package confine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// begun is in the environment of the process that Process has become; its value is
// what it lacks.
const begun = "SLUICE_CONFINED"

// Process confines the whole process, every thread of it, for good. It begins the
// program again, with the same arguments and files: what is set for one thread holds
// for all that an exec leads to. What this kernel or this process cannot do is left
// out and comes back in words; an error says that something could be done and failed,
// and the process should end.
func Process() (lacks []string, err error) {
	before, again := os.LookupEnv(begun)
	if !again {
		return nil, begin()
	}
	lacks = strings.FieldsFunc(before, func(r rune) bool { return r == ',' })
	filtered, err := filterCalls()
	if err != nil {
		return nil, fmt.Errorf("seccomp: %w", err)
	}
	if !filtered {
		lacks = append(lacks, "seccomp")
	}
	return lacks, nil
}

// begin confines one thread by what an exec hands on, and goes on in it as a new
// program. It returns with an error alone.
func begin() error {
	runtime.LockOSThread() // never unlocked: the thread is not to run anything else
	var lacks []string
	if os.Geteuid() == 0 {
		if err := dropCapabilities(); err != nil {
			return fmt.Errorf("drop capabilities: %w", err)
		}
		lacks = append(lacks, "a user of its own")
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	limited, err := limitFiles()
	if err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	if !limited {
		lacks = append(lacks, "landlock")
	}
	return fmt.Errorf("start again: %w", unix.Exec(self, os.Args, append(os.Environ(), begun+"="+strings.Join(lacks, ","))))
}

const self = "/proc/self/exe"

// dropCapabilities is for a process that is root anyway: in a user namespace
// that maps nobody else, say. What the bounding set lacks no exec gives (capabilities(7)).
func dropCapabilities() error {
	for c := uintptr(0); ; c++ {
		switch err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); {
		case errors.Is(err, unix.EINVAL): // behind the last one that the kernel knows
			return dropInherited()
		case err != nil:
			return err
		}
	}
}

// dropInherited empties the sets of this thread: an exec as root takes over what may be
// inherited, whatever the bounding set lacks.
func dropInherited() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	var none [2]unix.CapUserData
	return unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0])
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
		return false, nil // the library may not know the architecture
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
