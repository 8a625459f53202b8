package stories

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
)

// webPrograms are what the kernel lab has to bring for stories 1 and 5.
var webPrograms = []string{"nginx", "iptables"}

// openFiles is how many files nginx and the load want open at once, each of them.
const openFiles = 16384

// raiseFiles lifts the limit of open files for this process and those it starts.
func raiseFiles() error {
	var have unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &have); err != nil {
		return err
	}
	limit := unix.Rlimit{Cur: openFiles, Max: max(have.Max, openFiles)}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("allow %d open files (ulimit -Hn is %d): %w", openFiles, have.Max, err)
	}
	return nil
}

// The pages that nginx serves.
const (
	smallPage = "" // a line of text, made by nginx itself
	webPage   = "page.html"
)

// webPageSize is in bytes, before nginx compresses it, as it does for browsers.
const webPageSize = 64 << 10

// htmlPage is a page of words, which compresses as text does.
func (s *Stage) htmlPage() []byte {
	random := rand.New(rand.NewPCG(s.Seed, 1))
	words := make([]string, 2000)
	for i := range words {
		word := make([]byte, 2+random.IntN(8))
		for at := range word {
			word[at] = "etaoinsrhldcumfpgwybvk"[min(random.IntN(22), random.IntN(22))]
		}
		words[i] = string(word)
	}
	page := []byte("<!doctype html>\n<title>A page of a web site</title>\n<p>\n")
	for len(page) < webPageSize {
		page = append(page, words[min(random.IntN(len(words)), random.IntN(len(words)))]...)
		page = append(page, " \n"[min(1, random.IntN(12)/11)])
	}
	return page
}

// startNginx serves the pages on port 80 of every address, as a set-up step. A server
// that ends before the story does is the story's error.
func (s *Stage) startNginx(in *testnet.Namespace) error {
	dir := filepath.Join(s.Dir, "nginx-"+in.Label())
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, webPage), s.htmlPage(), 0o644); err != nil {
		return err
	}
	in.Sysctl("net.core.somaxconn", "8192")
	in.Sysctl("net.ipv4.tcp_max_syn_backlog", "8192")
	p, err := in.ServeWeb(dir, fmt.Sprintf(`		location = / { return 200 "A page of a web site.\n"; }
		location = /%[2]s {
			default_type text/html;
			root %[1]s;
			gzip on;
		}
`, dir, webPage))
	if err != nil {
		return err
	}
	s.servers = append(s.servers, server{in.Label(), p})
	return nil
}

// server is a program that a story needs until its end.
type server struct {
	name string
	*testnet.Process
}

// serversRun is an error where one of the servers has ended.
func (s *Stage) serversRun() error {
	for _, p := range s.servers {
		select {
		case <-p.Done():
			return fmt.Errorf("nginx of %s has ended\n%s", p.name, p.Output())
		default:
		}
	}
	return nil
}
