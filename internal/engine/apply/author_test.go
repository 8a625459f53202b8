package apply

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"sluice/internal/language/bans"
	"sluice/internal/system/kernel/process"
)

// The caller may be another process than this one; whom a login names is no matter of
// what the process says.
func TestCaller(t *testing.T) {
	cmd := exec.Command("sh", "-c", `echo 3999 > /proc/self/loginuid; env -u SSH_CONNECTION sh -c 'echo $$; read end'; exit`)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "SUDO_USER=anna", "SSH_CONNECTION=2001:db8::9 50000 2001:db8::1 22"}
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	login, known := process.Login(pid)
	want := Author{User: "anna", Login: login, From: "2001:db8::9"}
	if !known {
		want.Login = 0
	}
	by, session := Caller(pid, 0)
	if by != want || session == nil || session.Remote.String() != "[2001:db8::9]:50000" {
		t.Errorf("%+v %v, want %+v", by, session, want)
	}
	if known {
		want.User = UserName(int(login))
	} else {
		want.User = UserName(4711)
	}
	if by, _ := Caller(pid, 4711); by != want {
		t.Errorf("who is not root has no sudo: %+v, want %+v", by, want)
	}
	if known && login != 3999 {
		t.Logf("this machine sets no login: it is %d", login)
	}
}

func TestBecause(t *testing.T) {
	for reason, want := range map[string]string{
		" the shop opens ":                    "the shop opens",
		strings.Repeat("x", bans.MaxReason):   strings.Repeat("x", bans.MaxReason),
		strings.Repeat("x", bans.MaxReason+1): "",
		"two\nlines":                          "",
		"\x1b[31mred":                         "",
		"no text\xff":                         "",
	} {
		var a Author
		if err := a.Because(reason); a.Reason != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q %v", reason, a.Reason, err)
		}
	}
}
