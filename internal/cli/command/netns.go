package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// NetnsDir is where ip-netns(8) keeps named network namespaces.
const NetnsDir = "/run/netns"

// enterNetns puts the whole process into a network namespace: one thread enters
// it and replaces the process, so that every thread, and every program started
// later, is inside. Who is inside already goes on.
func enterNetns(name string) error {
	if name == "" {
		return nil
	}
	path := filepath.Join(NetnsDir, name)
	var there, here unix.Stat_t
	err := unix.Stat(path, &there)
	if strings.ContainsAny(name, "/\x00") || name == "." || name == ".." || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no network namespace %q\nhint: %s", name, NamespaceHint())
	}
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", name, err)
	}
	if err := unix.Stat("/proc/self/ns/net", &here); err != nil {
		return fmt.Errorf("find the own network namespace: %w", err)
	}
	if here.Dev == there.Dev && here.Ino == there.Ino {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", name, err)
	}
	defer file.Close()
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	// Never unlocked: a thread that stays where the namespace could not be
	// entered wholly must not run anything else.
	runtime.LockOSThread()
	if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("enter network namespace %s: %w\nhint: it needs root", name, err)
		}
		return fmt.Errorf("enter network namespace %s: %w", name, err)
	}
	return fmt.Errorf("enter network namespace %s: %w", name, unix.Exec(program, os.Args, os.Environ()))
}

// NamespaceHint names the network namespaces that there are, for a hint.
func NamespaceHint() string {
	entries, err := os.ReadDir(NetnsDir)
	if err != nil || len(entries) == 0 {
		return "there are none; ip netns add NAME makes one"
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	if len(names) > 10 {
		names = append(names[:10], "…")
	}
	return "there are: " + strings.Join(names, ", ")
}
