package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// kept is what the older program has answered, as sums: an older program does not
// change, so that it is asked each question once. Where a newer one answers otherwise,
// the older one is asked again.
type kept struct {
	program string // sum of the older program and of the kernel that it asks

	mu   sync.Mutex
	sums map[string]string // answer by question
	file *os.File          // nil: nothing is kept
}

// open reads what is in the folder about the program.
func open(folder, program string) (*kept, error) {
	file, err := os.Open(program)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return nil, err
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return nil, err
	}
	fmt.Fprintf(h, "%s %t", unix.ByteSliceToString(name.Release[:]), os.Geteuid() == 0)
	k := &kept{program: hex.EncodeToString(h.Sum(nil)), sums: map[string]string{}}
	if folder == "" {
		return k, nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	if k.file, err = os.OpenFile(filepath.Join(folder, k.program[:16]), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(k.file)
	for lines.Scan() {
		var question, answer string
		if n, _ := fmt.Sscan(lines.Text(), &question, &answer); n == 2 {
			k.sums[question] = answer
		}
	}
	return k, lines.Err()
}

// key is of a question about files.
func (k *kept) key(q question, files map[string]string) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s %q %t %q", k.program, q.args, q.inside, q.folder)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, " %q %q", name, files[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// answered gives the sum of an answer, "" where the question is new.
func (k *kept) answered(key string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.sums[key]
}

func (k *kept) keep(key, sum string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sums[key] = sum
	if k.file == nil {
		return nil
	}
	_, err := fmt.Fprintln(k.file, key, sum)
	return err
}
