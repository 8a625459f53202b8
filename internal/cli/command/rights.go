package command

import (
	"fmt"
	"os"
	"os/user"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// rightsHint is what to do where the kernel refused what a command needs, or has no
// netfilter; "" for other errors. Errors of the program nft and of the agent are texts alone.
func rightsHint(text string) string {
	lower := strings.ToLower(text)
	refused := strings.Contains(lower, "operation not permitted") || strings.Contains(lower, "permission denied")
	switch {
	case strings.Contains(text, "hint: "):
		return ""
	case refused && os.Geteuid() != 0:
		if u, err := user.Current(); err == nil {
			if hint := serviceHint(text, u); hint != "" {
				return hint
			}
		}
		return "\nhint: run it with sudo"
	case refused && !mayAdminister():
		return "\nhint: this needs CAP_NET_ADMIN: run it on the host, or start the container with --cap-add NET_ADMIN"
	case noTables().MatchString(text):
		return "\nhint: this kernel has no nf_tables: modprobe nf_tables loads it where it is a module"
	case strings.Contains(lower, "protocol not supported"):
		return "\nhint: this kernel has no netfilter; sandboxes such as gVisor have none, and containers have that of their host"
	}
	return ""
}

var refusedPath = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(/\S+): permission denied`) })

// serviceHint is what to do where the user of a service may not open one of its files, which
// another user made; "" for other users and files.
func serviceHint(text string, u *user.User) string {
	path := refusedPath().FindStringSubmatch(text)
	if path == nil || u.HomeDir == "/" || !strings.HasPrefix(path[1], u.HomeDir+"/") {
		return ""
	}
	if id, err := strconv.Atoi(u.Uid); err != nil || id >= leastPerson {
		return ""
	}
	return fmt.Sprintf("\nhint: as root, chown -R %s: %s gives it to user %s, as whom this runs", u.Username, u.HomeDir, u.Username)
}

// leastPerson is the lowest number of a user that is no service's.
const leastPerson = 1000

// noTables is what a kernel without nf_tables answers to the first question of each command.
var noTables = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?:list the chains of table \S+ \S+|ask for the ruleset's generation|cache initialization failed): [Ii]nvalid argument`)
})

// mayAdminister says whether this process has CAP_NET_ADMIN.
func mayAdminister() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // 64 capabilities take two
	err := unix.Capget(&header, &data[0])
	return err != nil || data[0].Effective&(1<<unix.CAP_NET_ADMIN) != 0
}
