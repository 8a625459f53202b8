package host

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is where something was measured.
type Machine struct {
	Kernel      string  `json:"kernel"`
	Arch        string  `json:"architecture"`
	Processor   string  `json:"processor"`
	Processors  int     `json:"processors"`
	Memory      uint64  `json:"memory"`                // bytes
	Mitigations string  `json:"mitigations,omitempty"` // of Spectre v2: what an indirect call costs
	Load        float64 `json:"load-average"`          // of the last minute
	// Counted says that time is counted in instructions (an emulated machine), so
	// that one ns is one instruction.
	Counted bool `json:"counted,omitempty"`
}

// ThisMachine describes the machine that it runs on. The emulated machine of the
// kernel lab says so by SLUICE_COUNTED=1 in the environment.
func ThisMachine() Machine {
	m := Machine{Arch: runtime.GOARCH, Processors: runtime.NumCPU(), Counted: os.Getenv("SLUICE_COUNTED") == "1"}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.Memory = uint64(info.Totalram) * uint64(info.Unit) //nolint:unconvert // not of one type on all architectures
	}
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.Processor = strings.TrimSpace(value)
			break
		}
	}
	spectre, _ := os.ReadFile("/sys/devices/system/cpu/vulnerabilities/spectre_v2")
	m.Mitigations = strings.TrimSpace(string(spectre))
	load, _ := os.ReadFile("/proc/loadavg")
	_, _ = fmt.Sscan(string(load), &m.Load)
	return m
}

// String is one line.
func (m Machine) String() string {
	if m.Counted {
		return fmt.Sprintf("kernel %s, emulated, counted in instructions", m.Kernel)
	}
	plural := "s"
	if m.Processors == 1 {
		plural = ""
	}
	return fmt.Sprintf("kernel %s, %d processor%s (%s), load average %.2f", m.Kernel, m.Processors, plural, m.Processor, m.Load)
}
