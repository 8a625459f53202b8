package fleet

import (
	"fmt"

	"sluice/internal/fleet/wire"
)

// relabel takes an order that gives this host other labels, which select its parts. One that
// is not believed leaves it those that it has, and is reported for as long as it is shown.
func (m *Member) relabel(order []byte) {
	if len(order) == 0 || wire.Hash(order) == m.now().Labels {
		return
	}
	labels, err := m.Trust.Labels(order, m.Host, m.Clock())
	if err == nil && m.Relabel != nil {
		err = m.Relabel(labels)
	}
	if err != nil {
		err = fmt.Errorf("the labels that the controller orders are not taken: %w", err)
		m.note(err)
		if !distrusted(err) {
			nudge(m.soon)
		}
		m.mu.Lock()
		m.unlabelled = m.short(err)
		m.mu.Unlock()
		nudge(m.tell)
		return
	}
	m.mu.Lock()
	m.Labels, m.unlabelled = labels, ""
	m.mu.Unlock()
	m.update(func(s *State) { s.Labels = wire.Hash(order) })
	nudge(m.lives.wake)
}

// labels are those that the host has now.
func (m *Member) labels() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.Labels
}
