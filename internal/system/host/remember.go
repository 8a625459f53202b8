package host

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/internal/backend"
	"sluice/internal/base/cache"
	"sluice/internal/system/kernel/nft"
)

// capabilitiesKind is the name of capabilities in the cache.
const capabilitiesKind = "capabilities"

// RememberedCapabilities is Capabilities, asked once for each kernel, nft and set
// of modules: a module that the kernel looks for in vain takes 20 ms each time.
func RememberedCapabilities(ctx context.Context, c cache.Cache) backend.Capabilities {
	if data, ok := c.Get(capabilitiesKind, surroundings()); ok {
		var can backend.Capabilities
		if json.Unmarshal(data, &can) == nil && complete(can) {
			return can
		}
	}
	can := Capabilities(ctx)
	if complete(can) {
		if data, err := json.Marshal(can); err == nil {
			// Asking may have loaded modules, so the key is another now.
			c.Put(capabilitiesKind, surroundings(), data)
		}
	}
	return can
}

// complete says whether every question has its answer.
func complete(can backend.Capabilities) bool {
	return !slices.ContainsFunc(probes, func(f feature) bool {
		return can[f.name] != backend.Yes && can[f.name] != backend.No
	})
}

// surroundings is what the capabilities hang on: what is asked, this boot of this
// kernel, nft, the modules that are loaded and those that could be, and who asks.
func surroundings() string {
	var b strings.Builder
	for _, f := range probes {
		fmt.Fprintf(&b, "%s %q\n", f.name, f.ruleset)
	}
	var kernel unix.Utsname
	_ = unix.Uname(&kernel) // it cannot fail
	release := unix.ByteSliceToString(kernel.Release[:])
	fmt.Fprintf(&b, "%s %s %s\n", release, kernel.Version, kernel.Machine)
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	b.Write(boot)
	for _, name := range append(nft.Installed(), "/lib/modules/"+release+"/modules.dep", "/etc/modprobe.d") {
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
