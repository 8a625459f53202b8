package command

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"sluice/internal/system/kernel/netns"
)

// OpenNetns opens the network namespace of a name, as a flag has it.
func OpenNetns(name string) (*netns.Namespace, error) {
	space, err := netns.Named(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no network namespace %q\nhint: %s", name, namespaceHint())
	case err != nil:
		return nil, fmt.Errorf("network namespace %s: %w", name, err)
	}
	return space, nil
}

// NotEntered is what to say of a network namespace that cannot be entered.
func NotEntered(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w\nhint: run it as root", err)
	}
	return err
}

// namespaceHint names the network namespaces that there are.
func namespaceHint() string {
	names, err := netns.Names()
	if err != nil || len(names) == 0 {
		return "none exists; ip netns add NAME makes one"
	}
	if len(names) > 10 {
		names = append(names[:10], "…")
	}
	return "these exist: " + strings.Join(names, ", ")
}
