package cli

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// TestSecondInterruptEnds: the first Ctrl-C asks a measurement to end, a second one ends
// it, whatever it hangs in. The process that is interrupted is this test in another one.
func TestSecondInterruptEnds(t *testing.T) {
	const inside = "SLUICE_TEST_MEASURING"
	if os.Getenv(inside) != "" {
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		ctx, stop := measuring(cmd)
		defer stop()
		fmt.Println("\nbegun")
		<-ctx.Done()
		fmt.Println("\nasked to end")
		time.Sleep(time.Minute) // hangs
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestSecondInterruptEnds$")
	cmd.Env = append(os.Environ(), inside+"=1")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	lines := bufio.NewScanner(out)
	await := func(line string) {
		t.Helper()
		for lines.Scan() {
			if lines.Text() == line {
				return
			}
		}
		t.Fatalf("it never says %q", line)
	}
	await("begun")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	await("asked to end")
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for patience := time.After(20 * time.Second); ; {
		_ = cmd.Process.Signal(os.Interrupt)
		select {
		case <-ended:
			if status, is := cmd.ProcessState.Sys().(syscall.WaitStatus); !is || status.Signal() != syscall.SIGINT {
				t.Errorf("it ended by %v, not by the second interrupt", cmd.ProcessState)
			}
			return
		case <-time.After(20 * time.Millisecond):
		case <-patience:
			t.Fatal("it does not end by a second interrupt")
		}
	}
}
