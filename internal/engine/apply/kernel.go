package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/backend"
	"sluice/internal/system/kernel/conntrack"
	"sluice/internal/system/kernel/nft"
	"sluice/internal/system/kernel/sysctl"
)

// Kernel is what this package asks of the kernel, of the network namespace that
// the process is in.
type Kernel interface {
	// Run loads one transaction. The error is nft.ErrChanged where another tool
	// changed the ruleset meanwhile and nothing was done.
	Run(ctx context.Context, text string) error
	// Send loads the elements of sets, in as many transactions as they take. The
	// error is nft.ErrChanged where another tool was at them meanwhile.
	Send(ctx context.Context, contents backend.Contents) error
	// Mark reads the mark of the running generation, "" where there is none.
	Mark(ctx context.Context) (string, error)
	// Kept says whether the running generation is kept though the disk did not take
	// its confirmation.
	Kept(ctx context.Context) (bool, error)
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

func (linux) Run(ctx context.Context, text string) error { return nft.Run(ctx, text) }

func (linux) Send(ctx context.Context, contents backend.Contents) error { return contents.Send(ctx) }

// take loads one step; a Track is none of the rules.
func take(ctx context.Context, k Kernel, step backend.Step) error {
	switch {
	case step.Contents != nil:
		return k.Send(ctx, step.Contents)
	case step.Purpose == backend.Track:
		return nil
	}
	return k.Run(ctx, step.Text)
}

func (linux) Kept(context.Context) (bool, error) {
	chains, err := marks()
	return slices.Contains(chains, keptMark), err
}

func marks() ([]string, error) {
	chains, err := nft.Chains(markTable)
	if err != nil {
		return nil, fmt.Errorf("read the mark of the running policy: %w", err)
	}
	return chains, nil
}

func (linux) Mark(context.Context) (string, error) {
	chains, err := marks()
	if err != nil {
		return "", err
	}
	for _, name := range chains {
		if strings.HasPrefix(name, markPrefix) {
			return name, nil
		}
	}
	return "", nil
}

func (linux) Sysctl(name string) (string, error) { return sysctl.Read(name) }
func (linux) SetSysctl(name, value string) error { return sysctl.Write(name, value) }
func (linux) DeleteFlows(match func(conntrack.Entry) bool) (int, error) {
	return conntrack.Delete(match)
}
func (linux) AdoptFlows(flows []conntrack.Flow) (int, error) { return conntrack.Adopt(flows) }
