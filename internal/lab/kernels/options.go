package kernels

import (
	"context"
	"fmt"
	"io"
	"time"
)

// Options say what runs in the guest.
type Options struct {
	// Kernel is a version ("6.1", "6.12"), a release as of uname -r, or Newest.
	Kernel string
	// Cache is the directory of fetched kernels; "" is that of defaultCache.
	Cache string
	// Binary is the file that the guest has as /usr/bin/sluice; "" is this program.
	Binary string
	// Programs of this machine, by name or path, beside busybox and what handles
	// networks (nft, ip, tc, ss, iptables, ipset, conntrack, where they are here).
	// They come with the libraries that they load.
	Programs []string
	// Files are further files and directories: path in the guest → path here.
	Files map[string]string
	// Directory is where the command starts; "" is /src.
	Directory string
	// Command is a line for sh -c.
	Command string
	// Init is the program that becomes the guest's first process; it has to run
	// /lab/run, which runs the command and ends the machine. "" is none: the command
	// runs at once.
	Init string
	// Networks are unix sockets that the caller listens on, a network device each
	// (eth0, eth1, ...): frames, each behind its length in 4 bytes, big endian.
	Networks []string
	// Env adds variables "NAME=value" to the command's environment.
	Env []string
	// Counted makes time a number of instructions; see the package.
	Counted bool
	// Processors is 2 when it is 0. A counted guest has one.
	Processors int
	// Memory in MiB; 0 is 2048.
	Memory int
	// Out takes what the command writes, to either stream, while it runs.
	Out io.Writer
	// Results are files and directories that are copied out when the command has
	// ended, whatever its status: path in the guest → path here. One that the
	// command did not make is an error, unless the command failed.
	Results map[string]string
	// Longest ends the guest, with an error; 0 is 25 minutes.
	Longest time.Duration
	// Say is told what is done at the moment, a line each; nil is nobody.
	Say func(line string)
}

// Newest is the newest kernel that any suite of Debian has.
const Newest = "newest"

// ExitError is a command that ended in the guest with a status other than 0.
type ExitError struct {
	Kernel string // uname -r
	Status int
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("kernel %s: the command ended with status %d", e.Kernel, e.Status)
}

// Run boots the kernel, runs the command, and returns when the machine is off. A
// command that failed is an *ExitError; a program, package or file that is missing
// here is named. Nothing but the cache is left behind, also when ctx ends.
func Run(ctx context.Context, o Options) error {
	// Before anything is fetched.
	if err := need(append([]string{"qemu-system-x86_64", "busybox"}, o.Programs...)...); err != nil {
		return err
	}
	k, err := Find(ctx, o.Cache, o.Kernel, o.say)
	if err != nil {
		return err
	}
	return k.Run(ctx, o)
}

func (o *Options) say(line string) {
	if o.Say != nil {
		o.Say(line)
	}
}
