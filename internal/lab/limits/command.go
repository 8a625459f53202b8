package limits

import (
	"os"
	"path/filepath"
	"time"

	"sluice/internal/lab/measure"
	"sluice/internal/lab/timed"
)

// about is a command of the binary about a lab.
func (b *bench) about(l *measure.Lab, args ...string) timed.Program {
	return timed.Program{Name: b.binary, Args: append(args, "--netns", l.Namespace.Name(), "--state-dir", b.state)}
}

// sluice runs a command of the binary about a lab.
func (b *bench) sluice(l *measure.Lab, stdin []byte, args ...string) (timed.Cost, error) {
	p := b.about(l, args...)
	p.Stdin = stdin
	return timed.Run(b, p)
}

// apply loads a policy for good, without reading it back.
func (b *bench) apply(l *measure.Lab, file string) (timed.Cost, error) {
	return b.sluice(l, nil, "apply", file, "--no-confirm", "--no-verify")
}

// policy writes a policy file and returns its path.
func (b *bench) policy(name, text string) (string, error) {
	file := filepath.Join(b.dir, name)
	return file, os.WriteFile(file, []byte(text), 0o600)
}

// inside runs a program in a lab.
func (b *bench) inside(l *measure.Lab, stdin []byte, name string, args ...string) (timed.Cost, error) {
	return timed.Run(b, timed.Program{Name: name, Args: args, Stdin: stdin, In: l.Namespace.Do})
}

// nft loads a ruleset by the program that people use.
func (b *bench) nft(l *measure.Lab, ruleset []byte) (timed.Cost, error) {
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
