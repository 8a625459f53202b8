package policy

import (
	"slices"
	"strings"
)

// Most people come from iptables, nft, ufw or firewalld. What they write first is wrong here in
// a few ways, and for these an error gives the line to write.

// othersWords are words of those tools, and what to write instead.
var othersWords = []struct{ words, instead string }{
	{"port ports dport dports", "write the port after its protocol, as in tcp/8080"},
	{"s src saddr source", "write from WHO"},
	{"d dst daddr destination", "write to WHO"},
	{"i iif iifname iface interface in-interface dev on", "name the interface in a zone, and write in ZONE"},
	{"o oif oifname out-interface", "name the interface in a zone, and write out ZONE"},
	{"ct state conntrack ctstate established related established,related", "remove it: the packets of an allowed connection pass without a rule"},
	{"lo loopback localhost", "remove it: loopback is always allowed"},
	{"all everything", "write any"},
	{"comment", "write a comment after #"},
	{"except unless but", "write from not WHO"},
	{"and or", "write a list, as in [ssh, https]"},
	{"for", "write until TIME, or allow an address for a time by command"},
	{"prefix", `write log "PREFIX"`},
	{"counter", "remove it: packets are counted for each rule"},
	{"openssh sshd", "write ssh"},
	{"web www", "write [http, https]"},
	{"domain", "write dns"},
	{"mail", "write [smtp, submission, imaps]"},
}

// everybody are words for all addresses that are not any.
var everybody = []string{"anywhere", "all", "everybody", "everyone", "internet", "world"}

// insteadOf is what to write instead of a word of another tool; "" for other words.
func insteadOf(word string) string {
	word = bare(word)
	for _, w := range othersWords {
		if slices.Contains(strings.Fields(w.words), word) {
			return w.instead
		}
	}
	return ""
}

// bare is a word as it is compared: iptables writes --dport and ACCEPT.
func bare(word string) string { return strings.ToLower(strings.TrimLeft(word, "-")) }

// insteadOfLine is what to write instead of a rule in the words of another tool: the line
// itself if each of its words is known; "" for other lines.
func insteadOfLine(toks []token, hook Hook) string {
	o := othersRule{hook: hook, protocol: "tcp"}
	for i := range toks {
		for _, word := range strings.Split(toks[i].text, ",") {
			if slices.Contains([]string{"lo", "established", "related"}, bare(word)) {
				return insteadOf(word)
			}
		}
	}
	for o.toks = toks; o.toks[0].kind != endToken; {
		if !o.take() {
			return ""
		}
	}
	return o.line()
}

// othersRule is a rule of another tool while it is read.
type othersRule struct {
	hook                                Hook
	toks                                []token // what is left
	action, protocol, service, from, to string
	named                               bool // the protocol is said
	ports                               []string
}

// take reads what the next words say, and reports whether they are known.
func (o *othersRule) take() bool {
	word := bare(o.toks[0].text)
	o.toks = o.toks[1:]
	switch word {
	case "accept", "permit", "pass", "allow":
		return o.takeAction("allow")
	case "drop", "deny", "block", "discard":
		return o.takeAction("drop")
	case "reject":
		return o.takeAction("reject")
	case "tcp", "udp":
		o.protocol, o.named = word, true
	case "port", "ports", "dport", "dports":
		return o.takePorts()
	case "s", "src", "saddr", "source", "from":
		return o.takeEnd(&o.from, "from")
	case "d", "dst", "daddr", "destination", "to":
		return o.takeEnd(&o.to, "to")
	case "ip", "ip6":
		return slices.Contains([]string{"saddr", "daddr"}, o.toks[0].text)
	case "a", "append", "p", "proto", "protocol", "m", "match", "multiport", "j", "jump", "rule", "add", "counter", string(o.hook):
	default:
		return o.takeService(word)
	}
	return true
}

func (o *othersRule) takeAction(action string) bool {
	first := o.action == ""
	o.action = action
	return first
}

// takeService reads the name of a service, or a port in the way of ufw.
func (o *othersRule) takeService(word string) bool {
	port, protocol, slash := strings.Cut(word, "/")
	switch {
	case isBuiltin(word) && o.service == "":
		o.service = word
	case slash && isPorts(port) && (protocol == "tcp" || protocol == "udp"):
		o.protocol, o.named, o.ports = protocol, true, append(o.ports, port)
	case isPorts(word) && o.named && o.ports == nil:
		o.ports = append(o.ports, word)
	default:
		return false
	}
	return true
}

func (o *othersRule) takePorts() bool {
	for ; ; o.toks = o.toks[1:] {
		word := strings.ReplaceAll(strings.Trim(o.toks[0].text, "{}"), ":", "-")
		switch {
		case isPorts(word):
			o.ports = append(o.ports, word)
		case o.toks[0].kind == commaToken || o.toks[0].text != "" && word == "":
		default:
			return o.ports != nil
		}
	}
}

func (o *othersRule) takeEnd(where *string, word string) bool {
	who := o.toks[0].text
	o.toks = o.toks[min(1, len(o.toks)-1):]
	if slices.Contains(everybody, strings.ToLower(who)) || who == "any" {
		return true
	}
	*where = " " + word + " " + who
	_, p := parseRange(who)
	return p == nil || checkName(who) == nil
}

func isPorts(word string) bool {
	_, p := parsePorts(word)
	return p == nil
}

// line is the rule in the words of this language; "" if it has no action or service.
func (o *othersRule) line() string {
	services := make([]string, len(o.ports))
	for i, port := range o.ports {
		services[i] = o.protocol + "/" + port
	}
	service := o.service
	switch {
	case service != "" && len(services) > 0, service == "" && len(services) == 0, o.action == "":
		return ""
	case len(services) == 1:
		service = services[0]
	case len(services) > 1:
		service = "[" + strings.Join(services, ", ") + "]"
	}
	line := "write " + o.action + " " + service + o.from + o.to
	if !o.named && len(services) == 1 {
		line += ", or udp/" + o.ports[0]
	}
	return line
}

// listed is the list that words with commas between were meant for, from the word before
// the comma on; "" where they are no words.
func listed(toks []token) string {
	var items []string
	protocol, _, _ := strings.Cut(toks[0].text, "/")
	for i, t := range toks {
		if i%2 == 1 && t.kind != commaToken {
			break
		}
		if i%2 == 1 {
			continue
		}
		if t.kind != wordToken {
			return ""
		}
		item := t.text
		if isPorts(item) {
			item = protocol + "/" + item
		}
		items = append(items, item)
	}
	return "write a list: [" + strings.Join(items, ", ") + "]"
}

// othersKeys are keys that people try in a shape of the grammar, and what to write instead.
var othersKeys = map[string][]struct{ keys, instead string }{
	"policy": {
		{"incoming ingress in", "write input"},
		{"outgoing egress out", "write output"},
		{"routed forwarding", "write forward"},
		{"rules chains chain tables table filter", "write rules: under input, output or forward"},
		{"default policy", "write default: under input, output or forward"},
		{"interfaces", "write interfaces in a zone: zones: {wan: {interfaces: [eth0]}}"},
		{"allow deny drop ports", "write rules: under input, as in - allow tcp/8080"},
	},
	"section": {
		{"policy", "write default"},
		{"allow accept deny drop reject ports port services", "write rules: and each rule below it, as in - allow tcp/8080"},
	},
	"rule": {
		{"action verdict target accept deny service port ports dport proto protocol", "write the action and its service, as in allow: tcp/8080"},
		{"src source saddr", "write from"},
		{"dst dest destination daddr", "write to"},
		{"interface iface iif", "name the interface in a zone, and write in: ZONE"},
		{"comment name description", "write a comment after #"},
	},
	"set": {
		{"ips ip addrs networks cidr cidrs elements", "write addresses"},
	},
}

// insteadOfKey is what to write instead of a key that a shape does not have.
func insteadOfKey(shape, key string) string {
	if shape == string(Forward) {
		shape = "section"
	}
	for _, k := range othersKeys[shape] {
		if slices.Contains(strings.Fields(k.keys), strings.ToLower(key)) {
			return k.instead
		}
	}
	return ""
}
