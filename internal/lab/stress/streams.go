package stress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// stream is one connection that carries data both ways all the time.
type stream struct {
	service service
	family  family
	ends    [2]net.Conn      // the caller's and the server's
	got     [2]atomic.Uint64 // bytes that came in there
	failed  [2]atomic.Pointer[error]
}

func (s *stream) String() string {
	return fmt.Sprintf("%s, IPv%d", s.service, s.family)
}

// streams is all of them.
type streams struct {
	all  []*stream
	end  chan struct{}
	done sync.WaitGroup
}

const (
	blockSize     = 512
	blockPause    = 10 * time.Millisecond
	streamsEach   = 2                // of a service and family
	connectTime   = 10 * time.Second // for what has to succeed
	progressTime  = 20 * time.Second // for each stream to get data once more
	afterProgress = 4 * blockSize
)

// openStreams opens streams of every service in both families, and has them
// carry data.
func (l *lab) openStreams() (*streams, error) {
	out := &streams{end: make(chan struct{})}
	for _, service := range services {
		for _, f := range families {
			for range streamsEach {
				s, err := l.openStream(service, f)
				if err != nil {
					return nil, errors.Join(fmt.Errorf("open a stream, %s, IPv%d: %w", service, f, err), out.close())
				}
				out.all = append(out.all, s)
			}
		}
	}
	for _, s := range out.all {
		for end := range s.ends {
			out.done.Go(func() { s.write(end, out.end) })
			out.done.Go(func() { s.read(end) })
		}
	}
	return out, nil
}

func (l *lab) openStream(service service, f family) (*stream, error) {
	from, to := service.ends(l)
	listener, err := to.Listen(service.listens(f, service.streamPort()).String())
	// A socket of an earlier stream may still be closing.
	for try := 0; errors.Is(err, syscall.EADDRINUSE) && try < 100; try++ {
		time.Sleep(50 * time.Millisecond)
		listener, err = to.Listen(service.listens(f, service.streamPort()).String())
	}
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	s := &stream{service: service, family: f}
	accepted := make(chan error, 1)
	go func() {
		var err error
		s.ends[1], err = listener.Accept()
		accepted <- err
	}()
	ctx, cancel := context.WithTimeout(context.Background(), connectTime)
	defer cancel()
	if s.ends[0], err = from.Dial(ctx, "tcp", service.asked(f, service.streamPort()).String()); err != nil {
		return nil, err
	}
	select {
	case err := <-accepted:
		return s, err
	case <-ctx.Done():
		return nil, fmt.Errorf("the server got no connection: %w", ctx.Err())
	}
}

func (s *stream) fail(end int, err error) { s.failed[end].CompareAndSwap(nil, &err) }

// pattern is what a stream carries at a place.
func pattern(at uint64) byte { return byte(at*31 + at>>8) }

func (s *stream) write(end int, stop <-chan struct{}) {
	block := make([]byte, blockSize)
	for at := uint64(0); ; {
		for i := range block {
			block[i] = pattern(at + uint64(i))
		}
		if _, err := s.ends[end].Write(block); err != nil {
			s.fail(end, err)
			return
		}
		at += blockSize
		select {
		case <-stop:
			return
		case <-time.After(blockPause):
		}
	}
}

func (s *stream) read(end int) {
	buffer := make([]byte, 64*blockSize)
	for at := uint64(0); ; {
		n, err := s.ends[end].Read(buffer)
		for i := range n {
			if buffer[i] != pattern(at+uint64(i)) {
				s.fail(end, fmt.Errorf("wrong data at byte %d", at+uint64(i)))
				return
			}
		}
		at += uint64(n)
		s.got[end].Store(at)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				s.fail(end, err)
			}
			return
		}
	}
}

// dead are the streams that broke, or that carry no data any more in one of the
// directions.
func (s *streams) dead(patience time.Duration) (out []string) {
	marks := make([][2]uint64, len(s.all))
	for i, st := range s.all {
		marks[i] = [2]uint64{st.got[0].Load(), st.got[1].Load()}
	}
	deadline := time.Now().Add(patience)
	for i, st := range s.all {
		for end := range st.ends {
			for st.got[end].Load() < marks[i][end]+afterProgress && st.failed[end].Load() == nil && time.Now().Before(deadline) {
				time.Sleep(5 * time.Millisecond)
			}
			side := [...]string{"the caller", "the server"}[end]
			switch err := st.failed[end].Load(); {
			case err != nil:
				out = append(out, fmt.Sprintf("%s: %s: %v", st, side, *err))
			case st.got[end].Load() < marks[i][end]+afterProgress:
				out = append(out, fmt.Sprintf("%s: nothing reaches %s any more", st, side))
			}
		}
	}
	return out
}

// carried is how many bytes came in on all of them.
func (s *streams) carried() (sum uint64) {
	for _, st := range s.all {
		sum += st.got[0].Load() + st.got[1].Load()
	}
	return sum
}

// rest stops what writes, so that nothing is under way.
func (s *streams) rest() {
	select {
	case <-s.end:
	default:
		close(s.end)
	}
}

// close ends all streams.
func (s *streams) close() error {
	s.rest()
	var errs []error
	for _, st := range s.all {
		for _, c := range st.ends {
			if c != nil {
				errs = append(errs, c.Close())
			}
		}
	}
	s.done.Wait()
	return errors.Join(errs...)
}
