package apply

import (
	"time"
)

// PastBan is a ban by command that holds no more, for a reader.
type PastBan struct {
	What   string    `json:"what"`
	Author Author    `json:"author,omitzero"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until,omitzero"` // when it would have ended by itself
	Ended  time.Time `json:"ended"`
	Lifted bool      `json:"lifted"` // by Lifter, before its time was up
	Lifter Author    `json:"lifter,omitzero"`
}

// PastBans lists the bans by command that ended, the last one first, as far back as
// package bans keeps them. It takes no lock and changes nothing.
func (h *Host) PastBans() ([]PastBan, error) {
	if err := needRoot(); err != nil {
		return nil, err
	}
	out := []PastBan{}
	if !h.known() {
		return out, nil
	}
	list, damaged, err := h.bansJournal().Past()
	if err != nil {
		return nil, err
	}
	if damaged {
		h.note("part of the record of past bans is damaged, and left out")
	}
	for _, p := range list {
		out = append(out, PastBan{p.Name(), p.By, p.Reason, p.Since, p.Until, p.Ended, p.Lifted, p.Lifter})
	}
	return out, nil
}
