package apply

import (
	"sluice/internal/system/kernel/conntrack"
	"sluice/internal/system/kernel/sysctl"
)

// Kernel is what this package asks of the kernel beside rules, of the network namespace that
// the process is in.
type Kernel interface {
	// Sysctl and SetSysctl fail with fs.ErrNotExist where the kernel has no such
	// value yet, and with fs.ErrPermission where the namespace may not set it.
	Sysctl(name string) (string, error)
	SetSysctl(name, value string) error
	// DeleteFlows removes the tracked connections that match accepts.
	DeleteFlows(match func(conntrack.Entry) bool) (int, error)
	// AdoptFlows makes the entries of connections that run, as conntrack.Adopt does.
	AdoptFlows(flows []conntrack.Flow) (int, error)
}

type linux struct{}

// Linux is the running kernel. The process's threads must all be in the
// namespace that is meant.
func Linux() Kernel { return linux{} }

func (linux) Sysctl(name string) (string, error) { return sysctl.Read(name) }
func (linux) SetSysctl(name, value string) error { return sysctl.Write(name, value) }
func (linux) DeleteFlows(match func(conntrack.Entry) bool) (int, error) {
	return conntrack.Delete(match)
}
func (linux) AdoptFlows(flows []conntrack.Flow) (int, error) { return conntrack.Adopt(flows) }
