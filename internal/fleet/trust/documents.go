package trust

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"sync"

	"sluice/internal/base/selector"
)

// Members is the payload of [KindMembers]: what sets by hosts and guests hold.
type Members struct {
	Sets map[string]Content `json:"sets"`
}

// Content is what a set holds: the text that [AddressText] makes has this hash and size.
type Content struct {
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// Guests is the payload of [KindGuests]: the machines on one host.
type Guests struct {
	Host   string           `json:"host"`
	Guests map[string]Guest `json:"guests"`
}

// Guest is a machine on a host.
type Guest struct {
	Interface string            `json:"interface"`
	Netns     string            `json:"netns,omitempty"` // that the interface is in; "": the host's own
	Addresses []netip.Addr      `json:"addresses"`
	Public    []netip.Addr      `json:"public,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Rules     string            `json:"rules,omitempty"` // of its owner, in the policy language
}

// MaxRules is how many bytes the rules of a guest's owner have at most.
const MaxRules = 64 << 10

// guestShape is that of an id, which is the name of a file too.
var guestShape = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`) })

// What a document has at most.
const (
	maxSets    = 10_000
	maxGuests  = 5_000    // on one host
	maxContent = 16 << 20 // bytes of a set
	maxName    = 253
)

// ReadMembers reads what an envelope of [KindMembers] held.
func ReadMembers(payload []byte) (*Members, error) {
	const what = "the members"
	m := &Members{}
	if err := json.Unmarshal(payload, m); err != nil {
		return nil, fmt.Errorf("%s are %w: %s", what, ErrMalformed, err.Error())
	}
	if len(m.Sets) > maxSets {
		return nil, fmt.Errorf("%s are %w: of %d sets, at most %d", what, ErrTooLarge, len(m.Sets), maxSets)
	}
	for name, c := range m.Sets {
		switch {
		case !isHash(c.SHA256) || c.Size < 0:
			return nil, fmt.Errorf("%s are %w: set %.80q has no hash", what, ErrMalformed, name)
		case c.Size > maxContent:
			return nil, fmt.Errorf("%s are %w: set %.80q has %d bytes, at most %d", what, ErrTooLarge, name, c.Size, maxContent)
		}
	}
	return m, nil
}

// ReadGuests reads what an envelope of [KindGuests] held, which has to be this host's. What
// guests may be is the policy language's to say.
func ReadGuests(payload []byte, host string) (*Guests, error) {
	const what = "the guests"
	g := &Guests{}
	if err := json.Unmarshal(payload, g); err != nil {
		return nil, fmt.Errorf("%s are %w: %s", what, ErrMalformed, err.Error())
	}
	if g.Host != host {
		return nil, fmt.Errorf("%s are %w: they are those of host %.253q", what, ErrWrongHost, g.Host)
	}
	if len(g.Guests) > maxGuests {
		return nil, fmt.Errorf("%s are %w: there are %d, at most %d", what, ErrTooLarge, len(g.Guests), maxGuests)
	}
	for id, guest := range g.Guests {
		switch {
		case len(id) > maxName || len(guest.Interface) > maxName || len(guest.Netns) > maxName || len(guest.Rules) > MaxRules:
			return nil, fmt.Errorf("%s are %w: a name of more than %d bytes, or rules of more than %d", what, ErrTooLarge, maxName, MaxRules)
		case !guestShape().MatchString(id):
			return nil, fmt.Errorf("%s are %w: %.80q is not the name of a guest", what, ErrMalformed, id)
		case guest.Netns != "" && !guestShape().MatchString(guest.Netns):
			return nil, fmt.Errorf("%s are %w: %.80q is not the name of a network namespace", what, ErrMalformed, guest.Netns)
		}
		for _, a := range append(guest.Addresses[:len(guest.Addresses):len(guest.Addresses)], guest.Public...) {
			if !a.IsValid() || a.Zone() != "" || a.Is4In6() {
				return nil, fmt.Errorf("%s are %w: %q of %.80q is not an address of a guest", what, ErrMalformed, a, id)
			}
		}
		for name, value := range guest.Labels {
			if err := selector.CheckLabel(name, value); err != nil {
				return nil, fmt.Errorf("%s are %w: %.80q: %s", what, ErrMalformed, id, err.Error())
			}
		}
	}
	return g, nil
}

// AddressText is what a set holds as a text, of addresses in their order.
func AddressText(sorted []netip.Addr) []byte {
	text := []byte{}
	for _, a := range sorted {
		text = append(a.AppendTo(text), '\n')
	}
	return text
}

// Read reads the text of a set, which must be the signed one.
func (c Content) Read(text []byte) (lines []string, err error) {
	if err := checkHash("a set", c.SHA256, c.Size, text); err != nil {
		return nil, err
	}
	var last netip.Addr
	for line := range strings.Lines(string(text)) {
		line, whole := strings.CutSuffix(line, "\n")
		a, err := netip.ParseAddr(line)
		if err != nil || !whole || a.String() != line || a.Zone() != "" || a.Is4In6() || last.IsValid() && !last.Less(a) {
			return nil, fmt.Errorf("a set is %w: line %.80q", ErrMalformed, line)
		}
		lines, last = append(lines, line), a
	}
	return lines, nil
}
