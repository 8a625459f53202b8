package program

import (
	"encoding/gob"
	"sync"
)

// kinds are all kinds of action.
var kinds = []Action{
	Verdict(""),
	Jump{},
	Goto{},
	VerdictMap{},
	NoTrack{},
	Count{},
	Log{},
	Limit{},
	ConnectionLimit{},
	SetAdd{},
	SetMark{},
	SetLabel{},
	DNAT{},
	DNATPrefix{},
	SNAT{},
	SNATPrefix{},
	Masquerade{},
	Redirect{},
	MapSource{},
	MapDestination{},
	ClampMSS{},
	Offload{},
}

// RegisterActions makes every kind of action known to package gob, for whoever writes
// programs down.
var RegisterActions = sync.OnceFunc(func() {
	for _, action := range kinds {
		gob.Register(action)
	}
})
