package limits

import (
	"os"
	"path/filepath"
	"time"

	"sluice/internal/lab/measure"
	"sluice/internal/lab/timed"
)

// ran is one run of a program.
type ran struct {
	output string // standard output
	wall   time.Duration
	cpu    time.Duration // of the program and the children that it waited for
}

// finish runs a program to its end.
func (b *bench) finish(p timed.Program) (ran, error) {
	c, err := timed.Run(b, p)
	return ran{c.Output, c.Wall, c.CPU}, err
}

// command runs the binary in the namespace where this program is.
func (b *bench) command(stdin []byte, args ...string) (ran, error) {
	return b.finish(timed.Program{Name: b.binary, Args: args, Stdin: stdin})
}

// inside runs a program in a lab.
func (b *bench) inside(l *measure.Lab, stdin []byte, name string, args ...string) (ran, error) {
	return b.finish(timed.Program{Name: name, Args: args, Stdin: stdin, In: l.Namespace.Do})
}

// sluice runs a command of the binary about a lab.
func (b *bench) sluice(l *measure.Lab, args ...string) (ran, error) {
	return b.command(nil, append(args, "--netns", l.Namespace.Name(), "--state-dir", b.state)...)
}

// apply loads a policy for good, without reading it back.
func (b *bench) apply(l *measure.Lab, file string) (ran, error) {
	return b.sluice(l, "apply", file, "--no-confirm", "--no-verify")
}

// policy writes a policy file and returns its path.
func (b *bench) policy(name, text string) (string, error) {
	file := filepath.Join(b.dir, name)
	return file, os.WriteFile(file, []byte(text), 0o600)
}

// nft loads a ruleset by the program that people use.
func (b *bench) nft(l *measure.Lab, ruleset []byte) (ran, error) {
	return b.inside(l, ruleset, "nft", "-f", "-")
}

// empty takes all rules and all of Sluice's state away from a lab that packets are
// no longer sent to, and waits until the kernel has freed them.
func (b *bench) empty(l *measure.Lab) error {
	if _, err := b.nft(l, []byte("flush ruleset\n")); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(b.state, "netns", l.Namespace.Name())); err != nil {
		return err
	}
	time.Sleep(settle)
	return b.Err()
}

// settle is how long the kernel frees a large set in the background.
const settle = 150 * time.Millisecond
