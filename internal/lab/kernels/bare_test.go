package kernels

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/lab/testnet"
)

// bareScript takes nf_tables out of the kernel, and runs commands that need it.
const bareScript = `
find /lib/modules -name 'nf_tables.ko*' -exec rm {} ';'
printf 'version: 1\ninput: {default: drop, rules: [allow ssh]}\n' >/tmp/policy.yaml
for command in "check /tmp/policy.yaml" "plan /tmp/policy.yaml" "apply --no-confirm /tmp/policy.yaml" status verify \
    "ban 192.0.2.9" sync "shadow --for 1s /tmp/policy.yaml"; do
    echo "== sluice $command"
    sluice $command 2>&1
    echo "status $?"
done
`

// TestBootBare: a kernel without nf_tables is named, by each command that needs it.
func TestBootBare(t *testing.T) {
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
	script := filepath.Join(t.TempDir(), "script")
	writeText(t, script, bareScript)
	if err := Run(t.Context(), Options{
		Kernel: version, Cache: filepath.Join("..", "..", "..", ".cache", "kernels"), Binary: binary, Out: &out,
		Files: map[string]string{"/lab/script": script}, Command: "bash /lab/script",
	}); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	asked := 0
	for command := range strings.SplitSeq(out.String(), "== ") {
		name, said, _ := strings.Cut(command, "\n")
		needs := strings.HasPrefix(name, "sluice ") && !strings.HasPrefix(name, "sluice check")
		if needs {
			asked++
		}
		if needs && (!strings.Contains(said, "\nhint: this kernel has no nf_tables: modprobe nf_tables ") || !strings.Contains(said, "status 2\n")) {
			t.Errorf("%s: %s", name, said)
		}
	}
	if asked != 7 {
		t.Errorf("%d commands ran\n%s", asked, out.String())
	}
}
