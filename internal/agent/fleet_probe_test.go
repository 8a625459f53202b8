package agent

import (
	"context"
	"net"
	"strings"
	"testing"
)

// A probe whose name no resolver answers for says that, and not that its service is closed.
func TestProbeNotLookedUp(t *testing.T) {
	nobody := func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
	dialer := net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: nobody}}
	_, err := dialer.DialContext(t.Context(), "tcp", "db.example.net:5432")
	if err = lookupFailed(err); err == nil || !strings.HasPrefix(err.Error(), "db.example.net was not looked up") {
		t.Error(err)
	}
	_, err = dialer.DialContext(t.Context(), "tcp", "127.0.0.1:1")
	if err = lookupFailed(err); err == nil || strings.Contains(err.Error(), "looked up") {
		t.Error(err)
	}
}
