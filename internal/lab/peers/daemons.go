package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"sluice/internal/lab/testnet"
)

// daemons are programs that stay, in a namespace and with folders of their own.
type daemons struct {
	private *private
	running context.Context
	stop    context.CancelFunc
	ended   []chan string // how each one has ended
	out     *os.File
}

// patience is how long a daemon may take to begin or to end, where the context does
// not end it before.
const patience = 2 * time.Minute

func newDaemons(n *testnet.Namespace) (*daemons, error) {
	p, err := newPrivate(n)
	if err != nil {
		return nil, err
	}
	d := &daemons{private: p}
	if d.out, err = os.Create(filepath.Join(p.dir, "said")); err != nil {
		p.remove()
		return nil, err
	}
	d.running, d.stop = context.WithCancel(context.Background())
	return d, nil
}

// failed stops what has begun, and adds what it said to an error.
func (d *daemons) failed(err error) error {
	said, _ := os.ReadFile(d.out.Name())
	return fmt.Errorf("%w\n%s", errors.Join(err, d.Stop()), said)
}

// daemon starts what runs until Stop, which asks it to end.
func (d *daemons) daemon(name string, args ...string) error {
	cmd := d.private.command(d.running, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = patience
	cmd.Stdout, cmd.Stderr = d.out, d.out
	if err := d.private.net.StartCommand(cmd); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	ended := make(chan string, 1)
	go func() { ended <- fmt.Sprintf("%s has ended: %v", name, cmd.Wait()) }()
	d.ended = append(d.ended, ended)
	return nil
}

// until waits for something while the daemons live.
func (d *daemons) until(ctx context.Context, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for !done() {
		for _, ended := range d.ended {
			select {
			case how := <-ended:
				ended <- how
				return errors.New(how)
			default:
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

// Stop ends the daemons; the rules that they have loaded stay.
func (d *daemons) Stop() error {
	d.stop()
	for _, ended := range d.ended {
		<-ended
	}
	err := d.out.Close()
	d.private.remove()
	return err
}
