package bans

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Author is who made a change, from where and why.
type Author struct {
	User   string `json:"user,omitempty"`      // who is behind it: sudo's caller, else who logged in
	Login  uint32 `json:"login-uid,omitempty"` // who logged in, as the kernel keeps it; 0: root, or it is not known
	From   string `json:"from,omitempty"`      // address of the ssh peer
	Via    string `json:"via,omitempty"`       // what passed it on, such as a controller; "": nothing did
	Reason string `json:"reason,omitempty"`    // of a ban it is beside the ban
}

// Because gives the reason for a change.
func (a *Author) Because(reason string) error {
	reason = strings.TrimSpace(reason)
	if len(reason) > MaxReason || !utf8.ValidString(reason) || strings.ContainsFunc(reason, unicode.IsControl) {
		return fmt.Errorf("%.40q is not a valid reason: use at most %[3]d bytes without control characters (it has %[2]d)", reason, len(reason), MaxReason)
	}
	a.Reason = reason
	return nil
}
