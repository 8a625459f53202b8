package fleet

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/internal/fleet/wire"
)

// asks begins a question, of which the pieces are in answered.
func (s *stage) asks(id int64, path string) {
	s.push(&wire.Message{Question: &wire.Question{Id: id, Method: wire.GET, Path: path, Query: "a=b", Accept: "text/x"}})
	synctest.Wait()
}

func (s *stage) answered(id int64) (pieces []wire.Piece, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.answers {
		if p.Id == id {
			pieces, body = append(pieces, p), body+string(p.Body)
		}
	}
	return pieces, body
}

// TestQuestions: a question is a request to the agent's own interface, and what is written comes
// back in pieces, as many as the controller asks for.
func TestQuestions(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		large := bytes.Repeat([]byte("0123456789abcdef"), 16*wire.MostPiece/16)
		cancelled := make(chan struct{}, 64)
		mux := http.NewServeMux()
		mux.HandleFunc("GET /large", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", r.Header.Get("Accept")+r.URL.RawQuery)
			w.WriteHeader(http.StatusTeapot)
			_, _ = w.Write(large)
		})
		mux.HandleFunc("GET /lines", func(w http.ResponseWriter, r *http.Request) {
			for n := 0; r.Context().Err() == nil; n++ {
				fmt.Fprintf(w, "%d\n", n)
				_ = http.NewResponseController(w).Flush()
				select {
				case <-time.After(time.Millisecond):
				case <-r.Context().Done():
				}
			}
			cancelled <- struct{}{}
		})
		mux.HandleFunc("GET /slow", func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(10 * time.Second))
			_, err := w.Write(large)
			fmt.Fprint(w, err)
			if err != nil {
				cancelled <- struct{}{}
			}
		})
		mux.HandleFunc("GET /quiet", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		mux.HandleFunc("GET /panics", func(http.ResponseWriter, *http.Request) { panic("as it were") })
		_, end := s.prepared(func(m *Member) { m.Answers = mux })
		defer end()
		s.desire(wire.Desired{Bundle: 1, Rollout: 1})
		s.await(wire.StateConfirmed, time.Minute)

		s.asks(1, "/large")
		time.Sleep(time.Minute)
		pieces, body := s.answered(1)
		if len(pieces) != wire.Pieces || len(body) != wire.Pieces*wire.MostPiece || pieces[0].Status != http.StatusTeapot || pieces[0].Type != "text/xa=b" {
			t.Fatalf("%d pieces of %d bytes, %+v", len(pieces), len(body), pieces[0].Status)
		}
		for range 20 {
			s.push(&wire.Message{Pace: &wire.Pace{Id: 1, Pieces: 1}})
			synctest.Wait()
		}
		time.Sleep(time.Second)
		if pieces, body = s.answered(1); body != string(large) || !pieces[len(pieces)-1].Last {
			t.Errorf("%d pieces of %d bytes", len(pieces), len(body))
		}

		// Lines come together, the first of them at once.
		s.asks(2, "/lines")
		if pieces, body := s.answered(2); body != "0\n" || pieces[0].Last {
			t.Errorf("%q", body)
		}
		for range 5 {
			time.Sleep(pieceGap)
			s.push(&wire.Message{Pace: &wire.Pace{Id: 2, Pieces: 1}})
		}
		synctest.Wait()
		if pieces, body := s.answered(2); len(pieces) > 7 || strings.Count(body, "\n") < 200 {
			t.Errorf("%d lines in %d pieces", strings.Count(body, "\n"), len(pieces))
		}
		s.push(&wire.Message{Pace: &wire.Pace{Id: 2, Cancel: true}})
		<-cancelled

		// Who reads nothing stops the writer, whose time ends.
		s.asks(3, "/slow")
		<-cancelled
		s.asks(4, "/panics")
		if pieces, _ := s.answered(4); len(pieces) != 1 || pieces[0].Status != http.StatusInternalServerError {
			t.Errorf("%+v", pieces)
		}
		s.asks(5, "/quiet") // that it is heard is known at once
		if pieces, _ := s.answered(5); len(pieces) != 1 || pieces[0].Status != http.StatusOK || pieces[0].Last {
			t.Errorf("%+v", pieces)
		}
		for _, id := range []int64{3, 5} {
			s.push(&wire.Message{Pace: &wire.Pace{Id: id, Cancel: true}})
		}

		// So many at once, and none of one number twice; the end of the stream ends them.
		for i := range int64(wire.MostQuestions + 1) {
			s.asks(100+i, "/lines")
		}
		s.asks(100, "/lines")
		for _, id := range []int64{100, 100 + wire.MostQuestions} {
			pieces, _ := s.answered(id)
			if last := pieces[len(pieces)-1]; !last.Last || last.Status != http.StatusTooManyRequests {
				t.Errorf("%d: %+v", id, last)
			}
		}
		s.cutAll()
		for range wire.MostQuestions {
			<-cancelled
		}
	})
}

// TestRestore: what somebody wants is done once, however often it is said at a time.
func TestRestore(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		m, end := s.member()
		defer end()
		s.desire(wire.Desired{Bundle: 1, Rollout: 1})
		s.await(wire.StateConfirmed, time.Minute)
		m.Found("tcp/9999")
		for range 100 {
			s.push(&wire.Message{Restore: &wire.Restore{By: "user:erika"}})
			synctest.Wait()
		}
		if r := s.await(wire.StateConfirmed, time.Minute); r.Restored.IsZero() || r.Undone != "tcp/9999" {
			t.Errorf("%+v", r)
		}
		time.Sleep(10 * restoreEvery)
		s.set(func() {
			if len(s.kernel.restored) != 2 || s.kernel.restored[0] != "user:erika" { // the one that waited too
				t.Errorf("%q", s.kernel.restored)
			}
		})
	})
}

// TestUnable: a host without an interface says so.
func TestUnable(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		_, end := s.member()
		defer end()
		time.Sleep(time.Second)
		s.asks(1, "/v1")
		if pieces, _ := s.answered(1); len(pieces) != 1 || pieces[0].Status != http.StatusNotFound || !pieces[0].Last {
			t.Errorf("%+v", pieces)
		}
	})
}
