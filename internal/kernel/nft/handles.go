package nft

import "context"

// ListHandles is ListText with the handle of every object behind it.
func ListHandles(ctx context.Context, words ...string) ([]byte, error) {
	return run(ctx, "", append([]string{"-n", "-t", "-a", "list"}, words...)...)
}
