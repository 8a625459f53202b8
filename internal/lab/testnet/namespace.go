package testnet

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Namespace is one host of a Net. Loopback is up, both families forward nothing
// until Forward, duplicate address detection and router solicitations are off,
// so that addresses work at once and nothing is sent that the test did not send.
type Namespace struct {
	net    *Net
	label  string
	name   string // "" when unnamed
	handle netns.NsHandle
	links  *netlink.Handle
}

// Namespace makes a host that has a name under /run/netns. The label (lower-case
// letters, digits, single hyphens) is a part of it.
func (n *Net) Namespace(label string) *Namespace {
	n.helper()
	if !prefixPattern.MatchString(label) {
		n.fail("bad label %q for a namespace: want lower-case letters, digits and single hyphens", label)
	}
	name := fmt.Sprintf("sl-%s-%s-p%d-%d", n.prefix, label, os.Getpid(), sequence.Add(1))
	return n.add(label, name)
}

// Unnamed makes a host without a name. It goes away by itself when the process
// ends, and costs no mount.
func (n *Net) Unnamed(label string) *Namespace {
	n.helper()
	return n.add(label, "")
}

func (n *Net) helper() {
	if n.t != nil {
		n.t.Helper()
	}
}

func (n *Net) add(label, name string) *Namespace {
	n.helper()
	s := &Namespace{net: n, label: label, name: name}
	if err := s.create(); err != nil {
		n.fail("make namespace %s: %w", label, err)
	}
	n.mu.Lock()
	n.spaces = append(n.spaces, s)
	n.mu.Unlock()

	// A namespace may take the settings of the machine over, so those that
	// matter are set in any case.
	s.Sysctl("net.ipv6.conf.all.disable_ipv6", "0")
	s.Sysctl("net.ipv6.conf.default.disable_ipv6", "0")
	s.Sysctl("net.ipv6.conf.default.accept_dad", "0")
	s.Sysctl("net.ipv6.conf.default.dad_transmits", "0")
	s.Sysctl("net.ipv6.conf.default.router_solicitations", "0")
	s.Sysctl("net.ipv6.conf.default.accept_ra", "0")
	s.Sysctl("net.ipv4.conf.all.rp_filter", "0")
	s.Sysctl("net.ipv4.conf.default.rp_filter", "0")
	s.Sysctl("net.ipv4.ip_forward", "0")
	s.Sysctl("net.ipv6.conf.all.forwarding", "0")
	lo, err := s.links.LinkByName("lo")
	if err == nil {
		err = s.links.LinkSetUp(lo)
	}
	if err != nil {
		n.fail("raise loopback of %s: %w", label, err)
	}
	return s
}

func (s *Namespace) create() error {
	err := onOwnThread(func() error {
		var err error
		if s.name == "" {
			s.handle, err = netns.New()
		} else {
			s.handle, err = netns.NewNamed(s.name)
		}
		return err
	})
	if err != nil {
		return err
	}
	s.links, err = netlink.NewHandleAt(s.handle)
	return err
}

// Name is the name under /run/netns, or "" for an unnamed namespace.
func (s *Namespace) Name() string { return s.name }

// Label is what the caller called it.
func (s *Namespace) Label() string { return s.label }

// Path is a file that stands for the namespace, such as setns(2) wants it.
func (s *Namespace) Path() string {
	if s.name == "" {
		return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(s.handle))
	}
	return filepath.Join(runDir, s.name)
}

// Links is a netlink handle inside the namespace, for what the methods here
// do not cover.
func (s *Namespace) Links() *netlink.Handle { return s.links }

// Do runs f inside the namespace, on a thread of its own. Goroutines that f
// starts are outside; sockets and processes that f makes stay inside. Do may be
// nested.
func (s *Namespace) Do(f func() error) error {
	return onOwnThread(func() error {
		if err := netns.Set(s.handle); err != nil {
			return fmt.Errorf("enter namespace %s: %w", s.label, err)
		}
		return f()
	})
}

// onOwnThread runs f on a locked thread and brings the thread back to the
// namespace where it was. A thread that cannot be restored stays locked, so
// that it ends with its goroutine instead of serving others.
func onOwnThread(f func() error) error {
	runtime.LockOSThread()
	before, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("find the present namespace: %w", err)
	}
	defer func() {
		back := netns.Set(before)
		_ = before.Close()
		if back == nil {
			runtime.UnlockOSThread()
		}
	}()
	return f()
}

// Sysctl sets a parameter inside the namespace, such as
// net.ipv4.ip_forward. Only parameters that belong to a namespace are accepted:
// those of the whole machine are not shown there.
func (s *Namespace) Sysctl(name, value string) {
	s.net.helper()
	if err := s.SetSysctl(name, value); err != nil {
		s.net.fail("set %s in %s: %w", name, s.label, err)
	}
}

// SetSysctl is Sysctl with an error to look at.
func (s *Namespace) SetSysctl(name, value string) error {
	if !strings.HasPrefix(name, "net.") {
		return fmt.Errorf("%s does not belong to a network namespace", name)
	}
	return s.Do(func() error { return os.WriteFile(sysctlPath(name), []byte(value), 0) })
}

// GetSysctl reads a parameter inside the namespace, without the final newline.
func (s *Namespace) GetSysctl(name string) (string, error) {
	var text []byte
	err := s.Do(func() (err error) {
		text, err = os.ReadFile(sysctlPath(name))
		return err
	})
	return strings.TrimSpace(string(text)), err
}

// sysctlPath turns net.ipv4.ip_forward into a path; as in sysctl(8), a slash
// stands for a dot inside of a part (net.ipv4.conf.eth0/7.rp_filter).
func sysctlPath(name string) string {
	swap := strings.NewReplacer(".", "/", "/", ".")
	return "/proc/sys/" + swap.Replace(name)
}

// Forward makes the namespace a router for both families.
func (s *Namespace) Forward() {
	s.net.helper()
	s.Sysctl("net.ipv4.ip_forward", "1")
	s.Sysctl("net.ipv6.conf.all.forwarding", "1")
}

func (s *Namespace) remove() error {
	s.links.Close()
	var err error
	if s.name != "" {
		err = removeName(s.Path())
	} else {
		var st unix.Stat_t
		if unix.Fstat(int(s.handle), &st) == nil {
			killInside(st.Dev, st.Ino)
		}
	}
	if closeErr := s.handle.Close(); err == nil {
		err = closeErr
	}
	return err
}
