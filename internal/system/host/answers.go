package host

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Answers is what the kernel's answers depend on, as text: this boot of this kernel,
// the modules that are loaded and those that could be, who asks, and some more files.
// While it is the same, the kernel can do the same.
func Answers(files []string) string {
	var b strings.Builder
	var kernel unix.Utsname
	_ = unix.Uname(&kernel) // it cannot fail
	release := unix.ByteSliceToString(kernel.Release[:])
	fmt.Fprintf(&b, "%s %s %s\n", release, kernel.Version, kernel.Machine)
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	b.Write(boot)
	for _, name := range append(slices.Clip(files), "/lib/modules/"+release+"/modules.dep", "/etc/modprobe.d") {
		var st unix.Stat_t
		err := unix.Stat(name, &st)
		fmt.Fprintf(&b, "%s %d %d %d %d %d %v\n", name, st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano(), err)
	}
	modules, _ := os.ReadFile("/proc/modules")
	var names []string
	for line := range strings.Lines(string(modules)) {
		name, _, _ := strings.Cut(line, " ")
		names = append(names, name)
	}
	slices.Sort(names)
	user, _ := os.Readlink("/proc/self/ns/user")
	fmt.Fprintf(&b, "%s\n%s %d\n", strings.Join(names, " "), user, os.Geteuid())
	return b.String()
}
