package kernels

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// packages that bring programs, where Debian calls them otherwise.
var packages = map[string]string{
	"qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static", "depmod": "kmod", "xz": "xz-utils",
	"apt-get": "apt", "apt-cache": "apt", "dpkg-deb": "dpkg", "nft": "nftables", "ip": "iproute2", "ldd": "libc-bin",
	"iptables-legacy-restore": "iptables", "iptables-nft-restore": "iptables", "setpriv": "util-linux", "dnsmasq": "dnsmasq-base",
	"postgres": "postgresql", "initdb": "postgresql", "pgbench": "postgresql",
}

// searched is where programs are looked for: a user's PATH has no sbin.
func searched() string { return os.Getenv("PATH") + ":/usr/sbin:/sbin" }

// find is the path of a program, or "" when the machine lacks it.
func find(name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	for dir := range strings.SplitSeq(searched(), ":") {
		if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil && filepath.IsAbs(p) {
			return p
		}
	}
	return ""
}

// need names the programs that are missing, and the packages that bring them.
func need(names ...string) error {
	var missing, from []string
	for _, n := range names {
		if p := find(n); p == "" || !exists(p) {
			missing = append(missing, n)
			n = filepath.Base(n)
			if p, ok := packages[n]; ok {
				n = p
			}
			if !slices.Contains(from, n) {
				from = append(from, n)
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("missing on this machine: %s\nhint: apt-get install %s", strings.Join(missing, ", "), strings.Join(from, " "))
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// libraries are the files that the loader maps for a program: its interpreter and
// every shared library, as ldd(1) says. A program that is not an ELF file, or is linked
// statically, has none.
func libraries(program string) ([]string, error) {
	f, err := elf.Open(program)
	var format *elf.FormatError
	if errors.As(err, &format) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if needed, _ := f.ImportedLibraries(); len(needed) == 0 && f.Section(".interp") == nil {
		return nil, nil
	}
	out, err := exec.Command(find("ldd"), program).Output()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w", program, err)
	}
	var all []string
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "not found") {
			return nil, fmt.Errorf("%s needs a library that is not here: %s", program, strings.TrimSpace(line))
		}
		for word := range strings.FieldsSeq(line) {
			if strings.HasPrefix(word, "/") {
				all = append(all, word)
				break
			}
		}
	}
	return all, nil
}
