package wire

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Counters are those of IP in the network namespace of the calling thread, by the names
// that the kernel gives them: "Ip.InAddrErrors", "TcpExt.IPReversePathFilter",
// "Ip6InNoRoutes". Those of a protocol that is not there are missing.
func Counters() (map[string]uint64, error) {
	all := map[string]uint64{}
	for _, file := range []string{"snmp", "netstat"} {
		text, err := os.ReadFile("/proc/thread-self/net/" + file)
		if err != nil {
			return nil, fmt.Errorf("read the counters of IP: %w", err)
		}
		parseTwoLines(string(text), all)
	}
	if text, err := os.ReadFile("/proc/thread-self/net/snmp6"); err == nil {
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) == 2 {
				all[f[0]], _ = strconv.ParseUint(f[1], 10, 64) // what is not a number is none of these
			}
		}
	}
	return all, nil
}

// parseTwoLines reads a line of names and one of numbers for each protocol.
func parseTwoLines(text string, into map[string]uint64) {
	lines := strings.Split(text, "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		names, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
		for j := 1; j < min(len(names), len(values)); j++ {
			if n, err := strconv.ParseUint(values[j], 10, 64); err == nil {
				into[strings.TrimSuffix(names[0], ":")+"."+names[j]] = n
			}
		}
	}
}

// DeviceDrops are the packets that the devices of the namespace have dropped, by names such as
// "eth0 rx dropped" (dev_seq_printf_stats of net/core/net-procfs.c). What a device missed is
// among the received.
func DeviceDrops() (map[string]uint64, error) {
	text, err := os.ReadFile("/proc/thread-self/net/dev")
	if err != nil {
		return nil, fmt.Errorf("read the counters of devices: %w", err)
	}
	all := map[string]uint64{}
	parseDevices(string(text), all)
	return all, nil
}

func parseDevices(text string, into map[string]uint64) {
	for line := range strings.Lines(text) {
		name, rest, is := strings.Cut(line, ":") // which no name has (dev_valid_name)
		fields := strings.Fields(rest)
		if !is || len(fields) < 16 {
			continue
		}
		for way, at := range map[string]int{"rx": 3, "tx": 11} {
			if n, err := strconv.ParseUint(fields[at], 10, 64); err == nil {
				into[strings.TrimSpace(name)+" "+way+" dropped"] = n
			}
		}
	}
}
