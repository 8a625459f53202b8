package kerneltest

import (
	"strconv"
	"strings"
	"testing"

	"sluice/internal/lab/testnet"
)

// received is how many segments of a protocol came in at a namespace's own
// sockets, InSegs or InDatagrams of /proc/net/snmp.
func received(t *testing.T, s *testnet.Namespace, protocol string) int {
	t.Helper()
	text, err := s.Run("cat", "/proc/net/snmp")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(text) {
		word, rest, _ := strings.Cut(line, ":")
		if !strings.EqualFold(word, protocol) {
			continue
		}
		if names == nil {
			names = strings.Fields(rest)
			continue
		}
		for i, value := range strings.Fields(rest) {
			if names[i] == "InSegs" || names[i] == "InDatagrams" {
				n, err := strconv.Atoi(value)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
		}
	}
	t.Fatalf("no counters of %s in:\n%s", protocol, text)
	return 0
}
