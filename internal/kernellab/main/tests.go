package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// coreTests are what is asked of the kernel, every construct that is written into it
// at once, every example, and the facts that the design rests on: emulation is some
// thirty times slower than the machine.
const coreTests = "^Test(Capabilities|ConstructsTogether|Accelerate|WordsTogether|WordsOfNAT|Example|Fact)"

// testPackage is one whose tests make network namespaces. The rest say nothing
// about a kernel.
type testPackage struct{ path, dir string }

const listed = `{{.ImportPath}} {{.Dir}} {{join .TestImports ","}},{{join .XTestImports ","}},`

// kernelPackages are those among patterns of go list.
func kernelPackages(ctx context.Context, patterns []string) ([]testPackage, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	out, err := tool(ctx, "go", append([]string{"list", "-f", listed}, patterns...)...)
	if err != nil {
		return nil, err
	}
	var all []testPackage
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) != 3 || !strings.Contains(","+f[2], ",sluice/internal/testnet,") {
			continue
		}
		dir, err := filepath.Rel(root, f[1])
		if err != nil {
			return nil, err
		}
		all = append(all, testPackage{f[0], dir})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no tests of %s make a network namespace: there is nothing to ask another kernel", strings.Join(patterns, " "))
	}
	return all, nil
}

// buildSluice builds the binary under test into a directory.
func buildSluice(ctx context.Context, work string) (string, error) {
	file := filepath.Join(work, "sluice")
	_, err := tool(ctx, "go", "build", "-trimpath", "-o", file, "./cmd/sluice")
	return file, err
}

// buildTests builds the tests of packages, and returns the guest's files: the
// binaries where the packages are in the repository, and what they read beside them.
func buildTests(ctx context.Context, work string, packages []testPackage) (map[string]string, error) {
	files := map[string]string{}
	for _, p := range packages {
		file := filepath.Join(work, strings.ReplaceAll(p.dir, "/", "-")+".test")
		if _, err := tool(ctx, "go", "test", "-c", "-trimpath", "-o", file, p.path); err != nil {
			return nil, err
		}
		files[path.Join("/src", p.dir, "kernel.test")] = file
	}
	read, err := tool(ctx, "git", "ls-files", "-co", "--exclude-standard", "examples", "internal/**/testdata/**", "internal/geo/*", "go.mod")
	if err != nil {
		return nil, err
	}
	for name := range strings.Lines(read) {
		name = strings.TrimSpace(name)
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
			files[path.Join("/src", name)] = name
		}
	}
	return files, nil
}

// programs that some tests ask for, beside those that every guest has.
var testPrograms = []string{"jq", "tcpdump", "ncat", "nginx", "dnsmasq", "dig", "iptables-nft-save", "iptables-save"}

func installed(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, err := exec.LookPath(name)
		return err != nil
	})
}

// testCommand runs the tests of every package in turn. What failed is shown whole.
func testCommand(packages []testPackage, tests string) string {
	var script strings.Builder
	fmt.Fprintf(&script, `tests=%s
echo "kernel $(uname -r), $(nft --version)"
status=0
`, quote(tests))
	for _, p := range packages {
		fmt.Fprintf(&script, "package %s || status=1\n", quote(p.dir))
	}
	return packageFunction + script.String() + "exit $status\n"
}

const packageFunction = `package() {
	cd "/src/$1" || return
	./kernel.test -test.list "$tests" | grep -q . || return 0
	from=$(date +%s)
	if ./kernel.test -test.short -test.v -test.run "$tests" -test.timeout 40m >/tmp/log 2>&1; then
		grep '^--- ' /tmp/log
		echo "ok  	sluice/$1	$(($(date +%s) - from)).000s"
	else
		grep -vE '^ *(=== |--- PASS)' /tmp/log
		echo "FAIL	sluice/$1	$(($(date +%s) - from)).000s"
		return 1
	fi
}
`

func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// tool runs a program in the repository and returns what it writes.
func tool(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var out, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failed
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, failed.String())
	}
	return out.String(), nil
}
