package trust

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// List is what a live list of the policy holds by now: the payload of an envelope of its kind.
type List struct {
	Name   string `json:"name"`   // of the file below URLLists that was signed with the policy
	SHA256 string `json:"sha256"` // of a list of addresses
	Size   int64  `json:"size"`   // bytes
	// AllowCut has hosts take it where it cuts live connections too.
	AllowCut bool `json:"allow-cut,omitempty"`
}

// listPrefix is what the kinds of lists begin with.
const listPrefix = "list:"

var listShape = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}-[0-9a-f]{12}\.txt$`) })

// ListKind is the kind of the envelopes of a list.
func ListKind(name string) string { return listPrefix + name }

// ListOf is the name of the list that envelopes of a kind are of.
func ListOf(kind string) (name string, is bool) { return strings.CutPrefix(kind, listPrefix) }

// CheckListName says why something is not the name of a list.
func CheckListName(name string) error {
	if !listShape().MatchString(name) {
		return fmt.Errorf("%.100q is %w: it is not the name of a list", name, ErrMalformed)
	}
	return nil
}

// ReadList reads the payload of an envelope of a list.
func ReadList(name string, payload []byte) (l List, err error) {
	what := "the list"
	if err := CheckListName(name); err != nil {
		return l, err
	}
	if err := strictly(what, payload, &l); err != nil {
		return l, err
	}
	switch {
	case l.Name != name:
		return l, fmt.Errorf("%s is %w: it is %.100q, and its kind says %q", what, ErrMalformed, l.Name, name)
	case !isHash(l.SHA256) || l.Size < 0:
		return l, fmt.Errorf("%s %s is %w: it has no hash", what, name, ErrMalformed)
	case l.Size > MaxList:
		return l, fmt.Errorf("%s %s is %w: %d bytes, at most %d", what, name, ErrTooLarge, l.Size, MaxList)
	}
	return l, nil
}
