package attached

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// From include/uapi/linux/netfilter/nfnetlink_hook.h.
const (
	hookNumber, hookPriority, hookFunction, hookModule, hookChain = 1, 2, 4, 5, 6

	chainDescription, chainType = 1, 2 // NFNLA_HOOK_INFO_*
	typeBPF                     = 2    // NFNL_HOOK_TYPE_BPF
	bpfID                       = 1    // NFNLA_HOOK_BPF_ID
)

// inetHooks are the hooks of families ip and ip6 by their numbers (NF_INET_*).
var inetHooks = []string{"prerouting", "input", "forward", "output", "postrouting"}

// families that are asked, by NFPROTO_*.
var families = []struct {
	number uint8
	name   string
}{{unix.NFPROTO_IPV4, "ip"}, {unix.NFPROTO_IPV6, "ip6"}}

// knownModules have functions at the hooks whose rules or effects are read elsewhere:
// chains, tracking, NAT.
var knownModules = []string{"nf_", "nft_", "ip_tables", "ip6_tables", "iptable_", "ip6table_", "xt_", "x_tables", "br_netfilter", "bridge", "nfnetlink"}

// errNoHooks says that the kernel was built without CONFIG_NETFILTER_NETLINK_HOOK.
var errNoHooks = errors.New("the kernel does not tell what is at its hooks")

// hooks adds programs and modules' functions at netfilter hooks. Where the kernel does
// not tell them, its links of BPF programs are all that is known, of all namespaces.
func (l *list) hooks() {
	for _, f := range families {
		for number := range inetHooks {
			switch err := l.hook(f.number, f.name, number); {
			case errors.Is(err, errNoHooks):
				l.failed("BPF links", l.links())
				return
			case err != nil:
				l.failed("netfilter hook "+inetHooks[number], err)
			}
		}
	}
}

func (l *list) hook(family uint8, name string, number int) error {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	e := netlink.NewAttributeEncoder()
	e.ByteOrder = binary.BigEndian
	e.Uint32(hookNumber, uint32(number)) //nolint:gosec // one of five
	data, err := e.Encode()
	if err != nil {
		return err
	}
	answers, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_HOOK << 8, Flags: netlink.Request | netlink.Dump},
		Data:   append([]byte{family, unix.NFNETLINK_V0, 0, 0}, data...),
	})
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOENT):
		return errNoHooks // no such subsystem: nfnetlink_rcv_msg
	case err != nil:
		return err
	}
	for _, m := range answers {
		if len(m.Data) < 4 {
			continue
		}
		if err := l.function(m.Data[4:], name, inetHooks[number]); err != nil {
			return fmt.Errorf("read what is at it: %w", err)
		}
	}
	return nil
}

// function reads one entry of a hook.
func (l *list) function(data []byte, family, hook string) error {
	t := Thing{Kind: Function, Family: family, Hook: hook}
	var module, function string
	var program uint32
	var chain bool
	d, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return err
	}
	d.ByteOrder = binary.BigEndian
	for d.Next() {
		switch d.Type() {
		case hookPriority:
			t.Priority = int(int32(d.Uint32())) //nolint:gosec // the kernel's own sign
		case hookFunction:
			function = d.String()
		case hookModule:
			module = d.String()
		case hookChain:
			d.Nested(func(d *netlink.AttributeDecoder) error {
				chain = true
				isBPF := false
				var description []byte
				for d.Next() {
					switch d.Type() {
					case chainType:
						isBPF = d.Uint32() == typeBPF
					case chainDescription:
						description = d.Bytes()
					}
				}
				if !isBPF {
					return nil
				}
				of, err := netlink.NewAttributeDecoder(description)
				if err != nil {
					return err
				}
				of.ByteOrder = binary.BigEndian
				for of.Next() {
					if of.Type() == bpfID {
						program = of.Uint32()
					}
				}
				return of.Err()
			})
		}
	}
	if err := d.Err(); err != nil {
		return err
	}
	switch {
	case program != 0:
		t.Kind = Netfilter
		l.program(t, program)
	case !chain && module != "" && !slices.ContainsFunc(knownModules, func(known string) bool { return strings.HasPrefix(module, known) }):
		t.Name = module + ", " + function
		l.things = append(l.things, t)
	}
	return nil
}

// links adds the BPF links of netfilter hooks.
func (l *list) links() error {
	links, err := netfilterLinks()
	for _, at := range links {
		if int(at.Hook) >= len(inetHooks) {
			continue
		}
		family := ""
		for _, f := range families {
			if uint32(f.number) == at.Family {
				family = f.name
			}
		}
		l.program(Thing{Kind: Netfilter, Family: family, Hook: inetHooks[at.Hook], Priority: int(at.Priority), Anywhere: true}, at.Program)
	}
	if missing(err) {
		return nil
	}
	return err
}
