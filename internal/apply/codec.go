package apply

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"sync"

	"sluice/internal/program"
)

// Programs are kept as gob: their actions are of an interface type, and a
// million elements must neither take long nor much room.
var registerActions = sync.OnceFunc(func() {
	for _, action := range []program.Action{
		program.Verdict(""),
		program.Jump{},
		program.Goto{},
		program.VerdictMap{},
		program.NoTrack{},
		program.Count{},
		program.Log{},
		program.Limit{},
		program.ConnectionLimit{},
		program.SetAdd{},
		program.SetMark{},
		program.DNAT{},
		program.DNATPrefix{},
		program.SNAT{},
		program.SNATPrefix{},
		program.Masquerade{},
		program.Redirect{},
		program.MapSource{},
		program.MapDestination{},
		program.ClampMSS{},
		program.Offload{},
	} {
		gob.Register(action)
	}
})

func encodeProgram(p *program.Program) ([]byte, error) {
	registerActions()
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(p); err != nil {
		return nil, fmt.Errorf("encode the program: %w", err)
	}
	return b.Bytes(), nil
}

func decodeProgram(data []byte) (*program.Program, error) {
	registerActions()
	var p program.Program
	if err := gob.NewDecoder(bytes.NewReader(data)).Decode(&p); err != nil {
		return nil, fmt.Errorf("decode the program: %w", err)
	}
	return &p, nil
}
