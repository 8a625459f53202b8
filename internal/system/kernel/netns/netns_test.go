package netns_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"sluice/internal/lab/testnet"
	"sluice/internal/system/kernel/netns"
)

// where is the network namespace of a thread or process, as the kernel names it.
func where(t *testing.T, task string) string {
	t.Helper()
	text, err := os.Readlink("/proc/" + task + "/ns/net")
	if err != nil {
		t.Error(err)
	}
	return text
}

func open(t *testing.T, path string) *netns.Namespace {
	t.Helper()
	n, err := netns.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// What is done inside of several namespaces at once stays inside, with the programs that
// it starts; all other goroutines stay where they were.
func TestManyAtOnce(t *testing.T) {
	lab := testnet.New(t)
	var spaces []*netns.Namespace
	for range 4 {
		spaces = append(spaces, open(t, lab.Unnamed("one").Path()))
	}
	process := where(t, "self")
	inside, over := make(chan string), make(chan struct{})
	var running sync.WaitGroup
	const each = 8
	for _, n := range spaces {
		for range each {
			running.Go(func() {
				err := n.Do(func() error {
					inside <- where(t, "thread-self")
					<-over
					out, err := exec.Command("readlink", "/proc/self/ns/net").Output()
					if got := strings.TrimSpace(string(out)); err == nil && got != where(t, "thread-self") {
						t.Errorf("a program runs in %s", got)
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
				if got := where(t, "thread-self"); got != process {
					t.Errorf("behind it the goroutine is in %s", got)
				}
			})
		}
	}
	seen := map[string]int{}
	for range each * len(spaces) {
		seen[<-inside]++
	}
	if len(seen) != len(spaces) || seen[process] > 0 {
		t.Errorf("inside are %v", seen)
	}
	close(over)
	running.Wait()
	for range 100 {
		running.Go(func() {
			if got := where(t, "thread-self"); got != process {
				t.Errorf("another goroutine runs in %s", got)
			}
		})
	}
	running.Wait()
}

// The first thread is never taken: /proc/self shows to everybody where it is, and it does
// not end with a goroutine.
func TestFirstThread(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	process := where(t, "self")
	n, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for range 20 {
		var running sync.WaitGroup
		inside, over := make(chan bool), make(chan bool)
		for range 50 {
			running.Go(func() {
				if err := n.Do(func() error { inside <- true; <-over; return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		for range 50 {
			<-inside
		}
		close(over)
		running.Wait()
		if got := where(t, "self"); got != process {
			t.Fatalf("the process is in %s, and was in %s", got, process)
		}
	}
}

// A namespace may be entered out of another one; Here is what a goroutine takes along.
func TestHere(t *testing.T) {
	lab := testnet.New(t)
	a, b := open(t, lab.Unnamed("a").Path()), open(t, lab.Unnamed("b").Path())
	err := a.Do(func() error {
		outside := where(t, "thread-self")
		here, err := netns.Here()
		if err != nil {
			return err
		}
		defer here.Close()
		id, err := netns.ID()
		if err != nil {
			return err
		}
		return b.Do(func() error {
			if got := where(t, "thread-self"); got == outside {
				t.Error("the inner one is the outer one")
			}
			if other, err := netns.ID(); err != nil || other == id {
				t.Errorf("the inner one has the identity %s of the outer one, %v", other, err)
			}
			return here.Do(func() error {
				if got := where(t, "thread-self"); got != outside {
					t.Errorf("brought along %s, want %s", got, outside)
				}
				return nil
			})
		})
	})
	if err != nil {
		t.Error(err)
	}
	var nowhere *netns.Namespace
	before := where(t, "thread-self")
	if err := nowhere.Do(func() error {
		if got := where(t, "thread-self"); got != before {
			t.Errorf("nil leads to %s", got)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	host := testnet.New(t).Namespace("named")
	names, err := netns.Names()
	if err != nil || !slices.Contains(names, host.Name()) || !slices.IsSorted(names) {
		t.Errorf("%q, %v", names, err)
	}
	n, err := netns.Named(host.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if err := n.Do(func() error {
		if got, err := netns.Name(); got != host.Name() {
			t.Errorf("inside of %s the name is %q, %v", host.Name(), got, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"", ".", "..", "../netns/" + host.Name(), "a\x00b", "no-such-one"} {
		if _, err := netns.Named(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// New makes another one each time, without a name, and what fails inside is told.
func TestNew(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	n, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	broken := errors.New("broken")
	if err := n.Do(func() error {
		if name, err := netns.Name(); name != "" || err != nil {
			t.Errorf("it has the name %q, %v", name, err)
		}
		if all, err := net.Interfaces(); err != nil || len(all) != 1 {
			t.Errorf("it has devices %v, %v", all, err)
		}
		return broken
	}); !errors.Is(err, broken) {
		t.Error(err)
	}
	if err := n.Do(func() error { runtime.Goexit(); return nil }); err == nil {
		t.Error("what never ended well is no error")
	}
}

// A resolver asks from inside, whichever goroutine it asks from.
func TestResolver(t *testing.T) {
	host := testnet.New(t).Unnamed("host")
	n := open(t, host.Path())
	var server net.PacketConn
	if err := n.Do(func() (err error) { server, err = net.ListenPacket("udp", "127.0.0.1:0"); return err }); err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	conn, err := n.Resolver().Dial(t.Context(), "udp", server.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	question := make([]byte, 100)
	if got, _, err := server.ReadFrom(question); err != nil || string(question[:got]) != "question" {
		t.Errorf("%q, %v", question[:got], err)
	}
}
