package drops

import (
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// reasons are the names that the kernel's types have for them.
func reasons(types *btf.Spec) (map[uint32]string, error) {
	var named *btf.Enum
	if err := types.TypeByName("skb_drop_reason", &named); err != nil {
		return nil, err
	}
	out := map[uint32]string{}
	for _, v := range named.Values {
		out[uint32(v.Value)] = strings.TrimPrefix(strings.TrimPrefix(v.Name, "SKB_DROP_REASON_"), "SKB_")
	}
	return out, nil
}

// formatOf is where tracefs describes the tracepoint.
const formatOf = "events/skb/kfree_skb/format"

// tracedReasons are the names that the description of the tracepoint has for them; given says
// that the tracepoint has a reason. Nothing is known where tracefs cannot be read.
func tracedReasons() (names map[uint32]string, given bool) {
	text, err := os.ReadFile("/sys/kernel/tracing/" + formatOf)
	if err != nil {
		text, err = readTracefs(formatOf)
	}
	if err != nil {
		return map[uint32]string{}, false
	}
	return formatReasons(string(text))
}

// readTracefs reads a file of a tracefs that is mounted nowhere.
func readTracefs(name string) ([]byte, error) {
	fs, err := unix.Fsopen("tracefs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, err
	}
	at, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(at)
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 1<<20))
}

// symbol is one of __print_symbolic's, as in: { 2, "NOT_SPECIFIED" }.
var symbol = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\{ *([0-9]+), *"([A-Z0-9_]+)" *\}`) })

func formatReasons(text string) (names map[uint32]string, given bool) {
	_, printed, _ := strings.Cut(text, "print fmt:")
	names = map[uint32]string{}
	for _, s := range symbol().FindAllStringSubmatch(printed, -1) {
		if n, err := strconv.ParseUint(s[1], 10, 32); err == nil {
			names[uint32(n)] = s[2]
		}
	}
	return names, strings.Contains(text, " reason;")
}
