package policy

// clause is one part of a rule, by its first word.
type clause struct {
	word     string
	usage    string
	doc      string
	examples []string
	parse    func(*rule) bool
}

// clauses are the parts of a rule in their canonical order. They may be in
// any order behind the action and the service, each at most once.
var clauses []*clause

func init() { // the parsers refer to the table
	clauses = []*clause{
		{"published", "published SERVICE", "The rule matches connections that arrive by a DNAT, by Sluice or by another tool such as Docker. Port and address are those before the DNAT. In input and forward.", []string{"allow published tcp/8080 from 203.0.113.0/24"}, (*rule).published},
		{"ipv4", "ipv4", "Only IPv4.", []string{"allow udp/5000 ipv4"}, (*rule).family},
		{"ipv6", "ipv6", "Only IPv6.", []string{"drop udp ipv6"}, (*rule).family},
		{"from", "from WHO", "The source. A zone matches by incoming interface and source, and cannot be used in output.", []string{"allow ssh from 203.0.113.0/24", "drop any from not [203.0.113.0/24, 2001:db8::/32]"}, (*rule).from},
		{"to", "to WHO", "The destination. A zone matches by outgoing interface and destination, and cannot be used in input; addresses of this host can.", []string{"allow http to 198.51.100.1"}, (*rule).to},
		{"in", "in ZONE", "The incoming interface belongs to the zone. Not in output.", []string{"allow ping in wan"}, (*rule).in},
		{"out", "out ZONE", "The outgoing interface belongs to the zone. Not in input.", []string{"allow any out wan"}, (*rule).out},
		{"by", "by user NAME", "The sending process runs as this user (a name or a number) or as one of a list of users. Only in output.", []string{"allow smtp by user postfix", "allow smtp by user [postfix, 1000]"}, (*rule).by},
		{"limit", "limit COUNT/UNIT [per source] [burst N] [then ban TIME [widen]]", "A rate of new connections (of packets, for ICMP and where packets are not tracked). UNIT is `second`, `minute`, `hour`, `day` or a duration. Over the limit the rule does not match. `then ban` also bans the source, and `widen` bans its whole /24, or /48 of IPv6, when eight of its sources have been banned in a row (docs/concepts/bans.md). `per source` counts IPv6 by /64. `burst N` may come at once; the default is COUNT.", []string{"allow ssh limit 10/minute per source", "allow ssh limit 6/30s per source then ban 10m widen", "allow ping limit 20/second burst 50"}, (*rule).limit},
		{"max", "max N connections [per source]", "At most this many concurrent connections; beyond that the rule does not match. Only with allow.", []string{"allow [smtp, imaps] max 20 connections per source"}, (*rule).max},
		{"until", "until TIME", "The rule matches before this time and never afterwards. TIME is a date and a time of day with `Z` or an offset from UTC (RFC 3339). Connections that began before it go on.", []string{"allow ssh from 203.0.113.7 until 2027-01-31T18:00:00Z"}, (*rule).until},
		{"log", "log [\"PREFIX\"]", "Log packets that match, at a limited rate.", []string{"reject tcp/25 log \"smtp\""}, (*rule).log},
	}
}

func clauseNamed(word string) *clause {
	for _, c := range clauses {
		if c.word == word {
			return c
		}
	}
	return nil
}

// clauseWords are the words that a clause may begin with.
func clauseWords() []string {
	var out []string
	for _, c := range clauses {
		out = append(out, c.word)
	}
	return out
}

var actionWords = []string{"allow", "drop", "reject", "clamp"}

// noSense says why a word cannot be used in a section, and the way out; "" when
// it can.
func noSense(word string, hook Hook) (why, wayOut string) {
	switch {
	case word == "out" && hook == Input:
		return "packets to this host have no outgoing interface", "write in ZONE, or put the rule under forward"
	case word == "in" && hook == Output:
		return "packets from this host have no incoming interface", "write out ZONE, or put the rule under forward"
	case word == "by" && hook != Output:
		return "only what this host sends has a user", "put the rule under output"
	case word == "published" && hook == Output:
		return "only incoming connections can arrive by a DNAT", "put the rule under input or forward"
	case word == "clamp" && hook != Forward:
		return "connections of this host already use the size that their route carries", "put the rule under forward"
	case word == "per source" && hook == Output:
		return "the source is always this host", "remove per source"
	}
	return "", ""
}
