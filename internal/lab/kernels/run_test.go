package kernels

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/internal/lab/testnet"
)

func TestArguments(t *testing.T) {
	k := at("/cache", "6.1.0-9-cloud-amd64")
	text := func(o Options) string { return strings.Join(k.arguments("/tmp/lab", o), " ") }
	quick, counted := text(Options{}), text(Options{Counted: true, Processors: 4, Memory: 3072})
	for _, want := range []string{"-smp 2 ", "-m 2048 ", "-kernel /cache/6.1.0-9-cloud-amd64/vmlinuz", "-initrd /tmp/lab/initramfs", "thread=multi"} {
		if !strings.Contains(quick, want) {
			t.Errorf("%q is not in %s", want, quick)
		}
	}
	for _, want := range []string{"-icount shift=0,sleep=off", "-smp 1 ", "-m 3072 ", "nokaslr", "clock=vm", "-seed 1"} {
		if !strings.Contains(counted, want) || strings.Contains(quick, want) {
			t.Errorf("%q is not in the counted one alone: %s", want, counted)
		}
	}
}

func TestNoCommand(t *testing.T) {
	if err := at(t.TempDir(), "6.1.0-9-cloud-amd64").Run(t.Context(), Options{Command: " \n"}); err == nil || !strings.Contains(err.Error(), "no command") {
		t.Errorf("%v", err)
	}
}

// A shell reads the environment as it was given.
func TestEnvironment(t *testing.T) {
	values := []string{"A=it's \"$HOME\" `x` \\", "B=two\nlines", "EMPTY="}
	a := newArchive()
	a.lab(Options{Command: "true", Env: values, Counted: true, Results: map[string]string{"/lib/x": "there"}})
	got := unpacked(t, a)
	file := filepath.Join(t.TempDir(), "environment")
	if err := os.WriteFile(file, []byte(contents(t, got["lab/environment"])), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("sh", "-c", ". "+file+"; env -0").Output()
	if err != nil {
		t.Fatal(err)
	}
	have := strings.Split(string(out), "\x00")
	for _, want := range append(values, "SLUICE_COUNTED=1", "HOME=/tmp/home") {
		if !slices.Contains(have, want) {
			t.Errorf("%q is not in %q", want, have)
		}
	}
	if text := contents(t, got["lab/results"]); text != "usr/lib/x\n" {
		t.Errorf("results: %q", text)
	}
}

func TestTail(t *testing.T) {
	if got := tail("a\nb\n"); got != "a\nb" {
		t.Errorf("%q", got)
	}
	got := tail(strings.Repeat("line\n", 1000) + "Kernel panic\n\n")
	if !strings.HasSuffix(got, "\nKernel panic") || strings.Count(got, "\n") > 25 {
		t.Errorf("%q", got)
	}
}

// TestBoot boots a kernel: what make kernels does, in small. It takes half a minute,
// so it is asked for by the kernel's name.
func TestBoot(t *testing.T) {
	version := os.Getenv("SLUICE_TEST_BOOT")
	if version == "" {
		t.Skip("asked for by SLUICE_TEST_BOOT=6.1; make kernels boots as well")
	}
	testnet.Require(t, testnet.Program("qemu-system-x86_64"), testnet.Program("busybox"))
	cache := filepath.Join("..", "..", "..", ".cache", "kernels")
	var out bytes.Buffer
	result := filepath.Join(t.TempDir(), "result")
	err := Run(t.Context(), Options{
		Kernel: version, Cache: cache, Binary: find("true"), Counted: true, Out: &out, Env: []string{"WORD=a b"}, Directory: "/tmp",
		Command: "uname -r; echo \"$WORD\" >result; exit 7", Results: map[string]string{"/tmp/result": result},
	})
	var ended *ExitError
	if !errors.As(err, &ended) || ended.Status != 7 {
		t.Fatalf("%v", err)
	}
	if got := strings.TrimSpace(out.String()); got != ended.Kernel || !strings.HasPrefix(got, version) {
		t.Errorf("it runs %q", got)
	}
	if text, err := os.ReadFile(result); err != nil || string(text) != "a b\n" {
		t.Errorf("result: %q, %v", text, err)
	}
}

// booted is what a script prints on a host of its own, which has sluice.
func booted(t *testing.T, script string) string {
	t.Helper()
	version := os.Getenv("SLUICE_TEST_BOOT")
	if version == "" {
		t.Skip("asked for by SLUICE_TEST_BOOT=6.1")
	}
	testnet.Require(t, testnet.Program("qemu-system-x86_64"), testnet.Program("busybox"))
	binary, err := testnet.Sluice(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	at := filepath.Join(t.TempDir(), "script")
	writeText(t, at, script)
	if err := Run(t.Context(), Options{
		Kernel: version, Cache: filepath.Join("..", "..", "..", ".cache", "kernels"), Binary: binary, Out: &out,
		Files: map[string]string{"/lab/script": at}, Command: "bash /lab/script",
	}); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return out.String()
}
