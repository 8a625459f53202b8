package backend

// What is remembered, and under which key.
const CapabilitiesKind = capabilitiesKind

// Key is what the answers of a prober are remembered by.
func Key(p Prober) string { return p.Questions().key() }

// Answered says whether every question of a prober has its answer.
func Answered(p Prober, can Capabilities) bool { return p.Questions().answered(can) }
