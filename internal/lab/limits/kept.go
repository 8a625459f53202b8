package limits

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/agent/api"
	"sluice/internal/agent/client"
	"sluice/internal/base/addrset"
	"sluice/internal/engine/apply"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/timed"
	"sluice/internal/language/bans"
)

// What bans by an agent are timed as.
const (
	diskAlone  = "90 bytes and fdatasync"
	keptFirst  = "a ban by a kept connection"
	keptAgain  = "the same address again, for another time"
	keptBeyond = "a ban by a kept connection, beyond the fdatasync beside it"
	keptMany   = "10,000 bans by a kept connection, one after the other"
	keptByMany = "10,000 bans by 8 kept connections"
	askedOnce  = "sluice ban, which asks the agent, beyond the start of a process"
)

const keptPolicy = `version: 1
input:
  default: drop
  rules:
    - allow tcp/443
    - allow ssh
`

const (
	inForce   = 50_000 // bans before
	inARow    = 10_000
	manyConns = 8
)

// keeping is a host with an agent.
type keeping struct {
	*applying
	socket string
	banned int
}

// kept times bans by an agent, while nobody else is at the host.
func (b *bench) kept() (_ lookup, err error) {
	k := &keeping{applying: &applying{bench: b, taken: taken{}}, socket: filepath.Join(b.dir, "agent")}
	if k.own, err = measure.NewLab(b.net, "own"); err != nil {
		return nil, err
	}
	if k.file, err = b.policy("kept.yaml", keptPolicy); err != nil {
		return nil, err
	}
	if _, err := k.apply(k.own, k.file); err != nil {
		return nil, err
	}
	var list bytes.Buffer
	for i := range inForce {
		fmt.Fprintln(&list, measuredBan(99, i))
	}
	if _, err := k.sluice(k.own, list.Bytes(), "ban", "-"); err != nil {
		return nil, err
	}
	stop, err := k.agent()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for _, part := range []func() error{k.single, k.row, k.together, k.byCommand} {
		if err := part(); err != nil {
			return nil, err
		}
	}
	for _, what := range []string{diskAlone, keptFirst, keptAgain, keptBeyond, keptMany, keptByMany, askedOnce} {
		b.add(what, measured, clock, "ms", k.of(clock, what))
	}
	return k.of, nil
}

// agent starts it.
func (k *keeping) agent(flags ...string) (stop func() error, err error) {
	p := k.about(k.own, append([]string{"agent", "--socket", k.socket}, flags...)...)
	var told bytes.Buffer
	agent := exec.CommandContext(k, p.Name, p.Args...)
	agent.Env, agent.Stdout, agent.Stderr = timed.Environment(), &told, &told
	if err := agent.Start(); err != nil {
		return nil, err
	}
	stop = func() error {
		_ = agent.Process.Signal(os.Interrupt)
		if err := agent.Wait(); err != nil {
			return fmt.Errorf("the agent: %w\n%s", err, told.Bytes())
		}
		return nil
	}
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(settle) {
		if _, err := os.Stat(k.socket); err == nil {
			time.Sleep(settle) // what it does when it begins
			return stop, nil
		}
	}
	return nil, errors.Join(errors.New("the agent makes no socket"), stop())
}

// nobody does in place of an agent what that does not.
type nobody struct{ client.Door }

func (nobody) Ban(context.Context, apply.Banning) (*apply.Banned, error) {
	return nil, errors.New("no agent answers")
}

// connection is a kept one.
func (k *keeping) connection() *client.Host {
	return &client.Host{Door: nobody{}, Socket: k.socket, Namespace: k.own.Namespace.Name(), Meant: api.Meant{State: k.state, Wait: time.Minute}}
}

// ban bans one address.
func (k *keeping) ban(by *client.Host, address netip.Addr, during time.Duration) error {
	out, err := by.Ban(k, apply.Banning{For: during, List: []bans.Named{{What: addrset.Range{From: address, To: address}}}})
	if err == nil && (out.Banned != 1 || !out.InForce) {
		err = fmt.Errorf("%s is not in force", address)
	}
	return err
}

// measuredBan is the i-th address of a network.
func measuredBan(network byte, i int) netip.Addr {
	return netip.AddrFrom4([4]byte{100, network, byte(i >> 8), byte(i)})
}

// single times one ban at a time, beside the disk.
func (k *keeping) single() (err error) {
	file, err := os.OpenFile(filepath.Join(k.state, "fdatasync"), os.O_CREATE|os.O_WRONLY|os.O_APPEND|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	by := k.connection()
	for i := range k.rounds(1000) {
		disk, err := since(func() error { return writeThrough(file) })
		if err != nil {
			return err
		}
		address := measuredBan(100, i)
		first, err := since(func() error { return k.ban(by, address, time.Hour) })
		if err != nil {
			return err
		}
		again, err := since(func() error { return k.ban(by, address, 2*time.Hour) })
		if err != nil {
			return err
		}
		k.put(clock, diskAlone, disk)
		k.put(clock, keptFirst, first)
		k.put(clock, keptAgain, again)
		k.put(clock, keptBeyond, first-disk)
	}
	return nil
}

// fresh is an address that was not banned before.
func (k *keeping) fresh() netip.Addr {
	k.banned++
	return measuredBan(byte(101+k.banned/inARow), k.banned%inARow)
}

func (k *keeping) row() error {
	by := k.connection()
	for range k.rounds(1) {
		all, err := since(func() error {
			for range inARow {
				if err := k.ban(by, k.fresh(), 0); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		k.put(clock, keptMany, all)
	}
	return nil
}

func (k *keeping) together() error {
	for range k.rounds(1) {
		lists := make([][]netip.Addr, manyConns)
		for i := range inARow {
			lists[i%manyConns] = append(lists[i%manyConns], k.fresh())
		}
		all, err := since(func() error {
			failures := make([]error, len(lists))
			var asking sync.WaitGroup
			for i, list := range lists {
				asking.Go(func() {
					by := k.connection()
					for _, address := range list {
						failures[i] = errors.Join(failures[i], k.ban(by, address, 0))
					}
				})
			}
			asking.Wait()
			return errors.Join(failures...)
		})
		if err != nil {
			return err
		}
		k.put(clock, keptByMany, all)
	}
	return nil
}

// byCommand bans by a process each, as scripts do.
func (k *keeping) byCommand() error {
	for range k.rounds(300) {
		start, err := timed.Run(k, timed.Program{Name: k.binary, Args: []string{"--version"}})
		if err != nil {
			return err
		}
		p := k.about(k.own, "ban", k.fresh().String())
		p.Env = []string{"SLUICE_SOCKET=" + k.socket}
		ban, err := timed.Run(k, p)
		if err != nil {
			return err
		}
		k.put(clock, askedOnce, milliseconds(ban.Wall-start.Wall))
	}
	return nil
}

// writeThrough writes as much as a ban does, and waits for the disk.
func writeThrough(file *os.File) error {
	if _, err := io.WriteString(file, fmt.Sprintf("%89d\n", 0)); err != nil {
		return err
	}
	return unix.Fdatasync(int(file.Fd()))
}

// since is how many milliseconds something takes.
func since(f func() error) (float64, error) {
	begin := time.Now()
	err := f()
	return milliseconds(time.Since(begin)), err
}
