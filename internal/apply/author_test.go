package apply

import "testing"

func TestParseSession(t *testing.T) {
	tests := []struct {
		text, remote, local string
		ok                  bool
	}{
		{"192.0.2.7 50000 203.0.113.1 22", "192.0.2.7:50000", "203.0.113.1:22", true},
		{"2001:db8::7 50000 2001:db8::1 2222", "[2001:db8::7]:50000", "[2001:db8::1]:2222", true},
		{"fe80::7%eth0 50000 fe80::1%eth0 22", "[fe80::7]:50000", "[fe80::1]:22", true},
		{"::ffff:192.0.2.7 50000 ::ffff:203.0.113.1 22", "192.0.2.7:50000", "203.0.113.1:22", true},
		{"192.0.2.7 50000 203.0.113.1", "", "", false},
		{"somebody 50000 203.0.113.1 22", "", "", false},
		{"192.0.2.7 70000 203.0.113.1 22", "", "", false},
		{"", "", "", false},
	}
	for _, test := range tests {
		p, ok := parseSession(test.text)
		if ok != test.ok || ok && (p.Remote.String() != test.remote || p.Local.String() != test.local) {
			t.Errorf("%q: %v to %v, %v", test.text, p.Remote, p.Local, ok)
		}
	}
}
