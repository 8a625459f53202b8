package confine_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/system/kernel/confine"
)

// The test's own program, started again, is what is confined.
const confined = "SLUICE_TEST_CONFINED"

func TestMain(m *testing.M) {
	if server := os.Getenv(confined); server != "" {
		os.Exit(inside(server))
	}
	os.Exit(m.Run())
}

// inside tries what the child that fetches lists must be able to do, and what it
// must not, and prints a line for what went wrong.
func inside(server string) int {
	lacks, err := confine.Process()
	if err != nil {
		fmt.Println("wrong: confine:", err)
		return 1
	}
	fmt.Println("lacks:", lacks)
	has := func(what string) bool { return !strings.Contains(fmt.Sprint(lacks), what) }
	wrong := func(format string, args ...any) { fmt.Printf("wrong: "+format+"\n", args...) }

	resp, err := http.Get(server)
	if err != nil {
		wrong("ask a server: %v", err)
	} else {
		_ = resp.Body.Close()
	}
	if _, err := net.DefaultResolver.LookupHost(context.Background(), "localhost"); err != nil {
		wrong("look a name up: %v", err)
	}
	if _, err := os.ReadFile("/etc/hosts"); err != nil {
		wrong("read /etc/hosts: %v", err)
	}
	threads := make(chan error)
	for range 8 { // every thread is confined, and threads can be made
		go func() { threads <- forbidden(has) }()
	}
	for range 8 {
		if err := <-threads; err != nil {
			wrong("%v", err)
		}
	}
	status, err := os.ReadFile("/proc/self/status")
	if err == nil {
		for line := range strings.Lines(string(status)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if (key == "CapPrm" || key == "CapEff") && strings.Trim(strings.TrimSpace(value), "0") != "" {
				wrong("capabilities: %s", line)
			}
			if key == "NoNewPrivs" && strings.TrimSpace(value) != "1" {
				wrong("no_new_privs: %s", line)
			}
		}
	} else if !has("landlock") {
		wrong("read the own status: %v", err)
	}
	return 0
}

func forbidden(has func(string) bool) error {
	var errs []error
	if has("landlock") {
		if _, err := os.ReadFile("/proc/1/comm"); err == nil {
			errs = append(errs, errors.New("read a file of /proc"))
		}
		if _, err := os.ReadDir("/root"); err == nil {
			errs = append(errs, errors.New("read /root"))
		}
	}
	if err := os.WriteFile(os.Getenv("SLUICE_TEST_WRITABLE"), nil, 0o600); err == nil && has("landlock") {
		errs = append(errs, errors.New("wrote a file that everybody may write"))
	}
	if !has("seccomp") {
		return errors.Join(errs...)
	}
	if err := exec.Command("/bin/true").Run(); err == nil {
		errs = append(errs, errors.New("ran a program"))
	}
	if err := unix.Unshare(unix.CLONE_NEWUSER); !errors.Is(err, unix.EPERM) {
		errs = append(errs, fmt.Errorf("unshare a user namespace: %w", err))
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD), 0, 0); errno == 0 {
		errs = append(errs, errors.New("cloned into a user namespace"))
	}
	if err := unix.PtraceAttach(os.Getppid()); !errors.Is(err, unix.EPERM) {
		errs = append(errs, fmt.Errorf("ptrace: %w", err))
	}
	for _, kind := range []int{unix.SOCK_RAW, unix.SOCK_SEQPACKET} {
		if fd, err := unix.Socket(unix.AF_INET, kind, 0); err == nil {
			_ = unix.Close(fd)
			errs = append(errs, fmt.Errorf("made a socket of kind %d", kind))
		}
	}
	if fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM, 0); err == nil {
		_ = unix.Close(fd)
		errs = append(errs, errors.New("made a packet socket"))
	}
	return errors.Join(errs...)
}

// root: with what of /etc and /proc is asked of another user than the test's own,
// the modes of files would answer instead of what confines.
func TestProcess(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), confined+"="+server.URL, "SLUICE_TEST_WRITABLE="+filepath.Join(dir, "written"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lacks := ""
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		if text, is := strings.CutPrefix(lines.Text(), "lacks: "); is {
			lacks = text
		} else {
			t.Error(lines.Text())
		}
	}
	for what, has := range map[string]string{"landlock": "landlock", "seccomp": "seccomp"} {
		if strings.Contains(lacks, what) && configured("CONFIG_"+strings.ToUpper(has)+"=y") {
			t.Errorf("this kernel has %s and the process was not confined by it: %s", what, lacks)
		}
	}
	if lacks == "" {
		t.Errorf("nothing was said of what it lacks:\n%s", out)
	}
}

// configured says whether this kernel was built so; where its configuration cannot
// be read, nothing is asked of it.
func configured(option string) bool {
	out, err := exec.Command("zgrep", "-x", option, "/proc/config.gz").Output()
	return err == nil && !errors.Is(err, fs.ErrNotExist) && len(out) > 0
}
