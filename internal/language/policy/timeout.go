package policy

import "strings"

// timeoutNames are the time-outs of connection tracking, as the kernel's
// nf_conntrack_standalone.c registers them, in the short form of the language.
var timeoutNames = []string{
	"generic",
	"tcp-syn-sent", "tcp-syn-recv", "tcp-established", "tcp-fin-wait", "tcp-close-wait",
	"tcp-last-ack", "tcp-time-wait", "tcp-close", "tcp-max-retrans", "tcp-unacknowledged",
	"udp", "udp-stream",
	"icmp", "icmpv6",
	"sctp-closed", "sctp-cookie-wait", "sctp-cookie-echoed", "sctp-established",
	"sctp-shutdown-sent", "sctp-shutdown-recd", "sctp-shutdown-ack-sent", "sctp-heartbeat-sent",
	"dccp-request", "dccp-respond", "dccp-partopen", "dccp-open", "dccp-closereq", "dccp-closing", "dccp-timewait",
	"gre", "gre-stream",
	"frag6",
}

// Sysctl returns the last part of the sysctl's name, below net.netfilter.
func (t Timeout) Sysctl() string {
	protocol, state, _ := strings.Cut(t.Name, "-")
	name := "nf_conntrack_" + protocol + "_timeout"
	if state != "" {
		name += "_" + strings.ReplaceAll(state, "-", "_")
	}
	return name
}
