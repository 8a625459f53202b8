package policy

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"sluice/internal/base/sorting"
)

// builtinServices are the services that need no definition, by what IANA or
// their own documents say. The words are those of the language.
var builtinServices = []struct{ name, words string }{
	{"amqp", "tcp/5672"},
	{"amqps", "tcp/5671"},
	{"bgp", "tcp/179"},
	{"cassandra", "tcp/9042"},
	{"clickhouse", "tcp/8123 tcp/9000"},
	{"dhcp", "udp/67"},
	{"dhcpv6", "udp/547"},
	{"dns", "tcp/53 udp/53"},
	{"dot", "tcp/853"},
	{"elasticsearch", "tcp/9200 tcp/9300"},
	{"etcd", "tcp/2379-2380"},
	{"ftp", "tcp/21"},
	{"git", "tcp/9418"},
	{"grafana", "tcp/3000"},
	{"http", "tcp/80"},
	{"https", "tcp/443"},
	{"http3", "udp/443"},
	{"imap", "tcp/143"},
	{"imaps", "tcp/993"},
	{"ipsec", "udp/500 udp/4500 proto/50"},
	{"kerberos", "tcp/88 udp/88"},
	{"kubernetes-api", "tcp/6443"},
	{"kubelet", "tcp/10250"},
	{"ldap", "tcp/389 udp/389"},
	{"ldaps", "tcp/636"},
	{"mdns", "udp/5353"},
	{"memcached", "tcp/11211"},
	{"mongodb", "tcp/27017"},
	{"mosh", "udp/60000-61000"},
	{"mqtt", "tcp/1883"},
	{"mqtts", "tcp/8883"},
	{"mssql", "tcp/1433"},
	{"mysql", "tcp/3306"},
	{"nfs", "tcp/2049"},
	{"node-exporter", "tcp/9100"},
	{"ntp", "udp/123"},
	{"openvpn", "udp/1194"},
	{"ospf", "proto/89"},
	{"ping", "icmp echo-request"},
	{"pop3", "tcp/110"},
	{"pop3s", "tcp/995"},
	{"postgresql", "tcp/5432"},
	{"prometheus", "tcp/9090"},
	{"puppet", "tcp/8140"},
	{"radius", "udp/1812-1813"},
	{"rdp", "tcp/3389 udp/3389"},
	{"redis", "tcp/6379"},
	{"rsync", "tcp/873"},
	{"rtmp", "tcp/1935"},
	{"salt", "tcp/4505-4506"},
	{"samba", "tcp/139 tcp/445"},
	{"sip", "tcp/5060 udp/5060"},
	{"sips", "tcp/5061"},
	{"smtp", "tcp/25"},
	{"smtps", "tcp/465"},
	{"submission", "tcp/587"},
	{"snmp", "udp/161"},
	{"snmptrap", "udp/162"},
	{"ssh", "tcp/22"},
	{"stun", "tcp/3478 udp/3478"},
	{"svn", "tcp/3690"},
	{"syncthing", "tcp/22000 udp/22000"},
	{"syslog", "udp/514"},
	{"syslog-tls", "tcp/6514"},
	{"telnet", "tcp/23"},
	{"tftp", "udp/69"},
	{"vnc", "tcp/5900"},
	{"vrrp", "proto/112"},
	{"vxlan", "udp/4789"},
	{"whois", "tcp/43"},
	{"wireguard", "udp/51820"},
	{"xmpp-client", "tcp/5222"},
	{"xmpp-server", "tcp/5269"},
	{"zabbix-agent", "tcp/10050"},
	{"zabbix-server", "tcp/10051"},
}

var parseBuiltin = sync.OnceValue(func() []*Service {
	out := make([]*Service, len(builtinServices))
	for i, b := range builtinServices {
		s := &Service{Name: b.name}
		words := strings.Split(b.words, " ")
		if words[0] == "icmp" {
			words = []string{b.words}
		}
		for _, w := range words {
			m, p := parseServiceWord(w)
			if p != nil {
				panic(fmt.Sprintf("policy: built-in service %s: %s", b.name, p.message))
			}
			s.Matches = append(s.Matches, *m)
		}
		s.Matches = mergeMatches(s.Matches)
		out[i] = s
	}
	return out
})

// Builtin returns the built-in services by name. They have no place.
func Builtin() []*Service {
	out := slices.Clone(parseBuiltin())
	sorting.By(out, func(a, b *Service) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func builtinNames() []string {
	out := make([]string, len(builtinServices))
	for i, b := range builtinServices {
		out[i] = b.name
	}
	return out
}

func builtinNamed(name string) *Service {
	for i, b := range builtinServices {
		if b.name == name {
			return parseBuiltin()[i]
		}
	}
	return nil
}

func isBuiltin(name string) bool {
	return slices.ContainsFunc(builtinServices, func(b struct{ name, words string }) bool { return b.name == name })
}
