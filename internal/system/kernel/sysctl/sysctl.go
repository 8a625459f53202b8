// Package sysctl reads and writes the kernel's settings under /proc/sys. Those
// of the network belong to the network namespace of the calling thread. apply
// and host call it.
package sysctl

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// path follows sysctl(8): dots separate, and a slash stands for a dot inside a
// name ("net.ipv4.conf.eth0/1.rp_filter").
func path(name string) (string, error) {
	if name == "" || strings.Contains(name, "..") || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "/") {
		return "", fmt.Errorf("%q is not the name of a sysctl", name)
	}
	return filepath.Join("/proc/sys", strings.NewReplacer(".", "/", "/", ".").Replace(name)), nil
}

// Read gives the value without the line's end. The error is fs.ErrNotExist
// where the kernel has no such setting, or not yet.
func Read(name string) (string, error) {
	file, err := path(name)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read sysctl %s: %w", name, err)
	}
	return strings.TrimRight(string(text), "\n"), nil
}

// Write sets the value. The error is fs.ErrPermission where the namespace may
// not, fs.ErrNotExist where there is no such setting.
func Write(name, value string) error {
	file, err := path(name)
	if err != nil {
		return err
	}
	// Never O_CREATE: what is not there is not a setting of this kernel.
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("set sysctl %s to %s: %w", name, value, err)
	}
	_, err = f.WriteString(value)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("set sysctl %s to %s: %w", name, value, err)
	}
	return nil
}
