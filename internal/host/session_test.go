package host

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// sudo takes SSH_CONNECTION away, so it is read from the processes above.
func TestOwnSessionUnderSudo(t *testing.T) {
	const marker = "SLUICE_TEST_SESSION"
	if os.Getenv(marker) != "" {
		peer, ok := ownSession()
		fmt.Println("session", peer.Remote, peer.Local, ok)
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
	if want := "session [2001:db8::9]:50000 [2001:db8::1]:22 true"; !strings.Contains(string(out), want) {
		t.Errorf("got %q, want %q in it", out, want)
	}
}
