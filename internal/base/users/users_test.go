package users

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sluice/internal/lab/testnet"
)

// getent puts a program of that name first in PATH.
func getent(t *testing.T, script string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "getent"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return dir
}

func TestLookup(t *testing.T) {
	dir := getent(t, `[ "$1 $2" = "passwd --" ] || exit 1
case $3 in
only-there) echo 'only-there:x:4242:4343:Somebody, there:/:/bin/sh' ;;
odd) echo nonsense ;;
broken) exit 3 ;;
endless) yes ;;
stuck) echo >"${0%/*}/begun"; exec sleep 1000 ;;
beside) sleep 1000 & echo "beside:x:$!:4343:::" ;;
*) exit 2 ;;
esac`)
	if u, err := Lookup(t.Context(), "root"); err != nil || u.Uid != "0" {
		t.Errorf("root: %v, %v", u, err)
	}
	if u, err := Lookup(t.Context(), "only-there"); err != nil || u.Uid != "4242" || u.Gid != "4343" {
		t.Errorf("only-there: %v, %v", u, err)
	}
	if id, err := Number(t.Context(), "only-there"); err != nil || id != 4242 {
		t.Errorf("only-there: %d, %v", id, err)
	}
	if id, err := Number(t.Context(), "77"); err != nil || id != 77 {
		t.Errorf("77: %d, %v", id, err)
	}
	if _, err := Lookup(t.Context(), "nobody-of-that-name"); !errors.As(err, new(user.UnknownUserError)) {
		t.Errorf("unknown: %v", err)
	}
	for name, want := range map[string]string{
		"nobody-of-that-name": `this host has no user "nobody-of-that-name"`,
		"odd":                 "not a line of passwd",
		"broken":              "exit status 3",
		"endless":             "getent passwd endless: ",
	} {
		if _, err := Number(t.Context(), name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	// What a module of getent starts and leaves behind does not keep the answer back.
	beside, err := Number(t.Context(), "beside")
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(int(beside), syscall.SIGKILL); err != nil {
		t.Errorf("it is not there any more: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	begun := filepath.Join(dir, "begun")
	if err := syscall.Mkfifo(begun, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = os.ReadFile(begun)
		cancel()
	}()
	if _, err := Number(ctx, "stuck"); !errors.Is(err, context.Canceled) {
		t.Errorf("stuck: %v", err)
	}
}

func TestGroupNumber(t *testing.T) {
	getent(t, `[ "$1 $2" = "group --" ] || exit 1
case $3 in
only-there) echo 'only-there:x:4343:alice,bob' ;;
odd) echo only-there:x ;;
*) exit 2 ;;
esac`)
	for name, want := range map[string]uint32{"root": 0, "only-there": 4343, "77": 77} {
		if id, err := GroupNumber(t.Context(), name); err != nil || id != want {
			t.Errorf("%s: %d, %v", name, id, err)
		}
	}
	for name, want := range map[string]string{
		"nobody-of-that-name": `this host has no group "nobody-of-that-name"`,
		"odd":                 "not a line of group",
	} {
		if _, err := GroupNumber(t.Context(), name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

func TestLookupWithoutGetent(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := Lookup(t.Context(), "nobody-of-that-name"); !errors.As(err, new(user.UnknownUserError)) {
		t.Errorf("got %v", err)
	}
}

// TestLookupOfNameService asks for a user of systemd's, who is in no passwd, in a mount
// namespace that has him.
func TestLookupOfNameService(t *testing.T) {
	const inside = "SLUICE_TEST_USERS"
	if os.Getenv(inside) != "" {
		if _, err := user.Lookup("sluice-test-user"); err == nil {
			t.Log("this build loads the modules of nsswitch.conf itself")
		}
		if id, err := Number(t.Context(), "sluice-test-user"); err != nil || id != 64123 {
			t.Errorf("%d, %v", id, err)
		}
		return
	}
	testnet.Require(t, testnet.Namespaces, testnet.Probed("libnss-systemd", func() error {
		if modules, _ := filepath.Glob("/usr/lib/*/libnss_systemd.so.2"); len(modules) == 0 {
			return errors.New("there is no libnss_systemd.so.2")
		}
		sources, err := os.ReadFile("/etc/nsswitch.conf")
		if err == nil && !strings.Contains(string(sources), "systemd") {
			err = errors.New("/etc/nsswitch.conf does not name it")
		}
		return err
	}))
	cmd := exec.Command("sh", "-c", `mount --make-rprivate / && mount -t tmpfs none /run && mkdir /run/userdb &&
echo '{"userName": "sluice-test-user", "uid": 64123, "gid": 64123, "disposition": "system"}' >/run/userdb/sluice-test-user.user &&
exec "$0" -test.run='^TestLookupOfNameService$'`, os.Args[0])
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
