package kernels

import (
	"strings"
	"testing"
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
	out := booted(t, bareScript)
	asked := 0
	for command := range strings.SplitSeq(out, "== ") {
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
		t.Errorf("%d commands ran\n%s", asked, out)
	}
}
