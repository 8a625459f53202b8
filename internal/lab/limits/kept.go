package limits

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/base/addrset"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/lab/measure"
	"sluice/internal/language/bans"
)

// What bans by a kept connection are timed as.
const (
	diskAlone  = "90 bytes and fdatasync"
	keptFirst  = "a ban by a kept connection"
	keptAgain  = "the same address again, for another time"
	keptBeyond = "a ban by a kept connection, beyond the fdatasync beside it"
	keptMany   = "10,000 bans by a kept connection, one after the other"
)

const keptPolicy = `version: 1
input:
  default: drop
  rules:
    - allow tcp/443
    - allow ssh
`

// inForce is how many bans are in force before.
const inForce = 50_000

// kept times bans as a process does them that stays: while nobody else is at the host, one
// by one.
func (b *bench) kept() (lookup, error) {
	a := &applying{bench: b, taken: taken{}}
	var err error
	if a.own, err = measure.NewLab(b.net, "own"); err != nil {
		return nil, err
	}
	if a.file, err = b.policy("kept.yaml", keptPolicy); err != nil {
		return nil, err
	}
	if _, err := a.apply(a.own, a.file); err != nil {
		return nil, err
	}
	var list bytes.Buffer
	for i := range inForce {
		fmt.Fprintln(&list, measuredBan(99, i))
	}
	if _, err := a.sluice(a.own, list.Bytes(), "ban", "-"); err != nil {
		return nil, err
	}
	h, err := engine.NewHost(b.state, a.own.Namespace.Name(), "measured")
	if err != nil {
		return nil, err
	}
	if err := a.own.Namespace.Do(func() error { return h.Keep(b, a.keep) }); err != nil {
		return nil, err
	}
	for _, what := range []string{diskAlone, keptFirst, keptAgain, keptBeyond, keptMany} {
		b.add(what, measured, clock, "ms", a.of(clock, what))
	}
	return a.of, nil
}

// measuredBan is the i-th address of a network.
func measuredBan(network byte, i int) netip.Addr {
	return netip.AddrFrom4([4]byte{100, network, byte(i >> 8), byte(i)})
}

func (a *applying) keep(k *apply.Keeper) (err error) {
	file, err := os.OpenFile(filepath.Join(a.state, "fdatasync"), os.O_CREATE|os.O_WRONLY|os.O_APPEND|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	ban := func(address netip.Addr, during time.Duration) (float64, error) {
		in := apply.Banning{For: during, List: []bans.Named{{What: addrset.Range{From: address, To: address}}}}
		return since(func() error {
			out := k.Ban(a, []apply.Asked{{Banning: in}})[0]
			if out.Err == nil && !out.InForce {
				return errors.New("a ban is not in force")
			}
			return out.Err
		})
	}
	for i := range a.rounds(1000) {
		disk, err := since(func() error { return writeThrough(file) })
		if err != nil {
			return err
		}
		address := measuredBan(100, i)
		first, err := ban(address, time.Hour)
		if err != nil {
			return err
		}
		again, err := ban(address, 2*time.Hour)
		if err != nil {
			return err
		}
		a.put(clock, diskAlone, disk)
		a.put(clock, keptFirst, first)
		a.put(clock, keptAgain, again)
		a.put(clock, keptBeyond, first-disk)
	}
	many := 0
	for range a.rounds(1) {
		all, err := since(func() error {
			for range 10_000 {
				if _, err := ban(measuredBan(byte(101+many/10_000), many%10_000), 0); err != nil {
					return err
				}
				many++
			}
			return nil
		})
		if err != nil {
			return err
		}
		a.put(clock, keptMany, all)
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
