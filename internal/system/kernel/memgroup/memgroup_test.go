package memgroup

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"sluice/internal/lab/testnet"
)

// TestUsage has a process of a group work and hold memory.
func TestUsage(t *testing.T) {
	t.Parallel()
	g, err := New("usage")
	if err == nil {
		err = g.CountTime()
	}
	if err != nil {
		testnet.Lacks(t, "control groups with memory and processor time", err)
	}
	t.Cleanup(func() {
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	})
	cmd := exec.Command("/bin/sh", "-c", `for f in $MEMBERS; do echo $$ > "$f" || exit; done; x=$(head -c 8000000 /dev/zero | tr '\0' x); echo; read -r _`)
	cmd.Env = append(os.Environ(), "MEMBERS="+strings.Join(g.Members(), " "))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	u, err := g.Usage()
	if err != nil {
		t.Error(err)
	}
	if held := u.Memory - u.Files; held < 8_000_000 || u.Peak < held || u.Time <= 0 {
		t.Errorf("a shell that holds 8 MB takes %+v", u)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // with 1, of what it read
}
