package matrix

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// coreTests are what is asked of the kernel, every construct that is written into it
// at once, every example, the facts that the design rests on, and hosts that are ill by what is the
// whole machine's: emulation is some
// thirty times slower than the machine.
const coreTests = "^Test(Capabilities|ConstructsTogether|Accelerate|WordsTogether|WordsOfNAT|Example|Fact|MachineIllnesses)"

// testPackage is one whose tests make network namespaces, which the rest say nothing
// about, and those of its tests that were named.
type testPackage struct {
	path, dir string
	tests     []string
}

const listed = `{{.ImportPath}} {{.Dir}} ,{{join .TestImports ","}},{{join .XTestImports ","}}, {{join .TestGoFiles ","}},{{join .XTestGoFiles ","}}`

// kernelPackages are those among patterns of go list that have tests which an
// expression names. The sources are read: to build every test takes minutes.
func kernelPackages(ctx context.Context, patterns []string, expression string) ([]testPackage, error) {
	first, _, _ := strings.Cut(expression, "/") // what follows are names of subtests
	wanted, err := regexp.Compile(first)
	if err != nil {
		return nil, fmt.Errorf("names of tests: %w", err)
	}
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	out, err := tool(ctx, "go", append([]string{"list", "-f", listed}, patterns...)...)
	if err != nil {
		return nil, err
	}
	var all []testPackage
	several := false
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) != 4 || !strings.Contains(f[2], ",sluice/internal/lab/testnet,") {
			continue
		}
		several = true
		dir, err := filepath.Rel(root, f[1])
		if err != nil {
			return nil, err
		}
		p := testPackage{path: f[0], dir: dir}
		for _, name := range strings.Split(f[3], ",") {
			if name == "" {
				continue
			}
			text, err := os.ReadFile(filepath.Join(f[1], name))
			if err != nil {
				return nil, err
			}
			p.tests = append(p.tests, testsIn(text, wanted)...)
		}
		if len(p.tests) > 0 {
			all = append(all, p)
		}
	}
	switch {
	case !several:
		return nil, fmt.Errorf("no tests of %s make a network namespace: there is nothing to ask another kernel", strings.Join(patterns, " "))
	case len(all) == 0:
		return nil, fmt.Errorf("no test of %s matches %q", strings.Join(patterns, " "), expression)
	}
	return all, nil
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w*)\(\w+ \*testing\.T\)`)

// testsIn are the tests of a source file whose names match.
func testsIn(source []byte, wanted *regexp.Regexp) []string {
	var names []string
	for _, m := range testFunction.FindAllSubmatch(source, -1) {
		if wanted.Match(m[1]) {
			names = append(names, string(m[1]))
		}
	}
	return names
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
		if _, err := tool(ctx, "go", "test", "-c", "-trimpath", "-ldflags=-s -w", "-o", file, p.path); err != nil {
			return nil, err
		}
		files[guestTest(p.dir)] = file
	}
	read, err := tool(ctx, "git", "ls-files", "-co", "--exclude-standard", "examples", "internal/**/testdata/**", "internal/language/geo/*", "go.mod")
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

// share deals tests out to several guests, there and back again, so that neighbours,
// which often take alike, go to different ones.
func share(all []testPackage, guests int) [][]testPackage {
	shares := make([][]testPackage, guests)
	next := 0
	for _, of := range all {
		parts := make([]testPackage, guests)
		for _, test := range of.tests {
			to := next % (2 * guests)
			if to >= guests {
				to = 2*guests - 1 - to
			}
			parts[to].tests = append(parts[to].tests, test)
			next++
		}
		for i, p := range parts {
			if len(p.tests) > 0 {
				shares[i] = append(shares[i], testPackage{of.path, of.dir, p.tests})
			}
		}
	}
	return slices.DeleteFunc(shares, func(s []testPackage) bool { return len(s) == 0 })
}

// testCommand is a shell script that runs tests, package by package. What failed is
// shown whole. Root is where the repository is in the guest; subtests is what
// follows the first / of an expression, with it.
func testCommand(root string, all []testPackage, subtests string) string {
	script := strings.ReplaceAll(packageFunction, "ROOT", root)
	script += "status=0\necho \"kernel $(uname -r), $(nft --version)\"\n"
	for _, p := range all {
		script += fmt.Sprintf("package %s %s || status=1\n", quote(p.dir), quote("^("+strings.Join(p.tests, "|")+")$"+subtests))
	}
	return script + "exit $status\n"
}

const packageFunction = `package() {
	cd "ROOT/$1" || return
	from=$(date +%s)
	if ./kernel.test -test.short -test.v -test.run "$2" -test.timeout 40m >/tmp/kernel-test-log 2>&1; then
		grep '^--- ' /tmp/kernel-test-log
		echo "ok  	sluice/$1	$(($(date +%s) - from)).000s"
	else
		grep -vE '^ *(=== |--- PASS)' /tmp/kernel-test-log
		echo "FAIL	sluice/$1	$(($(date +%s) - from)).000s"
		return 1
	fi
}
`

// guestTest is where the tests of a package are in the guest.
func guestTest(dir string) string { return path.Join("/src", dir, "kernel.test") }

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
