package testnet

import (
	"os/exec"
	"runtime"
	"sync"
)

// starter runs functions on one thread, which lasts as long as this process. A child
// with Pdeathsig is killed when the thread that started it ends, not the process; and
// threads do end, such as those on which package replica was in another namespace.
var starter = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// StartCommand starts a program inside the namespace. It may have Pdeathsig, and then
// lives no longer than this process.
func (s *Namespace) StartCommand(cmd *exec.Cmd) (err error) {
	done := make(chan struct{})
	starter() <- func() {
		defer close(done)
		err = s.Do(cmd.Start)
	}
	<-done
	return err
}
