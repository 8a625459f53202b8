package kernels

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// As apt-cache search lists them on Debian 12 with its backports.
const listed = `linux-image-6.1.0-47-cloud-amd64 - Linux 6.1 for x86-64 cloud (signed)
linux-image-6.1.0-9-cloud-amd64 - Linux 6.1 for x86-64 cloud (signed)
linux-image-6.12-cloud-amd64 - Linux for x86-64 cloud (meta-package)
linux-image-6.12.9+deb12-cloud-amd64 - Linux 6.12 for x86-64 cloud (signed)
linux-image-6.12.117+deb12-cloud-amd64 - Linux 6.12 for x86-64 cloud (signed)
linux-image-6.12.200+deb12-cloud-amd64-unsigned - Linux 6.12
linux-image-6.16.3-rt-cloud-amd64 - Linux 6.16, real time
linux-image-6.9.7+bpo-cloud-amd64 - Linux 6.9
linux-image-cloud-amd64 - Linux for x86-64 cloud (meta-package)
linux-image-amd64-cloud-amd64
linux-headers-6.20.1-cloud-amd64 - headers
`

func TestPick(t *testing.T) {
	for version, want := range map[string]string{
		"6.1":                         "linux-image-6.1.0-47-cloud-amd64",
		"6.12":                        "linux-image-6.12.117+deb12-cloud-amd64",
		"6.12.9":                      "linux-image-6.12.9+deb12-cloud-amd64",
		"6.12.9+deb12-cloud-amd64":    "linux-image-6.12.9+deb12-cloud-amd64",
		"6.9":                         "linux-image-6.9.7+bpo-cloud-amd64",
		Newest:                        "linux-image-6.12.117+deb12-cloud-amd64",
		"6.16":                        "", // of another flavour
		"5.10":                        "",
		"6.12.200":                    "",
		"6.12.117+deb12-cloud-amd64x": "",
	} {
		if got := pick(listed, version); got != want {
			t.Errorf("kernel %s: %q, want %q", version, got, want)
		}
	}
	if got := pick("", Newest); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}

func TestNoVersion(t *testing.T) {
	for _, version := range []string{"", "6", "latest", "6.1; rm", "../6.1", "6.1/x", "-6.1"} {
		if _, err := Find(t.Context(), t.TempDir(), version, nil); err == nil || !strings.Contains(err.Error(), "hint: a version such as") {
			t.Errorf("%q: %v", version, err)
		}
	}
}

// Without package lists, what was fetched before serves.
func TestCached(t *testing.T) {
	cache := t.TempDir()
	for _, release := range []string{"6.1.0-9-cloud-amd64", "6.1.0-47-cloud-amd64", "6.12.1+deb12-cloud-amd64", "6.12.2+deb12-cloud-amd64", "apt"} {
		if err := os.MkdirAll(filepath.Join(cache, release), 0o755); err != nil {
			t.Fatal(err)
		}
		if release == "6.12.2+deb12-cloud-amd64" { // half fetched
			continue
		}
		if err := os.WriteFile(filepath.Join(cache, release, "vmlinuz"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for version, want := range map[string]string{
		"6.1": "6.1.0-47-cloud-amd64", "6.12": "6.12.1+deb12-cloud-amd64", Newest: "6.12.1+deb12-cloud-amd64", "6.13": "",
	} {
		if k, ok := cached(cache, version); k.Release != want || ok != (want != "") {
			t.Errorf("kernel %s: %q, want %q", version, k.Release, want)
		}
	}
}

func TestOrderOfReleases(t *testing.T) {
	want := []string{"6.1.0-9-cloud-amd64", "6.1.0-47-cloud-amd64", "6.9.7-cloud-amd64", "6.12.5-cloud-amd64", "6.12.41-cloud-amd64", "7.1.2-cloud-amd64"}
	got := slices.Clone(want)
	slices.Sort(got)
	slices.SortFunc(got, compare)
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestMissingProgramsAreNamed(t *testing.T) {
	err := need("sh", "qemu-system-none", "depmod-none")
	if err == nil || !strings.Contains(err.Error(), "missing on this machine: qemu-system-none, depmod-none") || !strings.Contains(err.Error(), "\nhint: apt-get install ") {
		t.Errorf("%v", err)
	}
	if err := need("sh"); err != nil {
		t.Error(err)
	}
	t.Setenv("PATH", t.TempDir())
	if err := need("qemu-system-x86_64-none", "/nowhere/postgres"); err == nil || !strings.Contains(err.Error(), "/nowhere/postgres") {
		t.Errorf("%v", err)
	}
}
