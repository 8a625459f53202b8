package kernels

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// fetcher gets packages by apt, which checks the signature of a suite's list and
// the hash of a package. The machine's own configuration is only read.
type fetcher struct {
	cache string
	say   func(string)
}

// suites are where a kernel is looked for that the machine's own package lists do
// not have. The last one has the newest.
var suites = []string{"bookworm", "bookworm-backports", "trixie", "sid"}

const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// listsAge is how old the lists of other suites may be.
const listsAge = 7 * 24 * time.Hour

// source is a configuration of apt: nil is the machine's own.
type source []string

// choose names the package of the newest release of a version, and by which
// configuration apt knows it.
func (f fetcher) choose(ctx context.Context, version string) (name string, from source, err error) {
	if err := need("apt-get", "apt-cache", "dpkg-deb"); err != nil {
		return "", nil, err
	}
	if version != Newest {
		if name, err = f.search(ctx, nil, version); name != "" || err != nil {
			return name, nil, err
		}
	}
	other, err := f.others(ctx, false)
	if err != nil {
		return "", nil, err
	}
	if name, err = f.search(ctx, other, version); name == "" && err == nil {
		err = fmt.Errorf("no suite of Debian among %s has a cloud kernel %s", strings.Join(suites, ", "), version)
	}
	return name, other, err
}

// search is "" when the lists have no such kernel.
func (f fetcher) search(ctx context.Context, from source, version string) (string, error) {
	out, err := run(ctx, "", "apt-cache", append(slices.Clone(from), "search", "--names-only", "^"+packageStart+".*"+packageEnd+"$")...)
	if err != nil {
		return "", err
	}
	return pick(out, version), nil
}

// pick is the package of the newest release of a version among those that apt-cache
// search has listed, or "".
func pick(listed, version string) string {
	var releases []string
	for line := range strings.Lines(listed) {
		name, _, _ := strings.Cut(line, " ")
		if release, is := strings.CutPrefix(name, packageStart); is && matches(release, version) {
			releases = append(releases, release)
		}
	}
	if len(releases) == 0 {
		return ""
	}
	return packageStart + slices.MaxFunc(releases, compare)
}

// others is a configuration of apt that has Debian's other suites, from the mirror
// of this machine; its lists lie in the cache.
func (f fetcher) others(ctx context.Context, again bool) (source, error) {
	dir := filepath.Join(f.cache, "apt")
	from := source{
		"-o", "Dir::Etc::sourcelist=" + filepath.Join(dir, "sources.list"), "-o", "Dir::Etc::sourceparts=/dev/null",
		"-o", "Dir::State::lists=" + filepath.Join(dir, "lists"), "-o", "Dir::Cache=" + dir,
		"-o", "Dir::State::status=" + filepath.Join(dir, "status"), "-o", "APT::Sandbox::User=root",
		"-o", "Acquire::Languages=none",
	}
	stamp := filepath.Join(dir, "updated")
	if s, err := os.Stat(stamp); err == nil && time.Since(s.ModTime()) < listsAge && !again {
		return from, nil
	}
	mirror, err := f.mirror(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	var list strings.Builder
	for _, s := range suites {
		fmt.Fprintf(&list, "deb [arch=amd64 signed-by=%s] %s %s main\n", keyring, mirror, s)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "sources.list"), []byte(list.String()), 0o644),
		os.WriteFile(filepath.Join(dir, "status"), nil, 0o644)); err != nil {
		return nil, err
	}
	f.say("fetching the package lists of " + strings.Join(suites, ", "))
	if _, err := run(ctx, "", "apt-get", append(slices.Clone(from), "-q", "-o", "APT::Update::Error-Mode=any", "update")...); err != nil {
		return nil, err
	}
	return from, os.WriteFile(stamp, nil, 0o644)
}

// mirror is where this machine gets Debian's packages from. A line of apt that has
// no origin was never fetched.
func (f fetcher) mirror(ctx context.Context) (string, error) {
	out, err := run(ctx, "", "apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages", "Origin: Debian", "Label: Debian")
	if err != nil {
		return "", err
	}
	if site, _, _ := strings.Cut(strings.TrimSpace(out), "\n"); site != "" {
		return site, nil
	}
	return "", errors.New("apt knows no mirror of Debian here\nhint: apt-get update, on a machine with Debian's sources")
}

// fetch downloads a package and keeps what the guest needs of it.
func (f fetcher) fetch(ctx context.Context, name string, from source, k Kernel) error {
	if err := need("depmod", "xz"); err != nil {
		return err
	}
	work, err := os.MkdirTemp(f.cache, "fetch.")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	names, err := f.parts(ctx, from, k.Release)
	if err != nil {
		return err
	}
	f.say("fetching " + strings.Join(names, " "))
	download := append(slices.Concat(from, source{"-q", "-o", "APT::Sandbox::User=root", "download"}), names...)
	if _, err := run(ctx, work, "apt-get", download...); err != nil {
		// lists that are older than the mirror name packages that are gone
		if from == nil {
			return fmt.Errorf("%w\nhint: apt-get update", err)
		}
		if _, err := f.others(ctx, true); err != nil {
			return err
		}
		if _, err := run(ctx, work, "apt-get", download...); err != nil {
			return err
		}
	}
	debs, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil || len(debs) != len(names) {
		return fmt.Errorf("apt-get download made %d packages of %d", len(debs), len(names))
	}
	whole := filepath.Join(work, "whole")
	for _, d := range debs {
		if _, err := run(ctx, "", "dpkg-deb", "-x", d, whole); err != nil {
			return err
		}
	}
	tree := filepath.Join(work, "tree")
	if err := keep(ctx, whole, tree, k.Release); err != nil {
		return err
	}
	return os.Rename(tree, k.tree)
}

// parts are the packages that a kernel is in: one, or since 7.1 the kernel and its
// modules apart.
func (f fetcher) parts(ctx context.Context, from source, release string) ([]string, error) {
	pattern := "^linux-(image|binary|modules)-" + regexp.QuoteMeta(release) + "$"
	out, err := run(ctx, "", "apt-cache", append(slices.Clone(from), "search", "--names-only", pattern)...)
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(out) {
		name, _, _ := strings.Cut(line, " ")
		names = append(names, name)
	}
	return names, nil
}

// kept are the modules that a guest may load, beside all that they need: those of
// networks, of crypto (for what networks use) and of the disk that results leave by.
// The version names the folder of the cache, so that who adds one gets it.
var kept = struct {
	version string
	modules []string
}{"3", []string{
	"net", "lib", "crypto", "arch", "drivers/virtio", "drivers/block/virtio_blk", "drivers/net/veth", "drivers/net/dummy", "drivers/net/tun",
	"drivers/net/macvlan", "drivers/net/ifb", "drivers/net/vrf", "drivers/net/wireguard", "drivers/net/bonding", "drivers/net/virtio_net",
	"drivers/net/net_failover", "drivers/net/vxlan", "drivers/net/geneve",
}}

// keep moves the kernel and the modules that are kept, decompressed: emulated, xz
// takes long.
func keep(ctx context.Context, whole, tree, release string) error {
	modules := filepath.Join(tree, "lib", "modules", release)
	if err := os.MkdirAll(modules, 0o755); err != nil {
		return err
	}
	from, err := either(filepath.Join(whole, "lib", "modules", release), filepath.Join(whole, "usr", "lib", "modules", release))
	if err != nil {
		return err
	}
	image, err := either(filepath.Join(whole, "boot", "vmlinuz-"+release), filepath.Join(from, "vmlinuz"))
	if err != nil {
		return err
	}
	if err := os.Rename(image, filepath.Join(tree, "vmlinuz")); err != nil {
		return err
	}
	builtin, err := filepath.Glob(filepath.Join(from, "modules.*"))
	if err != nil {
		return err
	}
	for _, f := range builtin {
		if err := os.Rename(f, filepath.Join(modules, filepath.Base(f))); err != nil {
			return err
		}
	}
	for _, k := range kept.modules {
		found, err := filepath.Glob(filepath.Join(from, "kernel", k+"*"))
		if err != nil {
			return err
		}
		for _, f := range found {
			to := filepath.Join(modules, strings.TrimPrefix(f, from))
			if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.Rename(f, to)); err != nil {
				return err
			}
		}
	}
	if _, err := run(ctx, modules, "find", "kernel", "-name", "*.ko.xz", "-exec", "xz", "-d", "{}", "+"); err != nil {
		return err
	}
	_, err = run(ctx, "", "depmod", "-b", tree, release)
	return err
}

// either is the one of two files that a package has.
func either(a, b string) (string, error) {
	if exists(a) {
		return a, nil
	}
	if exists(b) {
		return b, nil
	}
	return "", fmt.Errorf("the packages have neither %s nor %s", filepath.Base(a), b)
}

// run is a program of this machine and what it writes to its output.
func run(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, find(name), args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "PATH="+searched())
	var out, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failed
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(failed.String()+out.String()))
	}
	return out.String(), nil
}
