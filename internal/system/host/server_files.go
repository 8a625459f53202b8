package host

import (
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// mirrorOf is the server of a repository's address; ok is false for what is not
// asked over TCP (cdrom:, file:) and for addresses with variables in the name.
func mirrorOf(text string) (Server, bool) {
	// apt knows mirror+https: and tor+https: too.
	if before, after, ok := strings.Cut(text, "+"); ok && !strings.Contains(before, ":") {
		if before == "tor" {
			return Server{}, false
		}
		text = after
	}
	u, err := url.Parse(text)
	if err != nil || !plainName(u.Hostname()) {
		return Server{}, false
	}
	ports := map[string]uint16{"http": 80, "https": 443, "ftp": 21, "rsync": 873}
	port, known := ports[u.Scheme]
	if !known {
		return Server{}, false
	}
	if u.Port() != "" {
		n, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil || n == 0 {
			return Server{}, false
		}
		port = uint16(n)
	}
	return Server{Role: Mirror, Name: u.Hostname(), Protocol: "tcp", Port: port}, true
}

var nameOfHost = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?$`) })

// plainName says whether a text is the name or address of a host.
func plainName(text string) bool {
	if a, err := netip.ParseAddr(text); err == nil {
		return !a.IsUnspecified()
	}
	return len(text) < 254 && nameOfHost().MatchString(text)
}

func mirrorsOf(words []string) []Server {
	var out []Server
	for _, w := range words {
		if s, ok := mirrorOf(w); ok {
			out = append(out, s)
		}
	}
	return out
}

// uncommented gives the words of every line that says something.
func uncommented(text, marks string) [][]string {
	var out [][]string
	for line := range strings.Lines(text) {
		if at := strings.IndexAny(line, marks); at >= 0 {
			line = line[:at]
		}
		if words := strings.Fields(line); len(words) > 0 {
			out = append(out, words)
		}
	}
	return out
}

// parseAptList reads lines such as "deb [signed-by=FILE] https://HOST/ stable
// main" of sources.list(5). The source packages' mirrors are seldom asked, but
// by the same program.
func parseAptList(text string) []Server {
	var out []Server
	for _, words := range uncommented(text, "#") {
		if words[0] != "deb" && words[0] != "deb-src" {
			continue
		}
		rest := words[1:]
		if len(rest) > 0 && strings.HasPrefix(rest[0], "[") {
			for len(rest) > 0 && !strings.HasSuffix(rest[0], "]") {
				rest = rest[1:]
			}
			rest = rest[min(1, len(rest)):]
		}
		if len(rest) > 0 {
			out = append(out, mirrorsOf(rest[:1])...)
		}
	}
	return out
}

// parseAptSources reads the stanzas of sources.list(5) in the form of deb822(5).
func parseAptSources(text string) []Server {
	var out, stanza []Server
	disabled, inURIs := false, false
	end := func() {
		if !disabled {
			out = append(out, stanza...)
		}
		stanza, disabled, inURIs = nil, false, false
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		switch {
		case line == "":
			end()
		case strings.HasPrefix(line, "#"):
		case line[0] == ' ' || line[0] == '\t':
			if inURIs {
				stanza = append(stanza, mirrorsOf(strings.Fields(line))...)
			}
		default:
			field, value, _ := strings.Cut(line, ":")
			field = strings.ToLower(field)
			if inURIs = field == "uris"; inURIs {
				stanza = append(stanza, mirrorsOf(strings.Fields(value))...)
			}
			if field == "enabled" {
				disabled = strings.EqualFold(strings.TrimSpace(value), "no")
			}
		}
	}
	end()
	return out
}

var aptProxy = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?im)^\s*Acquire::(?:http|https|ftp)::(?:Proxy|proxy)\s+"([^"]+)"`)
})

// parseAptProxy reads the proxies of apt.conf(5) in the form of one line each.
func parseAptProxy(text string) []Server {
	var out []Server
	for _, m := range aptProxy().FindAllStringSubmatch(text, -1) {
		out = append(out, mirrorsOf(m[1:])...)
	}
	return out
}

// parseRepositories reads the repositories of dnf and zypper: baseurl,
// mirrorlist and metalink of the sections that are enabled.
func parseRepositories(text string) []Server {
	var out, section []Server
	disabled := false
	end := func() {
		if !disabled {
			out = append(out, section...)
		}
		section, disabled = nil, false
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			end()
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		switch strings.ToLower(strings.TrimSpace(key)) {
		case "baseurl", "mirrorlist", "metalink":
			section = append(section, mirrorsOf(strings.FieldsFunc(value, func(r rune) bool { return r == ' ' || r == ',' || r == '\t' }))...)
		case "enabled":
			disabled = strings.TrimSpace(value) == "0"
		}
	}
	end()
	return out
}

// parsePacman reads "Server = URL" of pacman's list.
func parsePacman(text string) []Server {
	var out []Server
	for _, words := range uncommented(text, "#") {
		if len(words) == 3 && words[0] == "Server" && words[1] == "=" {
			out = append(out, mirrorsOf(words[2:])...)
		}
	}
	return out
}

// parseAPK reads the repositories of apk, one a line, "@tag" before some.
func parseAPK(text string) []Server {
	var out []Server
	for _, words := range uncommented(text, "#") {
		out = append(out, mirrorsOf(words[len(words)-1:])...)
	}
	return out
}

const ntpPort = 123

// timeServer is a list of one, or of none where the name is none.
func timeServer(name string, port, from uint16) []Server {
	if !plainName(name) {
		return nil
	}
	return []Server{{Role: TimeServer, Name: name, Protocol: "udp", Port: port, FromPort: from}}
}

// parseChrony reads server, pool and peer of chrony.conf(5). It asks from a port
// that the kernel gives, unless acquisitionport says which.
func parseChrony(text string) []Server {
	var out []Server
	var from uint16
	for _, words := range uncommented(text, "#!;%") {
		switch strings.ToLower(words[0]) {
		case "acquisitionport":
			if len(words) > 1 {
				from = portOf(words[1])
			}
		case "server", "pool", "peer":
			if len(words) < 2 {
				continue
			}
			port := uint16(ntpPort)
			for i := 2; i+1 < len(words); i++ {
				if p := portOf(words[i+1]); words[i] == "port" && p != 0 {
					port = p
				}
			}
			out = append(out, timeServer(words[1], port, 0)...)
		}
	}
	for i := range out {
		out[i].FromPort = from
	}
	return out
}

func portOf(text string) uint16 {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return uint16(n)
}

// parseTimesyncd reads NTP and FallbackNTP of timesyncd.conf(5).
func parseTimesyncd(text string) []Server {
	var out []Server
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if key = strings.TrimSpace(key); !ok || key != "NTP" && key != "FallbackNTP" {
			continue
		}
		for _, name := range strings.Fields(value) {
			out = append(out, timeServer(name, ntpPort, 0)...)
		}
	}
	return out
}

// parseNTP reads server, pool and peer of ntp.conf(5). ntpd asks from the port
// that it serves.
func parseNTP(text string) []Server {
	var out []Server
	for _, words := range uncommented(text, "#") {
		switch words[0] {
		case "server", "pool", "peer":
			names := words[1:]
			for len(names) > 0 && (names[0] == "-4" || names[0] == "-6") {
				names = names[1:]
			}
			// 127.127.0.0/16 stands for clocks in the machine.
			if len(names) == 0 || strings.HasPrefix(names[0], "127.127.") {
				continue
			}
			out = append(out, timeServer(names[0], ntpPort, ntpPort)...)
		}
	}
	return out
}

// parseOpenNTPD reads server and servers of OpenNTPD's ntpd.conf(5).
func parseOpenNTPD(text string) []Server {
	var out []Server
	for _, words := range uncommented(text, "#") {
		if len(words) > 1 && (words[0] == "server" || words[0] == "servers") {
			out = append(out, timeServer(words[1], ntpPort, 0)...)
		}
	}
	return out
}
