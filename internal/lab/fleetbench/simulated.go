package fleetbench

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"sluice/internal/fleet/store"
)

// Order is what Simulate is told, a line of JSON.
type Order struct {
	Hosts      int    `json:"hosts"`
	Controller string `json:"controller"` // HOST:PORT
	Token      string `json:"token"`      // its text
	Dir        string `json:"dir"`        // for what the hosts keep
	Took       []Took `json:"took"`       // what hosts with a kernel took; each change draws one
	Seed       uint64 `json:"seed"`
	// Facts are those of a host with a kernel, at an address that each other host has its
	// own for.
	Facts   []byte `json:"facts"`
	Address string `json:"address"`
	Profile string `json:"profile,omitempty"` // a file for where its processor time goes
}

// Progress is what Simulate tells, a line of JSON each time that it changes, at most ten a
// second.
type Progress struct {
	Enrolled  int           `json:"enrolled"`
	Confirmed map[int64]int `json:"confirmed"` // how many hosts have confirmed a bundle last
	Reverted  int           `json:"reverted"`
	// Lived is of bans, by what they were for.
	Lived map[string]Lived `json:"lived"`
	Error string           `json:"error,omitempty"` // the last one of a host
}

// simulated is the process of the simulated hosts.
type simulated struct {
	*program

	stdin io.Closer // which ends it
	mutex sync.Mutex
	last  Progress
	ended error
}

// simulate has so many hosts join the fleet.
func (f *fleet) simulate(n int) error {
	group, err := f.group("simulated")
	if err != nil {
		return err
	}
	o := Order{Hosts: n, Controller: controllerAt, Token: f.token, Dir: f.memory, Seed: f.Options.Seed, Profile: f.Profile}
	for _, h := range f.hosts {
		o.Took = append(o.Took, h.took())
	}
	if o.Facts, err = f.facts(); err != nil {
		return err
	}
	o.Address = fmt.Sprint(network, firstHost)
	s := &simulated{program: f.program(group, f.Simulator[0], f.Simulator[1:]...)}
	in, err := s.StdinPipe()
	if err != nil {
		return err
	}
	out, err := s.StdoutPipe()
	if err != nil {
		return err
	}
	if err := f.simulating.StartCommand(s.Cmd); err != nil {
		return err
	}
	f.simulated, s.stdin = s, in
	f.done = append(f.done, func() error { return errors.Join(in.Close(), s.await()) })
	go s.follow(out)
	return json.NewEncoder(in).Encode(o)
}

// facts are what the first host has told of itself.
func (f *fleet) facts() ([]byte, error) {
	s, err := store.OpenExisting(f, "sqlite:"+f.path("controller", "fleet.db"))
	if err != nil {
		return nil, err
	}
	defer s.Close()
	hosts, err := s.Hosts(f, "host-0")
	if err != nil {
		return nil, err
	}
	return s.Facts(f, hosts[0].Facts)
}

func (s *simulated) follow(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var p Progress
		err := json.Unmarshal(lines.Bytes(), &p)
		s.mutex.Lock()
		s.last, s.ended = p, err
		s.mutex.Unlock()
	}
	s.mutex.Lock()
	s.ended = errors.Join(errors.New("the simulated hosts have ended"), lines.Err())
	s.mutex.Unlock()
}

func (s *simulated) confirmed(bundle int64) int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.last.Confirmed[bundle]
}

func (s *simulated) reverted() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.last.Reverted
}

func (s *simulated) lived(kind string) Lived {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.last.Lived[kind]
}

// failed is an error once the process has ended.
func (s *simulated) failed() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.ended
}
