package doctor_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/doctor"
)

// TestManyListeners: who may open sockets and no more does not fill the report: sockets of
// one address are one, and of what is found by one check the rest is a number.
func TestManyListeners(t *testing.T) {
	b := newBroken(t)
	reuse := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	}}
	if err := b.host.Do(func() error {
		for i := range 30 {
			at := fmt.Sprintf(":%d", 5000+i)
			for range 3 {
				l, err := reuse.Listen(context.Background(), "tcp4", "0.0.0.0"+at)
				if err != nil {
					return err
				}
				t.Cleanup(func() { _ = l.Close() })
			}
			conn, err := net.Dial("tcp4", "127.0.0.1"+at)
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = conn.Close() })
		}
		all, err := doctor.Examine(t.Context(), doctor.Options{Window: 100 * time.Millisecond})
		if err != nil {
			return err
		}
		var texts []string
		for _, f := range all.Findings {
			if f.Check == "listens-wide" {
				texts = append(texts, f.Text)
			}
		}
		if len(texts) != 21 || texts[20] != "10 more of this kind" {
			t.Errorf("%d findings:\n%s", len(texts), strings.Join(texts, "\n"))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
