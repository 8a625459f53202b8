package attached

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"sluice/internal/lab/testnet"
)

// A link is found by its id where the kernel does not tell what is at its hooks.
func TestLinks(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	want := Thing{Kind: Netfilter, Family: "ip6", Hook: "forward", Priority: -17, Name: fmt.Sprint("pass_", os.Getpid()), Anywhere: true}
	found := func() (n int) {
		var l list
		if err := l.links(); err != nil {
			t.Fatal(err)
		}
		for _, thing := range l.things {
			thing.Program = 0
			if thing == want {
				n++
			}
		}
		return n
	}
	if err := testnet.New(t).Unnamed("here").Do(func() error {
		program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: want.Name, Type: ebpf.Netfilter, AttachType: ebpf.AttachNetfilter, License: "GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()},
		})
		if err != nil {
			t.Skipf("the kernel takes no program at netfilter hooks: %v", err)
		}
		defer program.Close()
		if n := found(); n != 0 {
			t.Errorf("%d links are found before there is one", n)
		}
		l, err := link.AttachNetfilter(link.NetfilterOptions{
			Program: program, ProtocolFamily: link.NetfilterProtoIPv6, Hook: link.NetfilterInetForward, Priority: int32(want.Priority),
		})
		if err != nil {
			return err
		}
		if n := found(); n != 1 {
			t.Errorf("the link is found %d times", n)
		}
		return l.Close()
	}); err != nil {
		t.Fatal(err)
	}
}

// The kernel writes nothing behind the attributes of a query.
func TestQueryWritesWithin(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	if err := testnet.New(t).Unnamed("here").Do(func() error {
		loopback, err := net.InterfaceByName("lo")
		if err != nil {
			return err
		}
		var at struct {
			programQuery
			behind [32]uint64
		}
		for _, place := range []int{unix.BPF_TCX_INGRESS, unix.BPF_TCX_EGRESS} {
			at.programQuery = programQuery{device: uint32(loopback.Index), place: uint32(place)}
			_, err := bpf(unix.BPF_PROG_QUERY, &at.programQuery)
			if at.behind != [32]uint64{} {
				t.Errorf("behind the attributes stands %x, %v", at.behind, err)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// A link that is just being made has an id that opens nothing yet.
func TestLinksBeingMade(t *testing.T) {
	testnet.Require(t, testnet.Namespaces)
	here := testnet.New(t).Unnamed("here")
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "comes_and_goes", Type: ebpf.Netfilter, AttachType: ebpf.AttachNetfilter, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()},
	})
	if err != nil {
		t.Skipf("the kernel takes no program at netfilter hooks: %v", err)
	}
	defer program.Close()
	end, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- here.Do(func() error {
			for {
				select {
				case <-end:
					return nil
				default:
				}
				l, err := link.AttachNetfilter(link.NetfilterOptions{
					Program: program, ProtocolFamily: link.NetfilterProtoIPv4, Hook: link.NetfilterInetForward, Priority: 17,
				})
				if errors.Is(err, unix.EBUSY) { // who looks has the one before open
					continue
				}
				if err != nil {
					return err
				}
				if err := l.Close(); err != nil {
					return err
				}
			}
		})
	}()
	for range 2000 {
		var l list
		if err := l.links(); err != nil {
			t.Error(err)
			break
		}
	}
	close(end)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
