package turns

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// TestTurns: who asks for much waits behind themselves, and others for one of theirs; who goes is in
// nobody's way.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := New()
		got := make(chan string, 10)
		free := make(chan struct{})
		take := func(ctx context.Context, caller string) {
			go func() {
				leave, err := all.Take(ctx, caller)
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					return
				}
				got <- caller
				<-free
				leave()
			}()
			synctest.Wait()
		}
		gone, cancel := context.WithCancel(t.Context())
		for range 3 {
			take(t.Context(), "erika")
		}
		take(gone, "max")
		take(gone, "erika")
		take(t.Context(), "otto")
		cancel()
		for i, want := range []string{"erika", "otto"} {
			if is := <-got; is != want {
				t.Errorf("turn %d is of %s", i, is)
			}
			free <- struct{}{}
			synctest.Wait()
		}
		for range 2 {
			if is := <-got; is != "erika" {
				t.Errorf("the rest is of %s", is)
			}
			free <- struct{}{}
			synctest.Wait()
		}
		if len(got) != 0 || len(all.of) != 0 || len(all.slot) != 0 {
			t.Errorf("%d more, and %v have turns", len(got), all.of)
		}
	})
}
