// Package process reads what /proc says of processes: who holds a socket, who
// started whom, with what environment; and hands open files to programs that are
// started. host, starter, nft and apply call it.
package process

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"
)

// Process is one running program.
type Process struct {
	PID  int
	Name string // the kernel's short name (comm), 15 bytes at most
}

const root = "/proc"

// All are the numbers of the processes that can be seen.
func All() ([]int, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var all []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, pid)
		}
	}
	return all, nil
}

// Owners says which processes hold each socket, by the socket's inode; a socket
// that none holds, or whose holders may not be read, is left out. Processes
// that end meanwhile are skipped.
func Owners() (map[uint32][]Process, error) { return ownersOf(nil) }

// OwnersNamed is Owners for the processes of these names alone, and spares
// looking at what all others hold.
func OwnersNamed(names ...string) (map[uint32][]Process, error) { return ownersOf(names) }

func ownersOf(names []string) (map[uint32][]Process, error) {
	all, err := All()
	if err != nil {
		return nil, err
	}
	owners := map[uint32][]Process{}
	for _, pid := range all {
		name := ""
		if len(names) > 0 {
			if name = Name(pid); !slices.Contains(names, name) {
				continue
			}
		}
		inodes := Sockets(pid)
		if len(inodes) == 0 {
			continue
		}
		if name == "" {
			name = Name(pid)
		}
		p := Process{PID: pid, Name: name}
		for inode := range inodes {
			owners[inode] = append(owners[inode], p)
		}
	}
	return owners, nil
}

// Sockets is the inodes of the sockets that a process holds; none where that may
// not be read.
func Sockets(pid int) map[uint32]bool {
	dir := filepath.Join(root, strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	inodes := map[uint32]bool{}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue
		}
		text, isSocket := strings.CutPrefix(target, "socket:[")
		if !isSocket {
			continue
		}
		inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 32)
		if err == nil {
			inodes[uint32(inode)] = true
		}
	}
	return inodes
}

// Name is the short name of a process, "" when it is gone. A process may give itself any
// (PR_SET_NAME of prctl(2)): control characters come as "?", so that it stays on one line.
func Name(pid int) string {
	text, err := os.ReadFile(filepath.Join(root, strconv.Itoa(pid), "comm"))
	if err != nil {
		return ""
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, strings.TrimSpace(string(text)))
}

// Title is the command line of a process, its words apart by spaces; programs
// such as sshd write there what they are doing. "" when it is gone.
func Title(pid int) string {
	text, err := os.ReadFile(filepath.Join(root, strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(bytes.ReplaceAll(text, []byte{0}, []byte{' '})))
}

// User is the number of the user who runs a process, set-user-ID programs included; -1
// when it is gone.
func User(pid int) int {
	text, _ := os.ReadFile(filepath.Join(root, strconv.Itoa(pid), "status"))
	_, uids, _ := strings.Cut(string(text), "\nUid:\t")
	first, _, _ := strings.Cut(uids, "\t") // the real one, the effective one, and more
	if id, err := strconv.Atoi(first); err == nil {
		return id
	}
	return -1
}

// Ancestors is the process pid, its parent, and so on up to process 1, as far
// as they are visible.
func Ancestors(pid int) []int {
	var chain []int
	for pid > 0 && len(chain) < 1000 {
		chain = append(chain, pid)
		pid = parent(pid)
	}
	return chain
}

// parent reads the fourth field of /proc/PID/stat; the second is a name in
// parentheses that may itself hold spaces and parentheses.
func parent(pid int) int {
	text, err := os.ReadFile(filepath.Join(root, strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	end := bytes.LastIndexByte(text, ')')
	fields := strings.Fields(string(text[end+1:]))
	if end < 0 || len(fields) < 2 {
		return 0
	}
	ppid, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0
	}
	return ppid
}

// Login is the number of the user who logged in to start a process, or to start what
// started it, whoever runs it now; false where nobody did, or it may not be read.
func Login(pid int) (uint32, bool) {
	text, _ := os.ReadFile(filepath.Join(root, strconv.Itoa(pid), "loginuid"))
	id, err := strconv.ParseUint(string(text), 10, 32)
	return uint32(id), err == nil && id != math.MaxUint32
}

// Environment is the value of a variable in the environment that a process was
// started with, of this process in its own; false when it has none or may not be read.
func Environment(pid int, variable string) (string, bool) {
	if pid == os.Getpid() {
		return os.LookupEnv(variable)
	}
	text, err := os.ReadFile(filepath.Join(root, strconv.Itoa(pid), "environ"))
	if err != nil {
		return "", false
	}
	for _, entry := range bytes.Split(text, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(variable+"=")); ok {
			return string(value), true
		}
	}
	return "", false
}

// Namespaces are files that stand for the network namespaces that processes are in, but
// that of the calling thread: one of each, by its inode, at most so many.
func Namespaces(most int) (map[uint64]string, error) {
	all, err := All()
	if err != nil {
		return nil, err
	}
	var own, st unix.Stat_t
	if err := unix.Stat(root+"/thread-self/ns/net", &own); err != nil {
		return nil, fmt.Errorf("read the network namespace of this thread: %w", err)
	}
	out := map[uint64]string{}
	for _, pid := range all {
		path := fmt.Sprintf("%s/%d/ns/net", root, pid)
		if unix.Stat(path, &st) == nil && st.Ino != own.Ino && out[st.Ino] == "" && len(out) < most {
			out[st.Ino] = path
		}
	}
	return out, nil
}
