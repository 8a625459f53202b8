package doctor

import (
	"fmt"

	"sluice/internal/base/english"
	"sluice/internal/base/packet"
	"sluice/internal/prove/check"
)

const mostKinds = 3

// kinds are what most entries are of.
func (t *Table) kinds() (out []Evidence) {
	if t.Listed == 0 {
		return nil
	}
	for i, k := range t.Kinds {
		if i == mostKinds || k.Entries*20 < t.Listed {
			break
		}
		what := packet.ProtocolName(k.Protocol)
		if k.Protocol == packet.TCP {
			what += " " + k.State.String()
		}
		out = append(out, found("conntrack -L", "%s entries are of %s", english.Grouped(k.Entries), what))
	}
	return out
}

// mentioned is how many entries a table has before its contents are worth a remark.
const mentioned = 1000

var tableDead = Check{
	ID:    "table-dead",
	What:  "most of the connection table is of connections that are over or idle",
	Least: check.Remark,
	Why: `An entry of TCP lives on for two minutes when its connection was closed
(nf_conntrack_tcp_timeout_time_wait), and for five days without a packet when it was not
(nf_conntrack_tcp_timeout_established): clients that vanish leave them behind. Said where
they are more than half of a table of 1,000 entries or more; a warning where the table is
half full.`,
	Mend: `Shorter time-outs: 30 s behind a closed connection, some hours for one without
packets (longer than the keep-alive of what is to stay open).`,
	Undo:  "Write the settings back; entries keep the time-out that their last packet gave them.",
	Fixes: true,
	look: func(s *Seen, say func(Finding)) {
		t := s.Table
		if t == nil || t.Listed < mentioned || 2*(t.Ended+t.Idle) < t.Listed {
			return
		}
		f := Finding{
			Text: fmt.Sprintf("%d %% of the connection table are dead: %s entries of connections that ended, %s of ones without a packet for an hour", (t.Ended+t.Idle)*100/t.Listed, english.Grouped(t.Ended), english.Grouped(t.Idle)),
			Cost: bytesText((t.Ended+t.Idle)*t.EntryBytes) + " of memory, and their room in the table",
		}
		if t.percent() >= 50 {
			f.Severity = check.Warning
		}
		f.Evidence = append(f.Evidence, t.kinds()...)
		for _, c := range s.shortened() {
			f.Evidence = append(f.Evidence, found("/proc/sys/net/netfilter/"+c.Name[len("net.netfilter."):], "%s s", c.Now))
			f.set("", c)
		}
		say(f)
	},
}

var tableOneSource = Check{
	ID:    "table-one-source",
	What:  "one address has a large part of the connection table",
	Least: check.Remark,
	Why: `A client that opens connections without end, or a proxy before the host, takes the
room of all others. Said of an address, not of the host itself, with a quarter of a table of
1,000 entries or more; a warning where the table is half full.`,
	Mend: `Bound the connections of a source: in a policy of Sluice "max 100 connections each",
in nftables ct count, in iptables connlimit. A proxy of your own is better left untracked.`,
	Undo: "Take the rule away.",
	look: func(s *Seen, say func(Finding)) {
		t := s.Table
		if t == nil || t.Listed < mentioned || len(t.Top) == 0 || t.Top[0].Address.IsLoopback() || 4*t.Top[0].Entries < t.Listed || s.own(t.Top[0].Address) {
			return
		}
		top := t.Top[0]
		f := Finding{
			Text: fmt.Sprintf("%s has %s of %s entries of the connection table", top.Address, english.Grouped(top.Entries), english.Grouped(t.Listed)),
			Mend: []string{"in a policy of Sluice: allow SERVICE max 100 connections each", "conntrack -D -s " + top.Address.String() + "   # deletes its entries: its connections are judged anew"},
		}
		if t.percent() >= 50 {
			f.Severity = check.Warning
		}
		for _, o := range t.Top {
			f.Evidence = append(f.Evidence, found("conntrack -L", "%s entries from %s", english.Grouped(o.Entries), o.Address))
		}
		say(f)
	},
}

var tableBuckets = Check{
	ID:    "table-buckets",
	What:  "the connection table has too few buckets",
	Least: check.Remark,
	Why: `Each packet of a tracked connection looks its entry up in a list of those that share a
bucket. Each entry is in two lists, so a table with room for four times its buckets has lists
of eight when it is full. Said at more than four entries a bucket; a warning where they are in
use, or where the kernel gave up at a list that was too long (chaintoolong).`,
	Mend:  "As many buckets as entries; a bucket takes 8 bytes.",
	Undo:  "Write the setting back.",
	Fixes: true,
	look: func(s *Seen, say func(Finding)) {
		t := s.Table
		tooLong := s.Moved["conntrack.chaintoolong"]
		if t == nil || t.Buckets == 0 || (t.Most <= entriesOfBucket*t.Buckets && tooLong == 0) {
			return
		}
		f := Finding{
			Text: fmt.Sprintf("%s entries share %s buckets: a look-up passes %.0f of them when the table is full", english.Grouped(t.Most), english.Grouped(t.Buckets), 2*float64(t.Most)/float64(t.Buckets)),
			Evidence: []Evidence{
				found("/proc/sys/net/netfilter/nf_conntrack_buckets", "%s buckets", english.Grouped(t.Buckets)),
				found("/proc/sys/net/netfilter/nf_conntrack_max", "%s entries may be, %s are", english.Grouped(t.Most), english.Grouped(t.Entries)),
			},
		}
		f.set(bytesText(roundBuckets(t.Most)*bucketBytes)+" of memory", s.to(conntrackBuckets, roundBuckets(t.Most)))
		if t.Entries > 4*t.Buckets || tooLong > 0 {
			f.Severity = check.Warning
			f.Cost = fmt.Sprintf("each look-up passes %.1f entries now", 2*float64(t.Entries)/float64(t.Buckets))
		}
		if tooLong > 0 {
			f.Evidence = append(f.Evidence, found("counter chaintoolong of the connection table (conntrack -S)", "%s packets", english.Grouped(tooLong)))
		}
		say(f)
	},
}

var insertFailed = Check{
	ID:    "insert-failed",
	What:  "entries of the connection table could not be inserted, and their packets were dropped",
	Least: check.Warning,
	Why: `Two packets of one new flow that come at the same moment make two entries, of
which one can stay; so do two flows that NAT gives the same port. The packet of the other one
is dropped. It is typical for DNS: a resolver asks for A and AAAA from one port at once.`,
	Mend: `Do not track what asks like that (in a policy of Sluice "bypass: [dns]"), or have the
resolver ask one after the other (options single-request-reopen in resolv.conf). With NAT, give it
more addresses or ports.`,
	Undo: "Track the service again.",
	look: func(s *Seen, say func(Finding)) {
		n := s.Moved["conntrack.insert_failed"]
		if n == 0 {
			return
		}
		say(Finding{
			Text: fmt.Sprintf("%s of new connections could not be put into the connection table", english.Plural(n, "packet")),
			Evidence: []Evidence{
				found("counter insert_failed of the connection table (conntrack -S)", "%s in the window, %s since the namespace was made", english.Grouped(n), english.Grouped(s.Total["conntrack.insert_failed"])),
			},
			Cost: fmt.Sprintf("%.1f packets a second are dropped", s.second(n)),
			Mend: []string{"in a policy of Sluice: bypass: [dns]"},
		})
	},
}

var portsShared = Check{
	ID:    "nat-ports",
	What:  "rewritten connections run out of ports towards one service",
	Least: check.Warning,
	Why: `Connections that masquerade or source NAT give one address need different ports where
they go to the same address and port: 64,512 at most, and fewer where a rule or
net.ipv4.ip_local_port_range says so. When none is left, the packet is dropped. Said from half of
them on; an error from nine tenths on.`,
	Mend: "Rewrite to several addresses, or bound how many connections one machine behind may have.",
	Undo: "Take the addresses away.",
	look: func(s *Seen, say func(Finding)) {
		if s.Table == nil {
			return
		}
		const ports = 65536 - 1024
		for _, n := range s.Table.NAT {
			if n.Entries*2 < ports {
				continue
			}
			f := Finding{
				Text:     fmt.Sprintf("%s connections to %s leave as %s, of at most %s", english.Grouped(n.Entries), n.To, n.As, english.Grouped(uint64(ports))),
				Evidence: []Evidence{found("conntrack -L", "%s entries of %s with source NAT to %s towards %s", english.Grouped(n.Entries), packet.ProtocolName(n.Protocol), n.As, n.To)},
				Mend:     []string{"source NAT to a range of addresses, or a limit of connections for each machine behind"},
			}
			if n.Entries*10 >= ports*9 {
				f.Severity = check.Error
			}
			say(f)
		}
	},
}
