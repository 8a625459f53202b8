package kernels

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// Kernel is one that was fetched and can be booted.
type Kernel struct {
	Release string // as of uname -r
	tree    string // what was unpacked of the package: vmlinuz, lib/modules
}

const (
	packageStart = "linux-image-"
	packageEnd   = "-cloud-amd64"
)

// defaultCache is where kernels are kept when nobody names another place.
func defaultCache() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "sluice", "kernels"), nil
}

// Find returns the newest kernel of a version, fetched when it is not in the cache
// yet. The package lists of this machine are asked first, then those of Debian's
// other suites, which are kept in the cache. Where neither can be had, what is in
// the cache serves. say (nil is nobody) is told what is fetched.
func Find(ctx context.Context, cache, version string, say func(string)) (Kernel, error) {
	if version == "" {
		return Kernel{}, errors.New("no kernel is named\nhint: a version such as 6.1 or 6.12, or " + Newest)
	}
	if version != Newest && !named.MatchString(version) {
		return Kernel{}, fmt.Errorf("%q is no version of a kernel\nhint: a version such as 6.1 or 6.12, or %s", version, Newest)
	}
	if say == nil {
		say = func(string) {}
	}
	if cache == "" {
		var err error
		if cache, err = defaultCache(); err != nil {
			return Kernel{}, err
		}
	}
	cache, err := filepath.Abs(cache)
	if err != nil {
		return Kernel{}, err
	}
	cache = filepath.Join(cache, kept.version)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return Kernel{}, err
	}
	unlock, err := lockedfile.MutexAt(filepath.Join(cache, ".lock")).Lock()
	if err != nil {
		return Kernel{}, err
	}
	defer unlock()

	f := fetcher{cache: cache, say: say}
	name, from, err := f.choose(ctx, version)
	if err != nil {
		if k, ok := cached(cache, version); ok {
			say(fmt.Sprintf("no package list can be had, kernel %s is in the cache", k.Release))
			return k, nil
		}
		return Kernel{}, err
	}
	k := at(cache, strings.TrimPrefix(name, packageStart))
	if !k.there() {
		if err := f.fetch(ctx, name, from, k); err != nil {
			return Kernel{}, fmt.Errorf("fetch %s: %w", name, err)
		}
	}
	return k, nil
}

func at(cache, release string) Kernel { return Kernel{release, filepath.Join(cache, release)} }

func (k Kernel) there() bool {
	_, err := os.Stat(k.vmlinuz())
	return err == nil
}

func (k Kernel) vmlinuz() string { return filepath.Join(k.tree, "vmlinuz") }

// cached is the newest kernel of a version that was fetched before.
func cached(cache, version string) (Kernel, bool) {
	entries, _ := os.ReadDir(cache)
	var releases []string
	for _, e := range entries {
		if matches(e.Name(), version) && at(cache, e.Name()).there() {
			releases = append(releases, e.Name())
		}
	}
	if len(releases) == 0 {
		return Kernel{}, false
	}
	return at(cache, slices.MaxFunc(releases, compare)), true
}

var named = regexp.MustCompile(`^[0-9]+\.[0-9][0-9a-z.+~-]*$`)

// released is a release of one version: flavours for development of the compiler
// or real time have a word more before "cloud".
var released = regexp.MustCompile(`^[0-9]+\.[0-9]+(\.[0-9]+)?(-[0-9][0-9a-z.+~]*|[+~][0-9a-z.+~]+)?-cloud-amd64$`)

// matches reports whether a release is of a version as [Options] have it.
func matches(release, version string) bool {
	if !released.MatchString(release) {
		return false
	}
	if version == Newest || release == version {
		return true
	}
	rest, ok := strings.CutPrefix(release, version)
	return ok && !strings.ContainsAny(rest[:1], "0123456789")
}

// compare orders releases by their numbers, so that 6.12 is after 6.9.
func compare(a, b string) int {
	x, y := numbers(a), numbers(b)
	if c := slices.Compare(x, y); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

var digits = regexp.MustCompile(`[0-9]+`)

func numbers(release string) []int {
	var out []int
	for _, d := range digits.FindAllString(strings.TrimSuffix(release, packageEnd), -1) {
		n, _ := strconv.Atoi(d) // a number too long to read sorts as the largest
		out = append(out, n)
	}
	return out
}
