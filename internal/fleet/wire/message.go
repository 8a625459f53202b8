package wire

import (
	"encoding/json"
	"errors"
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"
)

// Level is that of the protocol that this program speaks, and Levels are those that it
// understands, the highest first.
const Level = 3

// Levels are Level and the one before, which lacks questions.
var Levels = []int{Level, Level - 1}

// LevelQuestions is the first that has question, pace and answer.
const LevelQuestions = 3

// Port is where a controller listens for agents, in TCP.
const Port = 7443

// Paths of a controller. A blob's is PathBlobs and its SHA-256.
const (
	PathAgent   = "/v1/agent"
	PathRoot    = "/v1/root"
	PathEnrol   = "/v1/enrol"
	PathRenew   = "/v1/renew"
	PathTrust   = "/v1/trust"
	PathDesired = "/v1/desired"
	PathLiving  = "/v1/living"
	PathBlobs   = "/v1/blobs/"
)

// Most bytes of what is read.
const (
	MostFromAgent      = 256 << 10 // a message
	MostFromController = 2 << 20   // a message, and an answer that is not a blob
	MostRequest        = 64 << 10
	MostBlob           = 256 << 20
	MostPushed         = 64 << 10 // a blob that comes with what is desired
	MostBlobs          = mostItems
	MostLimitBans      = 1000     // of a message
	MostQuestion       = 1 << 20  // the body of a question
	MostPiece          = 64 << 10 // of an answer
)

// Pieces is how many of an answer are under way before its reader has read one.
const Pieces = 4

// MostSampledFile is how many bytes the name of a file has in a sample.
const MostSampledFile = mostShort

// MostFindings is how many a message has, and MostFindingText how many bytes one of them.
const (
	MostFindings    = 5
	MostFindingText = 1024
)

// MostQuestions is how many of one stream are answered at once.
const MostQuestions = 16

func (f *Failure) Error() string { return f.Text }

// Compare is -1 where o is older than p, 1 where it is newer, and 0 where they are the same.
func (o Order) Compare(p Order) int {
	switch {
	case o.Incarnation < p.Incarnation, o.Incarnation == p.Incarnation && o.Revision < p.Revision:
		return -1
	case o == p:
		return 0
	}
	return 1
}

// Encode is a message in JSON. One that the other side would not take is an error.
func Encode(m *Message) ([]byte, error) {
	if m.kinds() != 1 {
		return nil, errors.New("a message has exactly one content")
	}
	if err := m.Check(); err != nil {
		return nil, err
	}
	return json.Marshal(m)
}

// Decode reads what Encode wrote. A message that this program does not know is one with
// nothing in it.
func Decode(text []byte) (*Message, error) {
	m := &Message{}
	if err := Read(text, m); err != nil {
		return nil, err
	}
	return m, nil
}

// Checker is what Check can look at.
type Checker interface{ Check() error }

// Read reads a value of JSON, which fields that are not known may be in, and checks it.
func Read(text []byte, into Checker) error {
	if err := jsonv2.Unmarshal(text, into); err != nil {
		return err
	}
	return into.Check()
}

func (m *Message) kinds() int {
	n := 0
	for _, has := range []bool{m.Hello != nil, m.Report != nil, m.Facts != nil, m.LiveApplied != nil, m.LimitBans != nil, m.Trust != nil, m.Desired != nil, m.Live != nil, m.Ask != nil, m.Question != nil, m.Pace != nil, m.Restore != nil, m.Answer != nil, m.Sample != nil, m.Findings != nil, m.Drain != nil, m.Refused != nil} {
		if has {
			n++
		}
	}
	return n
}

// FromAgent says that an agent sends it.
func (m *Message) FromAgent() bool {
	return m.Hello != nil || m.Report != nil || m.Facts != nil || m.LiveApplied != nil || m.LimitBans != nil || m.Answer != nil || m.Sample != nil || m.Findings != nil
}

// Check says what is wrong with it: what openapi.yaml does not allow.
func (m *Message) Check() error {
	if m.kinds() > 1 {
		return errors.New("a message has exactly one content")
	}
	var is Checker
	var name string
	switch {
	case m.Hello != nil:
		is, name = m.Hello, "hello"
	case m.Report != nil:
		is, name = m.Report, "report"
	case m.Facts != nil:
		is, name = m.Facts, "facts"
	case m.LiveApplied != nil:
		is, name = m.LiveApplied, "live-applied"
	case m.LimitBans != nil:
		is, name = m.LimitBans, "limit-bans"
	case m.Trust != nil:
		is, name = m.Trust, "trust"
	case m.Desired != nil:
		is, name = m.Desired, "desired"
	case m.Live != nil:
		is, name = m.Live, "live"
	case m.Ask != nil:
		is, name = m.Ask, "ask"
	case m.Question != nil:
		is, name = m.Question, "question"
	case m.Restore != nil:
		is, name = m.Restore, "restore"
	case m.Pace != nil:
		is, name = m.Pace, "pace"
	case m.Answer != nil:
		is, name = m.Answer, "answer"
	case m.Findings != nil:
		is, name = m.Findings, "findings"
	case m.Sample != nil:
		is, name = m.Sample, "sample"
	case m.Drain != nil:
		is, name = m.Drain, "drain"
	case m.Refused != nil:
		is, name = m.Refused, "refused"
	default:
		return nil
	}
	if err := is.Check(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
