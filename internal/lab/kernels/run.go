package kernels

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

var (
	//go:embed init.sh
	initScript string
	//go:embed run.sh
	runScript string
)

const (
	defaultMemory     = 2048 // MiB
	defaultProcessors = 2
	defaultLongest    = 25 * time.Minute
	diskSize          = 1 << 30 // bytes, sparse
)

// Inside says that this machine is an emulated one of the lab.
func Inside() bool { return exists("/lab/command") }

// Run is the function of this name, with a kernel that was found already.
func (k Kernel) Run(ctx context.Context, o Options) error {
	if strings.TrimSpace(o.Command) == "" {
		return errors.New("no command is given for the guest")
	}
	if err := need("qemu-system-x86_64", "busybox"); err != nil {
		return err
	}
	RemoveLeftovers(workPrefix)
	work, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", workPrefix, os.Getpid()))
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()

	if err := k.pack(filepath.Join(work, "initramfs"), o); err != nil {
		return fmt.Errorf("pack the files of the guest: %w", err)
	}
	disk := filepath.Join(work, "disk")
	if err := errors.Join(os.WriteFile(disk, nil, 0o600), os.Truncate(disk, diskSize)); err != nil {
		return err
	}
	o.say("booting " + k.Release)
	console, ended := k.boot(ctx, work, o)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	status, err := unpack(disk, o.Results)
	switch {
	case errors.Is(err, errNoStatus):
		// its own end says why, where qemu does not
		return fmt.Errorf("kernel %s: the emulated machine ended without a result%s\n%s", k.Release, because(ended), tail(console))
	case err != nil && status == 0:
		return fmt.Errorf("kernel %s: %w", k.Release, err)
	case status != 0:
		return &ExitError{k.Release, status}
	}
	return nil
}

const workPrefix = "sluice-kernel-"

// RemoveLeftovers removes the temporary folders PREFIXpid-… of runs whose process was
// killed.
func RemoveLeftovers(prefix string) {
	folders, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*-*"))
	for _, folder := range folders {
		text, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(folder), prefix), "-")
		if pid, err := strconv.Atoi(text); err == nil && pid > 0 && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = os.RemoveAll(folder)
		}
	}
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// boot runs the machine until it is off, and returns what its kernel said.
func (k Kernel) boot(ctx context.Context, work string, o Options) (console string, err error) {
	longest := o.Longest
	if longest == 0 {
		longest = defaultLongest
	}
	limited, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("it ran longer than %s", longest))
	defer cancel()

	kernelLog := filepath.Join(work, "console")
	cmd := exec.CommandContext(limited, find("qemu-system-x86_64"), k.arguments(work, o)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 5 * time.Second
	var failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = o.Out, &failed
	if o.Out == nil {
		cmd.Stdout = io.Discard
	}
	err = cmd.Run()
	switch text := strings.TrimSpace(failed.String()); {
	case limited.Err() != nil:
		err = context.Cause(limited)
	case err != nil && text != "":
		err = fmt.Errorf("qemu: %w: %s", err, text)
	}
	said, _ := os.ReadFile(kernelLog)
	return strings.ReplaceAll(string(said), "\r", ""), err
}

// arguments of qemu. Counted: one instruction is one nanosecond, idle time is
// jumped over, and whatever is random comes from one seed.
func (k Kernel) arguments(work string, o Options) []string {
	memory, processors := o.Memory, o.Processors
	if memory == 0 {
		memory = defaultMemory
	}
	if processors == 0 {
		processors = defaultProcessors
	}
	kernel := "console=ttyS0 quiet panic=-1 random.trust_cpu=on net.ifnames=0"
	speed := []string{"-accel", "tcg,thread=multi"}
	if o.Counted {
		processors = 1
		kernel += " nokaslr norandmaps"
		speed = []string{
			"-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off,align=off", "-seed", "1",
			"-rtc", "base=2026-01-01T00:00:00,clock=vm",
		}
	}
	for i, socket := range o.Networks {
		id := fmt.Sprintf("net%d", i)
		speed = append(speed, "-netdev", "stream,id="+id+",server=off,addr.type=unix,addr.path="+socket,
			"-device", fmt.Sprintf("virtio-net-pci,netdev=%s,mac=%s,romfile=", id, MAC(i)))
	}
	return append(speed,
		"-cpu", "max", "-smp", fmt.Sprint(processors), "-m", fmt.Sprint(memory),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-serial", "file:"+filepath.Join(work, "console"), "-serial", "stdio",
		"-drive", "if=virtio,format=raw,cache=unsafe,file="+filepath.Join(work, "disk"),
		"-kernel", k.vmlinuz(), "-initrd", filepath.Join(work, "initramfs"), "-append", kernel)
}

// MAC is the hardware address of the guest's network device number i, from 0.
func MAC(i int) net.HardwareAddr { return net.HardwareAddr{0x52, 0x54, 0, 0, 0, byte(i)} }

// handy are programs that a guest has when this machine does: what handles
// networks, and bash, which scripts ask for.
var handy = []string{
	"nft", "ip", "tc", "ss", "bridge", "conntrack", "ipset", "iptables", "ip6tables", "iptables-legacy", "ip6tables-legacy",
	"iptables-restore", "ip6tables-restore", "iptables-legacy-restore", "ip6tables-legacy-restore", "iptables-nft", "ip6tables-nft",
	"iptables-nft-restore", "ip6tables-nft-restore", "kmod", "sysctl", "bash", "ping",
}

// pack writes the archive of the guest's files.
func (k Kernel) pack(file string, o Options) error {
	a := newArchive()
	if err := a.program("busybox"); err != nil {
		return err
	}
	for _, p := range handy {
		if find(p) != "" {
			if err := a.program(p); err != nil {
				return err
			}
		}
	}
	if kmod := find("kmod"); kmod != "" {
		a.symlink("usr/sbin/modprobe", "/"+inGuest(kmod)) // where the kernel calls it
		a.alias("modprobe", kmod)
	}
	extensions, err := filepath.Glob("/usr/lib/*/xtables/*.so")
	if err != nil {
		return err
	}
	for _, p := range slices.Concat(extensions, o.Programs) {
		if strings.HasSuffix(p, ".so") {
			err = a.linked(p)
		} else {
			err = a.program(p)
		}
		if err != nil {
			return err
		}
	}
	applets, err := exec.Command(find("busybox"), "--list").Output()
	if err != nil {
		return fmt.Errorf("busybox --list: %w", err)
	}
	for applet := range strings.FieldsSeq(string(applets)) {
		a.alias(applet, find("busybox"))
	}
	binary := o.Binary
	if binary == "" {
		if binary, err = os.Executable(); err != nil {
			return err
		}
	}
	if err := a.binary(binary); err != nil {
		return err
	}
	if err := a.copy("lib/modules", filepath.Join(k.tree, "lib", "modules")); err != nil {
		return err
	}
	a.system()
	for to, from := range o.Files {
		if err := a.copy(to, from); err != nil {
			return err
		}
	}
	a.lab(o)

	out, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(a.write(out), out.Close())
}

// binary is the program under test, as sluice, with what it may be linked to.
func (a *archive) binary(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	a.file("usr/bin/sluice", file, info)
	return a.libraries(file)
}

// system is what programs expect in /etc.
func (a *archive) system() {
	a.text("init", initScript, 0o755)
	a.text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n", 0o644)
	a.text("etc/group", "root:x:0:\nnogroup:x:65534:\n", 0o644)
	a.text("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n", 0o644)
	for _, name := range []string{"/etc/protocols", "/etc/services"} {
		if info, err := os.Stat(name); err == nil {
			a.file(name, name, info)
		}
	}
}

// lab is what init.sh reads.
func (a *archive) lab(o Options) {
	directory := o.Directory
	if directory == "" {
		directory = "/src"
	}
	a.directory(directory)
	environment := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "HOME=/tmp/home", "TMPDIR=/tmp", "TERM=dumb", "SLUICE_TEST_OWN_CLOCK=1",
	}
	if o.Counted {
		environment = append(environment, "SLUICE_COUNTED=1")
	}
	var text strings.Builder
	for _, v := range slices.Concat(environment, o.Env) {
		name, value, _ := strings.Cut(v, "=")
		fmt.Fprintf(&text, "export %s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`))
	}
	var results strings.Builder
	for from := range o.Results {
		fmt.Fprintln(&results, inGuest(from))
	}
	a.text("lab/environment", text.String(), 0o644)
	a.text("lab/init", o.Init, 0o644)
	a.text("lab/run", runScript, 0o755)
	a.text("lab/directory", directory+"\n", 0o644)
	a.text("lab/command", o.Command+"\n", 0o644)
	a.text("lab/results", results.String(), 0o644)
}

// tail is the end of what a kernel said.
func tail(console string) string {
	lines := strings.Split(strings.TrimSpace(console), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
