package nft

import "context"

// ListHandles is ListText with the handle of every object behind it, and in the words
// that people write: names where nft has them without asking the machine's databases.
func ListHandles(ctx context.Context, words ...string) ([]byte, error) {
	return run(ctx, "", append([]string{"-t", "-a", "list"}, words...)...)
}
