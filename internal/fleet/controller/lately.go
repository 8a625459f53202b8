package controller

import (
	"crypto/sha256"
	"maps"
	"sync"
	"time"
)

const (
	// latelyFor is how long who has asked by a token is told what was known last though the database,
	// which says whether the token was withdrawn since, does not answer.
	latelyFor  = time.Hour
	mostLately = 4096
)

// lately are who have asked.
type lately struct {
	mutex sync.Mutex
	of    map[[sha256.Size]byte]seenCaller
}

type seenCaller struct {
	who caller
	at  time.Time
}

func (l *lately) asks(hash [sha256.Size]byte, who caller, now time.Time) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.of == nil || len(l.of) >= mostLately {
		l.of = map[[sha256.Size]byte]seenCaller{}
	}
	l.of[hash] = seenCaller{who, now}
}

func (l *lately) forget(hash [sha256.Size]byte) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	delete(l.of, hash)
}

// withdrawn forgets an access by its ID.
func (l *lately) withdrawn(id string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	maps.DeleteFunc(l.of, func(_ [sha256.Size]byte, a seenCaller) bool { return a.who.session == id })
}

// known is who asked by a token lately, if it has not expired.
func (l *lately) known(hash [sha256.Size]byte, now time.Time) (who caller, is bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	a, is := l.of[hash]
	return a.who, is && now.Sub(a.at) < latelyFor && a.who.expires.After(now)
}
