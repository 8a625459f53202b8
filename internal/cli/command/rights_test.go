package command

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What a kernel without netfilter says of a netlink socket, this one says of a protocol that
// no kernel has.
func TestRightsHintNoNetfilter(t *testing.T) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, 31)
	if err == nil {
		_ = unix.Close(fd)
		t.Fatal("there is a protocol 31")
	}
	if hint := rightsHint(fmt.Sprintf("open a netlink socket: %v", err)); !strings.Contains(hint, "this kernel has no netfilter") {
		t.Errorf("%v: %q", err, hint)
	}
	if hint := rightsHint(err.Error() + "\nhint: wait"); hint != "" {
		t.Errorf("a second hint: %q", hint)
	}
	if hint := rightsHint(unix.ENOENT.Error()); hint != "" {
		t.Errorf("a hint of a file: %q", hint)
	}
}
