package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"sluice/internal/base/tool"
)

// legacyTool is iptables or ip6tables, over the kernel's old interface.
type legacyTool struct{ names, save, restore string }

var legacyTools = []legacyTool{
	{"ip_tables_names", "iptables-legacy-save", "iptables-legacy-restore"},
	{"ip6_tables_names", "ip6tables-legacy-save", "ip6tables-legacy-restore"},
}

// Legacy is the text of the tables of legacy iptables (first) and ip6tables in the
// calling thread's namespace, with the counters of each rule, as the programs save it;
// "" where there are none. No table is made that is not there.
func Legacy(ctx context.Context) (texts [2]string, err error) {
	for i, tool := range legacyTools {
		names, err := os.ReadFile("/proc/thread-self/net/" + tool.names)
		if errors.Is(err, fs.ErrNotExist) || err == nil && len(bytes.TrimSpace(names)) == 0 {
			continue
		} else if err != nil {
			return texts, fmt.Errorf("list tables of legacy iptables: %w", err)
		}
		out, err := runLegacy(ctx, "", tool.save, "-c")
		if err != nil {
			return texts, err
		}
		texts[i] = out
	}
	return texts, nil
}

// restoreLegacy loads what Legacy gave, with counters at zero.
func restoreLegacy(ctx context.Context, texts [2]string) error {
	for i, tool := range legacyTools {
		if texts[i] == "" {
			continue
		}
		if _, err := runLegacy(ctx, texts[i], tool.restore); err != nil {
			return err
		}
	}
	return nil
}

func runLegacy(ctx context.Context, input, program string, args ...string) (string, error) {
	cmd := tool.Command(ctx, program, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stdin = bytes.NewReader([]byte(input))
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := tool.Run(cmd); err != nil {
		return "", fmt.Errorf("%s: %w: %s", program, err, bytes.TrimSpace(problems.Bytes()))
	}
	return out.String(), nil
}
