package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// tunFile is what a program opens for a tun or tap device.
const tunFile = "/dev/net/tun"

// HoldersOf says which processes of the calling thread's network namespace hold a
// tun or tap device: the kernel shows its name for each descriptor
// (tun_chr_show_fdinfo in drivers/net/tun.c). Where none of that namespace does,
// those of others count.
func HoldersOf(device string) ([]Process, error) {
	all, err := All()
	if err != nil {
		return nil, err
	}
	var own unix.Stat_t
	if err := unix.Stat(root+"/thread-self/ns/net", &own); err != nil {
		return nil, fmt.Errorf("find the network namespace: %w", err)
	}
	var here, elsewhere []Process
	for _, pid := range all {
		if !holds(pid, device) {
			continue
		}
		p := Process{PID: pid, Name: Name(pid)}
		var st unix.Stat_t
		if unix.Stat(filepath.Join(root, strconv.Itoa(pid), "ns", "net"), &st) == nil && own.Dev == st.Dev && own.Ino == st.Ino {
			here = append(here, p)
		} else {
			elsewhere = append(elsewhere, p)
		}
	}
	if len(here) > 0 {
		return here, nil
	}
	return elsewhere, nil
}

func holds(pid int, device string) bool {
	dir := filepath.Join(root, strconv.Itoa(pid))
	entries, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return false
	}
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(dir, "fd", e.Name())); err != nil || target != tunFile {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, "fdinfo", e.Name()))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if name, is := strings.CutPrefix(line, "iff:"); is && strings.TrimSpace(name) == device {
				return true
			}
		}
	}
	return false
}
