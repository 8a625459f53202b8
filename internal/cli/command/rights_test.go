package command

import (
	"fmt"
	"os/user"
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

// A service whose files root made is told whose they have to be; people and other files are not.
func TestServiceHint(t *testing.T) {
	const at = "/var/lib/sluice-controller"
	for _, c := range []struct{ id, home, text, want string }{
		{"998", at, "open " + at + "/trust.json: permission denied", "\nhint: as root, chown -R sluice-controller: " + at + " gives it to user sluice-controller, as whom this runs"},
		{"998", at, "open " + at + "/trust.json: no such file or directory", ""},
		{"998", at, "open /etc/ssl/private/key.pem: permission denied", ""},
		{"998", "/", "open " + at + "/trust.json: permission denied", ""},
		{"1000", at, "open " + at + "/trust.json: permission denied", ""},
	} {
		if got := serviceHint(c.text, &user.User{Uid: c.id, Username: "sluice-controller", HomeDir: c.home}); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
