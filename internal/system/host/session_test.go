package host

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"sluice/internal/system/kernel/process"
)

// sudo takes SSH_CONNECTION away, so it is read from the processes above.
func TestOwnSessionUnderSudo(t *testing.T) {
	const marker = "SLUICE_TEST_SESSION"
	if os.Getenv(marker) != "" {
		peer := OwnSession()
		fmt.Println("session", peer.Remote, peer.Local)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The shell stands for the login, env for sudo; the shell must not become env.
	script := fmt.Sprintf("env -u SSH_CONNECTION %s=1 %q -test.run='^%s$'; exit $?", marker, self, t.Name())
	cmd := exec.Command("sh", "-c", script)
	cmd.Env = append(os.Environ(), "SSH_CONNECTION=2001:db8::9 50000 2001:db8::1 22")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if want := "session [2001:db8::9]:50000 [2001:db8::1]:22"; !strings.Contains(string(out), want) {
		t.Errorf("got %q, want %q in it", out, want)
	}
}

func TestLoggedIn(t *testing.T) {
	tests := []struct {
		titles   []string
		inode    uint32
		in, told bool
	}{
		{[]string{"sshd: [accepted]"}, 7, false, true},
		{[]string{"sshd: root [priv]", "sshd: root [net]"}, 7, false, true},
		{[]string{"sshd: unknown [priv]", "sshd: unknown [net]"}, 7, false, true},
		{[]string{"sshd-session: root [priv]", "sshd-auth: root [net]"}, 7, false, true},
		{[]string{"sshd: root@pts/0"}, 7, true, true},
		{[]string{"sshd: anna [priv]", "sshd: anna@notty"}, 7, true, true},
		{[]string{"sshd: anna [priv]", "sshd: anna"}, 7, true, true},
		{[]string{"sshd-session: anna [priv]", "sshd-session: anna@pts/1"}, 7, true, true},
		{[]string{"", "sshd: anna@pts/1"}, 7, true, true},
		{[]string{"/usr/sbin/dropbear -F"}, 7, true, false},
		{[]string{"sshd: root [priv]", ""}, 7, true, false}, // gone meanwhile
		{nil, 7, true, false},
		{nil, 0, false, true}, // in the queue of the server, or closed by it
	}
	for _, test := range tests {
		var owners []process.Process
		for i := range test.titles {
			owners = append(owners, process.Process{PID: i, Name: "sshd"})
		}
		in, told := loggedIn(test.inode, owners, func(pid int) string { return test.titles[pid] })
		if in != test.in || told != test.told {
			t.Errorf("%q: %v, told %v", test.titles, in, told)
		}
	}
}
