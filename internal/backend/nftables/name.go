package nftables

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Names in the kernel. nft's scanner takes a letter and then letters, digits
// and "/-_." as a name, unless the word is one of its own; it knows no quoting
// for names of tables, chains, sets and objects.

// maxName leaves room for what is put behind a name: the kernel takes 255
// bytes (NFT_NAME_MAXLEN).
const maxName = 180

var plainName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*$`) })

// escaped marks a name that had to be rewritten.
const escaped = "z/"

// name gives the kernel's name for one of the program's. It is the same where
// it can be; other names are written with a slash and two hexadecimal digits
// for each byte that nft does not take.
func name(id string) string {
	if keywords[id] {
		return escaped + id
	}
	return stem(id)
}

// stem is name for a beginning, behind which an underscore and more is put.
func stem(id string) string {
	if plainName().MatchString(id) && len(id) <= maxName {
		return id
	}
	var b strings.Builder
	b.WriteString(escaped)
	for i := range len(id) {
		c := id[i]
		if c < utf8.RuneSelf && (c == '_' || c == '.' || c == '-' || unicode.IsLetter(rune(c)) || unicode.IsDigit(rune(c))) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "/%02x", c)
		}
	}
	if b.Len() > maxName {
		sum := sha256.Sum256([]byte(id))
		return b.String()[:maxName-17] + "_" + hex.EncodeToString(sum[:8])
	}
	return b.String()
}

// programName turns name round; what name had to cut stays cut.
func programName(kernel string) string {
	rest, was := strings.CutPrefix(kernel, escaped)
	if !was {
		return kernel
	}
	var b strings.Builder
	for i := 0; i < len(rest); i++ {
		if rest[i] == '/' && i+2 < len(rest) {
			if n, err := strconv.ParseUint(rest[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		b.WriteByte(rest[i])
	}
	return b.String()
}

// keywords are words of nft's scanner that a name without underscore could be.
// Names that this package makes itself have an underscore or a digit that no
// keyword has.
var keywords = func() map[string]bool {
	words := strings.Fields(`
		add addrtype ah all and arp at audit auth
		base bridge broadcast burst bytes
		cgroup cgroupv2 chain chains chunk code comment comp constant continue count counter counters
		cpi create crit ct
		daddr data day dccp debug define delete describe destroy device devices dnat dnsmasq dport drop dscp
		dst dup dynamic
		ecn elem element elements emerg err esp ether eth exists expires export exthdr expectation
		fib filter flags flow flowlabel flowtable flowtables flush forever frag fragments fully-random fwd
		gc-interval get geneve gre gretap goto group
		hash hbh hdrlength helper helpers hooks hop hoplimit hook hour hw ibrname obrname
		icmp icmpv6 id ih igmp iif iifgroup iifname iifkind iiftype import in include index inet info
		inner insert interface interval ip ip6 ipsec
		jhash jump
		l3proto l4proto label last length level limit limits list
		ll log lt gt le ge eq ne not or xor lshift rshift
		mac map maps mark masquerade maxseg meta meter meters mh minute missing mod month monitor mptcp mss mtu
		name nat netdev netmap new nexthdr nexthop nfproto nh nodad nop notice notrack ntp numgen
		objects oif oifgroup oifname oifkind oiftype operation osf over
		packets performance persistent pkttype plen policy position prefix priority protocol proto ptr ptype
		queue queue-threshold quota quotas
		random random-mask redefine redirect reject release replace rename reset return rt rtclassid rule rules ruleset
		sack sack0 sack1 sack2 sack3 sack-perm sack-permitted saddr sctp sdif sdifname second secmark secmarks seed
		seg-left sequence set sets size skgid skuid snaplen snat socket spi sport src state stateless status
		string synproxy synproxys
		table tables tags tcp tcpopt th time timeout timestamp to tos tproxy transparent tree ttl tunnel type
		typeof
		udp udplite undefine unsecure until update urgptr using
		value version vlan vmap vtag vxlan
		warn watch wscale week window wildcard xml json xt year zone
		accept symhash rate netdevice variable chain-priority flowid hour day icmpx tproxy ttl`)
	out := map[string]bool{}
	for _, w := range words {
		out[w] = true
	}
	return out
}()

// maxComment is what the kernel keeps of a rule's comment
// (NFTNL_UDATA_COMMENT_MAXLEN, without the final zero).
const maxComment = 127

// comment makes text fit between quotes as a comment; nft knows no escapes
// there.
func comment(text string) string { return quotable(text, maxComment) }

// maxPrefix is what the kernel takes as prefix of a log line
// (NF_LOG_PREFIXLEN, without the final zero).
const maxPrefix = 127

// logPrefix makes text fit between quotes as a prefix. nft reads "$" there as
// the begin of a variable.
func logPrefix(text string) string {
	return quotable(strings.ReplaceAll(text, "$", "_"), maxPrefix)
}

// quotable replaces what would end a quoted text or a line, and what is not
// text, and cuts at a whole character.
func quotable(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '"':
			return '\''
		case r == '\\':
			return '/'
		case r == utf8.RuneError || unicode.IsControl(r) || r == '\u2028' || r == '\u2029':
			return ' '
		}
		return r
	}, text)
	for len(text) > limit {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}

// maxInterface is the longest interface name (IFNAMSIZ without the final zero).
const maxInterface = 15

// validDevice says whether an interface can have a name (dev_valid_name in the kernel's
// net/core/dev.c). It may be in a set, which is sent as it is, and has no wildcards.
func validDevice(n string) bool {
	return n != "" && len(n) <= maxInterface && n != "." && n != ".." && !strings.ContainsAny(n, "/: \t\n\v\f\r\x00")
}

// deviceText is the name of an interface as an element of a set in nft's text. A "*" at
// its end would be a wildcard except for the backslash (expr_evaluate_string of nft's
// src/evaluate.c). Names of Textless are for readers alone.
func deviceText(n string) string {
	if start, star := strings.CutSuffix(n, "*"); star {
		n = start + `\*`
	}
	return `"` + strings.ReplaceAll(n, `"`, `\"`) + `"`
}

// validInterface says whether a name can be an interface's and are in quotes.
// One that begins with "@" is listed by nft as if it were a set.
func validInterface(n string) bool {
	if n == "" || n == "*" || n[0] == '@' || len(strings.TrimSuffix(n, "*")) > maxInterface {
		return false
	}
	return !strings.ContainsFunc(n, func(r rune) bool {
		return r == '"' || r == '\\' || r == '/' || r == utf8.RuneError || unicode.IsSpace(r) || unicode.IsControl(r)
	}) && !strings.Contains(strings.TrimSuffix(n, "*"), "*")
}
