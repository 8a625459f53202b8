package process

import (
	"context"
	"os"
)

type heldKey struct{}

// Held lets the programs that a backend runs with the context hold open files too, such
// as a lock that is to stand until the last of them has ended. What files gives is asked
// at each start; no other program that this process starts has them.
func Held(ctx context.Context, files func() []*os.File) context.Context {
	return context.WithValue(ctx, heldKey{}, files)
}

// HeldFiles are the files of Held, for who starts such a program.
func HeldFiles(ctx context.Context) []*os.File {
	if files, is := ctx.Value(heldKey{}).(func() []*os.File); is {
		return files()
	}
	return nil
}
